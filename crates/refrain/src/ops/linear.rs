//! Matrix products.

use super::Caller;
use super::elementwise::{broadcast_shapes, promote};
use crate::{Array, Primitive};

impl Array {
    /// `self [.., M, K]` · `other [.., K, N]` → `[.., M, N]`, leading dimensions broadcast. Vectors
    /// count as a row on the left and as a column on the right, and that dimension is dropped again.
    /// Floats only; accumulates in f32 and rounds to the dtype in which theirs meet. Invalid when
    /// extents differ or an operand is a scalar or of integers.
    #[track_caller]
    pub fn matmul(&self, other: &Array) -> Array {
        let operation = Caller::new("matmul");
        let (a, b) = (self.as_matrix(operation, 0), other.as_matrix(operation, 1));
        let what = |what: &str| {
            let (a, b) = ((self.dtype(), self.shape()), (other.dtype(), other.shape()));
            operation.invalid(
                &[self, other],
                format!("{}{:?} times {}{:?}: {what}", a.0, a.1, b.0, b.1),
            )
        };
        if a.rank() < 2 || b.rank() < 2 || !a.dtype().is_float() || !b.dtype().is_float() {
            return what("floating-point matrices or vectors are needed");
        }
        let ([outer_a @ .., m, k], [outer_b @ .., k_b, n]) = (a.shape(), b.shape()) else {
            unreachable!("ranks were checked");
        };
        if k != k_b {
            return what(&format!("{k} columns meet {k_b} rows"));
        }
        let Some(batch) = broadcast_shapes([outer_a, outer_b]) else {
            return what("leading dimensions do not broadcast");
        };
        let with = |tail: [usize; 2]| batch.iter().copied().chain(tail).collect::<Vec<usize>>();
        let inputs = [(&a, [*m, *k]), (&b, [*k, *n])].map(|(x, tail)| operation.broadcast(x, &with(tail)));
        let dtype = promote(a.dtype(), b.dtype());
        let product = operation.node(Primitive::Matmul, &[&inputs[0], &inputs[1]], &with([*m, *n]), dtype);
        let kept = batch
            .iter()
            .chain((self.rank() > 1).then_some(m))
            .chain((other.rank() > 1).then_some(n));
        let shape: Vec<usize> = kept.copied().collect();
        operation.reshape(&product, &shape)
    }

    /// A vector with a dimension `axis` of extent 1; others as they are.
    fn as_matrix(&self, operation: Caller, axis: isize) -> Array {
        if self.rank() == 1 {
            operation.expand_dims(self, axis)
        } else {
            self.clone()
        }
    }
}
