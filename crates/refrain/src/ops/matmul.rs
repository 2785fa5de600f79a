//! Matrix products.

use std::hash::Hasher;

use refrain_kernels::matmul;
use refrain_kernels::matmul::WeightRows;

use super::CallSite;
use super::elementwise::{broadcast_shapes, promote};
use crate::execute::dense;
use crate::operation::prelude::{
    ArraySpec, HostInputs, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values, exact_inputs, spec,
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
        let [a, b] = exact_inputs(inputs)?;
        let ([outer_a @ .., m, k_a], [outer_b @ .., k_b, n]) = (&a.shape[..], &b.shape[..]) else {
            return Err(format!("{a} times {b}: operands must be matrices"));
        };
        if outer_a != outer_b || k_a != k_b || !a.dtype.is_float() || !b.dtype.is_float() {
            return Err(format!("{a} times {b}: shapes or dtypes do not fit"));
        }
        Ok(vec![ArraySpec::new(
            &[outer_a, &[*m, *n]].concat(),
            promote(a.dtype, b.dtype),
        )])
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let [a, b, out] = spec::operands(operands);
        Ok(matmul::call(traits, a, b, out)?.into())
    }

    fn reference(&self, step: &HostStep<'_>) {
        step.result(|x| Values::F32(product(x)));
    }

    fn multiplications(&self, operands: &[OperandSpec]) -> u64 {
        multiplications(operands)
    }
}

/// Number of multiplications: one per element of the result (the last operand) and column of the first operand.
pub(super) fn multiplications(operands: &[OperandSpec]) -> u64 {
    let columns = operands[0].layout.shape.last().copied().unwrap_or(1) as u64;
    let out = operands.last().map_or(0, |out| out.layout.count() as u64);
    out.saturating_mul(columns)
}

/// Computes the product. If the right-hand side is a transposed weight, it is read row by row.
fn product(x: &HostInputs<'_>) -> Vec<f32> {
    let ([outer @ .., m, k], b) = (x.shape(0), x.layout(1)) else {
        unreachable!("operands are matrices")
    };
    let (rank, batch) = (b.rank(), outer.iter().product::<usize>());
    let n = b.shape[rank - 1];
    if *k == 0 || b.strides[rank - 2..] != [1, *k] {
        return matmul::reference(&x.f32(0), &x.f32(1), batch, *m, *k, n);
    }
    // The offset of each matrix; a matrix that is repeated is read once.
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
    /// The matrix product `self [.., M, K]` · `other [.., K, N]` → `[.., M, N]`; leading dimensions broadcast. A vector
    /// is a row on the left and a column on the right, and that dimension is dropped from the result. Floats only;
    /// accumulates in f32 and rounds to the promoted dtype. Invalid if extents differ, or if an operand is a scalar or
    /// has an integer dtype.
    #[track_caller]
    pub fn matmul(&self, other: &Array) -> Array {
        let call_site = CallSite::new("matmul");
        let (a, b) = (self.as_matrix(call_site, 0), other.as_matrix(call_site, 1));
        let what = |what: &str| {
            let (a, b) = ((self.dtype(), self.shape()), (other.dtype(), other.shape()));
            call_site.invalid(
                &[self, other],
                format!("{}{:?} times {}{:?}: {what}", a.0, a.1, b.0, b.1),
            )
        };
        if a.rank() < 2 || b.rank() < 2 || !a.dtype().is_float() || !b.dtype().is_float() {
            return what("operands must be floating-point matrices or vectors");
        }
        let ([outer_a @ .., m, k], [outer_b @ .., k_b, n]) = (a.shape(), b.shape()) else {
            unreachable!("ranks were checked");
        };
        if k != k_b {
            return what(&format!("inner dimensions differ: {k} and {k_b}"));
        }
        let Some(batch) = broadcast_shapes([outer_a, outer_b]) else {
            return what("leading dimensions do not broadcast");
        };
        let with = |tail: [usize; 2]| batch.iter().copied().chain(tail).collect::<Vec<usize>>();
        let inputs = [(&a, [*m, *k]), (&b, [*k, *n])].map(|(x, tail)| call_site.broadcast(x, &with(tail)));
        let product = call_site.apply(Matmul, &[&inputs[0], &inputs[1]]);
        let kept = batch
            .iter()
            .chain((self.rank() > 1).then_some(m))
            .chain((other.rank() > 1).then_some(n));
        let shape: Vec<usize> = kept.copied().collect();
        call_site.reshape(&product, &shape)
    }

    /// Gives a vector a dimension `axis` of extent 1; other arrays are returned unchanged.
    fn as_matrix(&self, call_site: CallSite, axis: isize) -> Array {
        if self.rank() == 1 {
            call_site.expand_dims(self, axis)
        } else {
            self.clone()
        }
    }
}
