use std::ops::Range;

use super::dense::{Brains, Halves, Singles};
use super::packed::Packed;
use super::product::multiply;
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
        ($bytes:literal, $halves:literal, $signed:literal) => {
            multiply(
                &Packed::<$bytes, $halves, $signed> { rows: w },
                w.columns(),
                x,
                rows,
                out,
            )
        };
    }
    let format = w.format();
    match (format.zero, format.bits, format.group) {
        (Zero::Signed, 8, _) => packed!(32, false, true),
        (Zero::Middle | Zero::Bias, bits, group) => match (bits, group) {
            (2, 16) => packed!(8, true, false),
            (2, _) => packed!(8, false, false),
            (3, 16) => packed!(12, true, false),
            (3, _) => packed!(12, false, false),
            (4, _) => packed!(16, false, false),
            (5, _) => packed!(20, false, false),
            (6, 16) => packed!(24, true, false),
            (6, _) => packed!(24, false, false),
            (8, _) => packed!(32, false, false),
            _ => crate::matmul::multiply(w, x, rows, out),
        },
        _ => crate::matmul::multiply(w, x, rows, out),
    }
}
