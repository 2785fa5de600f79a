use std::ops::Range;

use super::dense::{Brains, Halves, Singles};
use super::nibbles::Nibbles;
use super::packed::{BookBytes, Packed, SignedBytes, Unsigned};
use super::product::multiply;
use super::scales::{AnyFloats, BlockHalves, BlockRecords, Exponents, NibbleRecords, SignedBlocks, SignedRecords};
use crate::DType;
use crate::matmul::{StoredRows, WeightRows};
use crate::quantised::{Code, QuantRows, RecordIntegers, ScaleRecords, Scales};

/// Rows whose products are computed as fast as the CPU does: what [`StoredRows`] and [`QuantRows`] multiply
/// by plain loops. Reading a row is the same.
pub enum FastRows<'a> {
    /// Floats.
    Stored(StoredRows<'a>),
    /// Quantised values.
    Quantised(QuantRows<'a>),
}

impl FastRows<'_> {
    fn plain(&self) -> &dyn WeightRows {
        match self {
            FastRows::Stored(rows) => rows,
            FastRows::Quantised(rows) => rows,
        }
    }
}

impl WeightRows for FastRows<'_> {
    fn count(&self) -> usize {
        self.plain().count()
    }

    fn columns(&self) -> usize {
        self.plain().columns()
    }

    fn read(&self, row: usize, out: &mut [f32]) {
        self.plain().read(row, out);
    }

    fn multiply(&self, x: &[f32], rows: Range<usize>, out: &mut [f32]) {
        let columns = self.columns();
        if columns == 0 || out.is_empty() {
            return out.fill(0.0);
        }
        assert!(rows.end <= self.count(), "rows {rows:?} of {}", self.count());
        assert_eq!(out.len() * columns, x.len() * rows.len(), "x and out hold as many rows");
        match self {
            FastRows::Stored(w) => {
                let bytes = w.bytes();
                match w.dtype() {
                    DType::F32 => multiply(&Singles { bytes, columns }, columns, x, rows, out),
                    DType::F16 => multiply(&Halves { bytes, columns }, columns, x, rows, out),
                    _ => multiply(&Brains { bytes, columns }, columns, x, rows, out),
                }
            }
            FastRows::Quantised(w) => quantised(w, x, rows, out),
        }
    }
}

fn quantised(w: &QuantRows<'_>, x: &[f32], rows: Range<usize>, out: &mut [f32]) {
    macro_rules! packed {
        ($bytes:literal, $code:ident, $parameters:ident) => {
            multiply(
                &Packed::<$bytes, $code, $parameters<'_>>::new(w),
                w.columns(),
                x,
                rows,
                out,
            )
        };
    }
    macro_rules! nibbles {
        ($parameters:ident) => {
            multiply(
                &Nibbles::<$parameters<'_>>(Packed::new(w)),
                w.columns(),
                x,
                rows,
                out,
            )
        };
    }
    let format = w.format();
    let halves = w.parameter_dtype() == DType::F16;
    // Records of five words.
    let integers = match format.scales {
        Scales::Records(ScaleRecords { words: 5, integers }) => Some(integers),
        _ => None,
    };
    let floats = format.scales == Scales::Float;
    match (format.code, format.bits, integers, format.group) {
        (Code::Bias, 2, Some(RecordIntegers::Nibbles), 16) => packed!(8, Unsigned, NibbleRecords),
        (Code::Middle, 3, Some(RecordIntegers::Signed), 16) => packed!(12, Unsigned, SignedRecords),
        (Code::Bias, 4, Some(RecordIntegers::Bytes), _) => nibbles!(BlockRecords),
        (Code::Bias, 5, Some(RecordIntegers::Bytes), _) => packed!(20, Unsigned, BlockRecords),
        (Code::Middle, 6, Some(RecordIntegers::Signed), 16) => packed!(24, Unsigned, SignedRecords),
        (Code::Middle, 4, None, 32) if floats && halves => nibbles!(BlockHalves),
        (Code::Middle, 5, None, 32) if floats && halves => packed!(20, Unsigned, BlockHalves),
        (Code::Signed, 8, None, 32) if floats && halves => packed!(32, SignedBytes, BlockHalves),
        (Code::Signed, 8, None, _) if floats => packed!(32, SignedBytes, AnyFloats),
        (Code::Book(_), 4, None, _) if floats => packed!(16, BookBytes, AnyFloats),
        (Code::Book(_), 4, None, 32) if format.scales == Scales::E8M0 => packed!(16, BookBytes, Exponents),
        (Code::Book(_), 4, None, 32) if format.has_records() => packed!(16, BookBytes, SignedBlocks),
        (_, 2, None, _) if floats => packed!(8, Unsigned, AnyFloats),
        (_, 3, None, _) if floats => packed!(12, Unsigned, AnyFloats),
        (_, 4, None, _) if floats => nibbles!(AnyFloats),
        (_, 5, None, _) if floats => packed!(20, Unsigned, AnyFloats),
        (_, 6, None, _) if floats => packed!(24, Unsigned, AnyFloats),
        (_, 8, None, _) if floats => packed!(32, Unsigned, AnyFloats),
        _ => crate::matmul::multiply(w, x, rows, out),
    }
}
