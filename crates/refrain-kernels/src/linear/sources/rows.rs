use std::ops::Range;

use half::{bf16, f16};

use rayon::prelude::*;

use crate::kit::dot::dot;
use crate::kit::threads::min_items;
use crate::{DType, Unsupported};

/// A matrix that is read row by row. A stored matrix (16-bit, quantised, mapped from a file) is never expanded to f32
/// as a whole.
pub trait WeightRows: Sync {
    /// Number of rows.
    fn count(&self) -> usize;

    /// Values per row.
    fn columns(&self) -> usize;

    /// Writes row `row` to `out`, whose length is [`WeightRows::columns`].
    ///
    /// # Panics
    /// Panics if there is no such row, or if `out` has another length.
    fn read(&self, row: usize, out: &mut [f32]);

    /// Computes `out[i, j] = Σ_k x[i, k] · self[rows.start + j, k]` for `x` `[m, columns]` and `out` `[m, rows]`. Reads
    /// each row once. The default implementation uses plain loops.
    ///
    /// # Panics
    /// Panics if there are no such rows, or if `x` and `out` have different numbers of rows.
    fn multiply(&self, x: &[f32], rows: Range<usize>, out: &mut [f32]) {
        multiply(self, x, rows, out);
    }
}

/// Rows of f32, f16 or bf16 numbers, dense in little-endian bytes.
pub struct StoredRows<'a> {
    dtype: DType,
    columns: usize,
    count: usize,
    bytes: &'a [u8],
}

impl<'a> StoredRows<'a> {
    /// Creates a matrix `[count, columns]` of `dtype` at the start of `bytes`.
    ///
    /// # Errors
    /// Fails if `dtype` is not a float, or if `bytes` is too short.
    pub fn new(dtype: DType, count: usize, columns: usize, bytes: &'a [u8]) -> Result<StoredRows<'a>, Unsupported> {
        let op = "stored rows";
        if !dtype.is_float() {
            return Err(Unsupported::DType { op, dtype });
        }
        let needed = count * columns * dtype.size();
        if bytes.len() < needed {
            let what = format!(
                "{count} × {columns} {dtype} values need {needed} bytes, found {}",
                bytes.len()
            );
            return Err(Unsupported::Size { op, what });
        }
        Ok(StoredRows {
            dtype,
            columns,
            count,
            bytes,
        })
    }

    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl WeightRows for StoredRows<'_> {
    fn count(&self) -> usize {
        self.count
    }

    fn columns(&self) -> usize {
        self.columns
    }

    fn read(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.count, "row {row} of {}", self.count);
        let size = self.columns * self.dtype.size();
        decode(self.dtype, &self.bytes[row * size..][..size], out);
    }
}

/// Decodes little-endian floats of `dtype` from `bytes` into `out`, which has as many elements.
pub(crate) fn decode(dtype: DType, bytes: &[u8], out: &mut [f32]) {
    assert_eq!(bytes.len(), out.len() * dtype.size());
    match dtype {
        DType::F32 => {
            for (value, b) in out.iter_mut().zip(bytes.chunks_exact(4)) {
                *value = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
            }
        }
        DType::F16 => {
            for (value, b) in out.iter_mut().zip(bytes.chunks_exact(2)) {
                *value = f16::from_le_bytes([b[0], b[1]]).to_f32();
            }
        }
        DType::BF16 => {
            for (value, b) in out.iter_mut().zip(bytes.chunks_exact(2)) {
                *value = bf16::from_le_bytes([b[0], b[1]]).to_f32();
            }
        }
        other => panic!("{other} is not a float type"),
    }
}

/// A matrix of f32 values, row-major.
pub struct SliceRows<'a> {
    columns: usize,
    values: &'a [f32],
}

impl<'a> SliceRows<'a> {
    /// Views `values` as rows of `columns` values; an incomplete last row is ignored.
    pub fn new(values: &'a [f32], columns: usize) -> SliceRows<'a> {
        SliceRows { columns, values }
    }
}

impl WeightRows for SliceRows<'_> {
    fn count(&self) -> usize {
        self.values.len().checked_div(self.columns).unwrap_or(0)
    }

    fn columns(&self) -> usize {
        self.columns
    }

    fn read(&self, row: usize, out: &mut [f32]) {
        out.copy_from_slice(&self.values[row * self.columns..][..self.columns]);
    }
}

/// [`crate::matmul::reference_nt`] for a range of rows of `w`.
pub(crate) fn multiply<R: WeightRows + ?Sized>(w: &R, x: &[f32], rows: Range<usize>, out: &mut [f32]) {
    multiply_by(&|row, out| w.read(row, out), w.columns(), x, rows, out);
}

/// As [`multiply`], with a function that writes a row of `k` values. It is not generic, since the loop over threads
/// takes long to compile.
fn multiply_by(read: &(dyn Fn(usize, &mut [f32]) + Sync), k: usize, x: &[f32], rows: Range<usize>, out: &mut [f32]) {
    let n = rows.len();
    if n == 0 || out.is_empty() {
        return;
    }
    let m = out.len() / n;
    assert_eq!(out.len(), m * n, "out holds whole rows");
    assert_eq!(x.len(), m * k, "x holds as many rows as out");
    // Runs of rows are long enough to hide the cost of scheduling. If m > 1, a run's results are not contiguous in
    // `out`, so each run collects its own.
    let share = n.div_ceil(4 * rayon::current_num_threads()).clamp(1, 256);
    let run = share.max(min_items(m * k).min(n));
    let results: Vec<Vec<f32>> = (0..n.div_ceil(run))
        .into_par_iter()
        .map(|r| {
            let run = r * run..((r + 1) * run).min(n);
            let mut row = vec![0.0; k];
            let mut results = Vec::with_capacity(run.len() * m);
            for j in run {
                read(rows.start + j, &mut row);
                results.extend((0..m).map(|i| dot(&x[i * k..][..k], &row)));
            }
            results
        })
        .collect();
    for (r, results) in results.iter().enumerate() {
        for (j, values) in results.chunks_exact(m).enumerate() {
            for (i, &value) in values.iter().enumerate() {
                out[i * n + r * run + j] = value;
            }
        }
    }
}
