//! Matrix products.

use super::elementwise::{broadcast_shapes, promote};
use crate::{Array, Primitive};

impl Array {
    /// `self [.., M, K]` · `other [.., K, N]` → `[.., M, N]`, leading dimensions broadcast. Vectors
    /// count as a row on the left and as a column on the right. Accumulates in f32.
    #[track_caller]
    pub fn matmul(&self, other: &Array) -> Array {
        let fail = |what: String| Array::invalid(self, "matmul", what);
        if self.rank() == 1 && other.rank() >= 1 {
            let product = self.expand_dims(0).matmul(other);
            let mut shape = product.shape().to_vec();
            if shape.len() > 1 || other.rank() == 1 {
                shape.remove(shape.len().saturating_sub(if other.rank() == 1 { 1 } else { 2 }));
            }
            return product.reshape(&shape.iter().map(|&n| n as isize).collect::<Vec<_>>());
        }
        if other.rank() == 1 && self.rank() >= 1 {
            let product = self.matmul(&other.expand_dims(1));
            return product.reshape(
                &self.shape()[..self.rank() - 1]
                    .iter()
                    .map(|&n| n as isize)
                    .collect::<Vec<_>>(),
            );
        }
        if self.rank() < 2 || other.rank() < 2 || !self.dtype().is_float() || !other.dtype().is_float() {
            return fail(format!(
                "needs floating-point matrices, not {}{:?} and {}{:?}",
                self.dtype(),
                self.shape(),
                other.dtype(),
                other.shape()
            ));
        }
        let ([outer_a @ .., m, k], [outer_b @ .., k_b, n]) = (self.shape(), other.shape()) else {
            unreachable!("ranks were checked");
        };
        if k != k_b {
            return fail(format!(
                "{:?} and {:?}: {k} columns meet {k_b} rows",
                self.shape(),
                other.shape()
            ));
        }
        let Some(batch) = broadcast_shapes([outer_a, outer_b]) else {
            return fail(format!(
                "leading dimensions of {:?} and {:?} do not broadcast",
                self.shape(),
                other.shape()
            ));
        };
        let with = |tail: [usize; 2]| batch.iter().copied().chain(tail).collect::<Vec<usize>>();
        let (a, b) = (self.broadcast_to(&with([*m, *k])), other.broadcast_to(&with([*k, *n])));
        Array::lazy(
            Primitive::Matmul,
            &[&a, &b],
            &with([*m, *n]),
            promote(self.dtype(), other.dtype()),
        )
    }
}
