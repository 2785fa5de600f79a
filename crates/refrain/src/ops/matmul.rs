//! Matrix products.

use std::hash::Hasher;

use refrain_kernels::matmul;
use refrain_kernels::matmul::WeightRows;

use super::Caller;
use super::elementwise::{broadcast_shapes, promote};
use crate::execute::dense;
use crate::operation::{
    ArraySpec, HostInputs, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values, exactly,
};
use crate::{Array, Dimensions, Layout};

/// (a `[.., M, K]`, b `[.., K, N]`) → `[.., M, N]`.
#[derive(Debug)]
pub(crate) struct Matmul;

impl Operation for Matmul {
    fn name(&self) -> &'static str {
        "matmul"
    }

    fn key(&self, _state: &mut dyn Hasher) {}

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let [a, b] = exactly(inputs)?;
        let ([outer_a @ .., m, k_a], [outer_b @ .., k_b, n]) = (&a.shape[..], &b.shape[..]) else {
            return Err(format!("{a} times {b}: matrices are needed"));
        };
        if outer_a != outer_b || k_a != k_b || !a.dtype.is_float() || !b.dtype.is_float() {
            return Err(format!("{a} times {b}: they do not fit"));
        }
        Ok(vec![ArraySpec {
            shape: [outer_a, &[*m, *n]].concat(),
            dtype: promote(a.dtype, b.dtype),
        }])
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let [a, b, out] = operands else {
            unreachable!("two inputs and a result")
        };
        Ok(matmul::call(traits, a, b, out)?.into())
    }

    fn reference(&self, step: &HostStep<'_>) {
        step.result(|x| Values::F32(product(x)));
    }

    fn multiplications(&self, operands: &[OperandSpec]) -> u64 {
        multiplications(operands)
    }
}

/// Of each element of the result, the last operand, one for each column of the first.
pub(super) fn multiplications(operands: &[OperandSpec]) -> u64 {
    let columns = operands[0].layout.shape.last().copied().unwrap_or(1) as u64;
    let out = operands.last().map_or(0, |out| out.layout.count() as u64);
    out.saturating_mul(columns)
}

/// A product of matrices; a right-hand side that is a transposed weight is read row by row.
fn product(x: &HostInputs<'_>) -> Vec<f32> {
    let ([outer @ .., m, k], b) = (x.shape(0), x.layout(1)) else {
        unreachable!("matrices")
    };
    let (rank, batch) = (b.rank(), outer.iter().product::<usize>());
    let n = b.shape[rank - 1];
    if *k == 0 || b.strides[rank - 2..] != [1, *k] {
        return matmul::reference(&x.f32(0), &x.f32(1), batch, *m, *k, n);
    }
    // Where each of the matrices starts; one that repeats is read once for all.
    let mut starts = Vec::with_capacity(batch);
    let strides = Dimensions::from_slice(&b.strides[..rank - 2]);
    Layout {
        shape: outer.into(),
        strides,
        offset: b.offset,
    }
    .for_each(|start| starts.push(start));
    starts.dedup();
    let (rows, mut result) = (x.f32(0), vec![0.0; batch * m * n]);
    let (left, right) = (rows.len() / starts.len(), result.len() / starts.len());
    for ((start, rows), result) in starts.iter().zip(rows.chunks(left)).zip(result.chunks_mut(right)) {
        let weight = dense(x.dtype(1), [n, *k], &x.bytes(1)[start * x.dtype(1).size()..]);
        weight.multiply(rows, 0..n, result);
    }
    result
}

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
        let product = operation.apply(Matmul, &[&inputs[0], &inputs[1]]);
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
