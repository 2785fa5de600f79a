//! Matrices among a step's inputs, which are read row by row.

use std::borrow::Cow;

use refrain_kernels::cpu::FastRows;
use refrain_kernels::matmul::StoredRows;
use refrain_kernels::projection::WeightStorage;
use refrain_kernels::quantised::{QuantFormat, QuantRows};

use super::HostInputs;
use crate::DType;

/// A weight matrix, dense or quantised.
pub enum HostMatrix<'a> {
    /// Floats: dtype, extents and contiguous bytes.
    Dense(DType, [usize; 2], Cow<'a, [u8]>),
    /// Quantised planes.
    Quantised(HostPlanes<'a>),
}

/// A quantised matrix with contiguous planes.
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

    /// Access to its rows.
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
    /// The matrix whose operands start at input `first`.
    pub fn matrix(&self, weights: WeightStorage, first: usize) -> HostMatrix<'_> {
        let [rows, columns] = *self.shape(first) else {
            unreachable!("a matrix has two dimensions")
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

    /// The matrices with these storages, whose operands start at input `next`. Advances `next` past them.
    pub fn matrices(&self, storages: impl Iterator<Item = WeightStorage>, next: &mut usize) -> Vec<HostMatrix<'_>> {
        let mut matrix = |weights: WeightStorage| {
            let first = *next;
            *next += weights.planes();
            self.matrix(weights, first)
        };
        storages.map(&mut matrix).collect()
    }
}

/// A float matrix `[rows, columns]` at the start of `bytes`.
pub(crate) fn dense(dtype: DType, [rows, columns]: [usize; 2], bytes: &[u8]) -> FastRows<'_> {
    FastRows::Stored(StoredRows::new(dtype, rows, columns, bytes).expect("a float matrix"))
}
