//! Fused products with the experts of tokens: norm, products, and elementwise epilogue or weighted sum.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use refrain_kernels::cpu::FastRows;
use refrain_kernels::matmul::WeightRows;
use refrain_kernels::projection::{self, ExpertInputs, ExpertProjection, Routed};

use refrain::DType;
use refrain::operation::{ArraySpec, HostMatrix, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported};
use refrain::rewrite::{Norm, Rewrite, RewriteStage};

use super::router;

/// (x `[T, K]` or `[T·U, K]`, experts `[T, U]`, {norm weight `[K]`}, {weights `[T, U]` or scores `[T, E]`},
/// the planes of each matrix `[E·N, K]` …, the epilogue's further inputs …) → `[T·U, N]` or `[T, N]`, fused by
/// [`super::rewrite`].
#[derive(Clone, Hash, Debug)]
pub(super) struct FusedExperts {
    /// The kernel's parameters.
    pub projection: ExpertProjection,
    /// Shape of the result.
    pub shape: [usize; 2],
    /// Dtype of the result.
    pub dtype: DType,
}

impl Operation for FusedExperts {
    fn name(&self) -> &'static str {
        "expert_projection"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn results(&self, _inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        Ok(vec![ArraySpec::new(&self.shape, self.dtype)])
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let operands: Vec<&OperandSpec> = operands.iter().collect();
        Ok(self.projection.calls(traits, &operands)?.into())
    }

    fn check(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<(), Unsupported> {
        self.projection.check(traits, &operands.iter().collect::<Vec<_>>())
    }

    fn rewrites(&self) -> &'static [Rewrite] {
        const {
            &[Rewrite {
                stage: RewriteStage::AfterProducts,
                run: router::fuse,
            }]
        }
    }

    fn normed(&self, norm: Norm) -> Option<(Arc<dyn Operation>, usize)> {
        let mut normed = self.clone();
        // The norm's weight follows x and the experts.
        normed
            .projection
            .norm
            .replace(norm)
            .is_none()
            .then(|| (Arc::new(normed) as Arc<dyn Operation>, 2))
    }

    fn reference(&self, step: &HostStep<'_>) {
        let (x, projection) = (step.read(), &self.projection);
        let mut next = projection.first_plane();
        let weighted = projection.norm.is_some_and(|norm| norm.weighted);
        let weight = weighted.then(|| x.f32(2));
        let routing = (projection.routed != Routed::PerExpert).then(|| x.f32(next - 1));
        let matrices = x.matrices(projection.section.parts.iter().copied(), &mut next);
        let rows: Vec<FastRows<'_>> = matrices.iter().map(HostMatrix::rows).collect();
        let inputs = ExpertInputs {
            x: &x.f32(0),
            experts: &x.u32(1),
            used: x.shape(1)[1],
            norm_weight: weight.as_deref(),
            routing: routing.as_deref(),
            parts: rows.iter().map(|rows| rows as &dyn WeightRows).collect(),
            rows: self.shape[1],
            extras: (next..x.count()).map(|n| x.values(n)).collect(),
        };
        let product = projection::expert_reference(projection, &inputs);
        drop(inputs);
        drop(rows);
        drop(matrices);
        drop(x);
        step.store(0, &product);
    }

    fn detail(&self) -> String {
        format!(" {}", self.projection)
    }

    fn multiplications(&self, operands: &[OperandSpec]) -> u64 {
        let pairs = operands[1].layout.count();
        let columns = operands[0].layout.shape[1];
        // Multiplications per output value: all of a token's experts, if they are summed, else one.
        let each = columns * pairs / self.shape[0].max(1);
        let parts = self.projection.section.parts.len();
        let out = self.shape.iter().product::<usize>() * parts;
        (out as u64).saturating_mul(each as u64)
    }

    fn rows_read(&self, operands: &[OperandSpec]) -> Option<[usize; 2]> {
        let pairs = operands[1].layout.count();
        let all = operands[self.projection.first_plane()].layout.shape[0];
        Some([pairs * self.shape[1], all])
    }
}
