//! What one dispatch computes on a device, composed of the references of its pieces.

use refrain_kernels::Values;
use refrain_kernels::cpu::FastRows;
use refrain_kernels::matmul::WeightRows;
use refrain_kernels::projection::{self, Projection};

use crate::execute::host::{HostInputs, HostMatrix};

pub(super) fn project(x: &HostInputs<'_>, projection: &Projection, tokens: usize) -> Values {
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
        tokens,
    };
    projection::reference(projection, &inputs)
}
