//! Fused products of few tokens: a norm before them and an epilogue after them.

use std::hash::{Hash, Hasher};

use refrain_kernels::cpu::FastRows;
use refrain_kernels::matmul::WeightRows;
use refrain_kernels::projection::{self, Projection};

use crate::DType;
use crate::operation::prelude::{
    ArraySpec, HostInputs, HostMatrix, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values,
};

/// (x `[T, K]`, {norm weight `[K]`}, the planes of each matrix `[N, K]` …, the epilogues' further inputs `[T, N]` …) →
/// `[T, Σ N]`. Made by [`crate::passes::regions`].
#[derive(Clone, Hash, Debug)]
pub struct JoinedProducts {
    /// What is computed.
    pub projection: Projection,
    /// Extents of the result.
    pub shape: [usize; 2],
    /// Storage type of the result.
    pub dtype: DType,
}

impl JoinedProducts {
    /// Computes the result in plain Rust.
    pub fn product(&self, x: &HostInputs<'_>) -> Values {
        let projection = &self.projection;
        let weighted = projection.norm.is_some_and(|norm| norm.weighted);
        let norm_weight = weighted.then(|| x.f32(1));
        let mut next = 1 + usize::from(weighted);
        let parts = projection.sections.iter().flat_map(|s| &s.parts);
        let matrices = x.matrices(parts.copied(), &mut next);
        let rows: Vec<FastRows<'_>> = matrices.iter().map(HostMatrix::rows).collect();
        let inputs = projection::ProjectionInputs {
            x: &x.f32(0),
            norm_weight: norm_weight.as_deref(),
            parts: rows.iter().map(|rows| rows as &dyn WeightRows).collect(),
            extras: (next..x.count()).map(|n| x.values(n)).collect(),
            tokens: self.shape[0],
        };
        projection::reference(projection, &inputs)
    }
}

impl Operation for JoinedProducts {
    fn name(&self) -> &'static str {
        "projection"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn results(&self, _inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        Ok(vec![ArraySpec::new(&self.shape, self.dtype)])
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let operands: Vec<&OperandSpec> = operands.iter().collect();
        Ok(projection::calls(traits, &self.projection, &operands)?.into())
    }

    fn reference(&self, step: &HostStep<'_>) {
        step.result(|x| self.product(x));
    }

    fn detail(&self) -> String {
        format!(" {}", self.projection)
    }

    fn multiplications(&self, operands: &[OperandSpec]) -> u64 {
        // All rows of all matrices; the matrices of a section contribute to the same result.
        let mut next = 1 + usize::from(self.projection.norm.is_some_and(|norm| norm.weighted));
        let mut rows = 0;
        for part in self.projection.sections.iter().flat_map(|s| &s.parts) {
            rows += operands[next].layout.shape[0];
            next += part.planes();
        }
        let x = operands[0].layout.count() as u64;
        x.saturating_mul(rows as u64)
    }
}
