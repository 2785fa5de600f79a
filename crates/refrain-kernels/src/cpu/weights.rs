use std::ops::Range;

use super::dense::{Brains, Halves, Singles};
use super::packed::Packed;
use super::product::multiply;
use super::scales::{AnyFloats, BlockHalves, BlockRecords, NibbleRecords, SignedRecords};
use crate::DType;
use crate::matmul::{Rows, StoredRows};
use crate::quantised::{QuantRows, Zero};

/// Rows whose products are computed as fast as the CPU does: what [`StoredRows`] and [`QuantRows`] multiply
/// by plain loops. Reading a row is the same.
pub enum FastRows<'a> {
    /// Floats.
    Stored(StoredRows<'a>),
    /// Quantised values.
    Quantised(QuantRows<'a>),
}

impl FastRows<'_> {
    fn plain(&self) -> &dyn Rows {
        match self {
            FastRows::Stored(rows) => rows,
            FastRows::Quantised(rows) => rows,
        }
    }
}

impl Rows for FastRows<'_> {
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
        ($bytes:literal, $signed:literal, $parameters:ident) => {
            multiply(
                &Packed::<$bytes, $signed, $parameters<'_>>::new(w),
                w.columns(),
                x,
                rows,
                out,
            )
        };
    }
    let format = w.format();
    let halves = w.parameter_dtype() == DType::F16;
    match (format.zero, format.nested, format.bits) {
        (Zero::Bias, true, 2) => packed!(8, false, NibbleRecords),
        (Zero::Middle, true, 3) => packed!(12, false, SignedRecords),
        (Zero::Bias, true, 4) => packed!(16, false, BlockRecords),
        (Zero::Bias, true, 5) => packed!(20, false, BlockRecords),
        (Zero::Middle, true, 6) => packed!(24, false, SignedRecords),
        (Zero::Middle, false, 4) if halves => packed!(16, false, BlockHalves),
        (Zero::Middle, false, 5) if halves => packed!(20, false, BlockHalves),
        (Zero::Signed, false, 8) if halves => packed!(32, true, BlockHalves),
        (Zero::Signed, false, 8) => packed!(32, true, AnyFloats),
        (_, false, 2) => packed!(8, false, AnyFloats),
        (_, false, 3) => packed!(12, false, AnyFloats),
        (_, false, 4) => packed!(16, false, AnyFloats),
        (_, false, 5) => packed!(20, false, AnyFloats),
        (_, false, 6) => packed!(24, false, AnyFloats),
        (_, false, 8) => packed!(32, false, AnyFloats),
        _ => crate::matmul::multiply(w, x, rows, out),
    }
}
