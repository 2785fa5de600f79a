//! Matrices among a step's inputs, read row by row.

use std::borrow::Cow;

use refrain_kernels::cpu::FastRows;
use refrain_kernels::matmul::StoredRows;
use refrain_kernels::projection::WeightStorage;
use refrain_kernels::quantised::{QuantFormat, QuantRows};

use super::HostInputs;
use crate::DType;

/// A matrix as its operands hold it.
pub enum HostMatrix<'a> {
    /// Floats: dtype, extents and bytes without gaps.
    Dense(DType, [usize; 2], Cow<'a, [u8]>),
    /// Planes.
    Quantised(HostPlanes<'a>),
}

/// A quantised matrix whose planes lie without gaps.
pub struct HostPlanes<'a> {
    format: QuantFormat,
    shape: [usize; 2],
    parameters: DType,
    quants: Cow<'a, [u8]>,
    scales: Cow<'a, [u8]>,
    biases: Option<Cow<'a, [u8]>>,
}

impl HostMatrix<'_> {
    /// Rows and columns.
    pub fn shape(&self) -> [usize; 2] {
        match self {
            HostMatrix::Dense(_, shape, _) => *shape,
            HostMatrix::Quantised(planes) => planes.shape,
        }
    }

    /// Its rows.
    pub fn rows(&self) -> FastRows<'_> {
        match self {
            HostMatrix::Dense(dtype, shape, bytes) => dense(*dtype, *shape, bytes),
            HostMatrix::Quantised(planes) => {
                let rows = QuantRows::new(
                    planes.format,
                    planes.shape,
                    &planes.quants,
                    planes.parameters,
                    &planes.scales,
                    planes.biases.as_deref(),
                );
                FastRows::Quantised(rows.expect("planes were checked when the array was made"))
            }
        }
    }
}

impl HostInputs<'_> {
    /// The matrix whose operands stand from input `first` on.
    pub fn matrix(&self, weights: WeightStorage, first: usize) -> HostMatrix<'_> {
        let [rows, columns] = *self.shape(first) else {
            unreachable!("matrices have two dimensions")
        };
        match weights {
            WeightStorage::Dense => HostMatrix::Dense(self.dtype(first), [rows, columns], self.gathered(first)),
            WeightStorage::Quantised(format) => HostMatrix::Quantised(HostPlanes {
                format,
                shape: [rows, format.columns(columns)],
                parameters: self.dtype(first + 1),
                quants: self.gathered(first),
                scales: self.gathered(first + 1),
                biases: format.has_biases().then(|| self.gathered(first + 2)),
            }),
        }
    }

    /// The matrices stored as `parts` say, whose operands are those from `next` on, which comes to stand behind them.
    pub fn matrices(&self, parts: impl Iterator<Item = WeightStorage>, next: &mut usize) -> Vec<HostMatrix<'_>> {
        let mut matrix = |weights: WeightStorage| {
            let first = *next;
            *next += weights.planes();
            self.matrix(weights, first)
        };
        parts.map(&mut matrix).collect()
    }
}

/// A float matrix `[rows, columns]` at the start of `bytes`.
pub(crate) fn dense(dtype: DType, [rows, columns]: [usize; 2], bytes: &[u8]) -> FastRows<'_> {
    FastRows::Stored(StoredRows::new(dtype, rows, columns, bytes).expect("a float matrix"))
}
