use std::ops::Range;

use super::dense::{Bf16Rows, F16Rows, F32Rows};
use super::nibbles::NibbleRows;
use super::packed::{BookBytes, Packed, SignedBytes, Unsigned};
use super::product::multiply;
use super::scales::{AnyFloats, BlockF16, BlockRecords, Exponents, NibbleRecords, SignedBlocks, SignedRecords};
use crate::DType;
use crate::matmul::{StoredRows, WeightRows};
use crate::quantised::{Code, QuantRows, RecordIntegers, ScaleRecords, Scales};

/// Weights with fast products, where [`StoredRows`] and [`QuantRows`] use plain loops. Reading a row is the same.
pub enum FastRows<'a> {
    /// Float weights.
    Stored(StoredRows<'a>),
    /// Quantised weights.
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
                    DType::F32 => multiply(&F32Rows { bytes, columns }, columns, x, rows, out),
                    DType::F16 => multiply(&F16Rows { bytes, columns }, columns, x, rows, out),
                    _ => multiply(&Bf16Rows { bytes, columns }, columns, x, rows, out),
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
                &NibbleRows::<$parameters<'_>>(Packed::new(w)),
                w.columns(),
                x,
                rows,
                out,
            )
        };
    }
    let format = w.format();
    let is_f16 = w.parameter_dtype() == DType::F16;
    // Records of five words.
    let integers = match format.scales {
        Scales::Records(ScaleRecords { words: 5, integers }) => Some(integers),
        _ => None,
    };
    let floats = format.scales == Scales::Float;
    match (format.code, format.bits, integers, format.group) {
        (Code::Bias, 2, Some(RecordIntegers::Nibbles), 16) => packed!(8, Unsigned, NibbleRecords),
        (Code::Centred, 3, Some(RecordIntegers::Signed), 16) => packed!(12, Unsigned, SignedRecords),
        (Code::Bias, 4, Some(RecordIntegers::Bytes), _) => nibbles!(BlockRecords),
        (Code::Bias, 5, Some(RecordIntegers::Bytes), _) => packed!(20, Unsigned, BlockRecords),
        (Code::Centred, 6, Some(RecordIntegers::Signed), 16) => packed!(24, Unsigned, SignedRecords),
        (Code::Centred, 4, None, 32) if floats && is_f16 => nibbles!(BlockF16),
        (Code::Centred, 5, None, 32) if floats && is_f16 => packed!(20, Unsigned, BlockF16),
        (Code::Signed, 8, None, 32) if floats && is_f16 => packed!(32, SignedBytes, BlockF16),
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
