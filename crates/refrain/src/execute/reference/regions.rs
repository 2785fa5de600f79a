//! What one dispatch computes on a device, composed of the references of its pieces.

use std::borrow::Cow;

use refrain_kernels::attention::DecodeParams;
use refrain_kernels::cpu::FastRows;
use refrain_kernels::matmul::WeightRows;
use refrain_kernels::projection::{self, ExpertInputs, ExpertProjection, Projection, Routed, WeightStorage};
use refrain_kernels::rms_norm::Norm;
use refrain_kernels::{Values, rms_norm, rope, slots, top_k};

use super::{HostPlanes, StepInputs, attend, dense, store, write_rows};
use crate::DType;
use crate::execute::BlockMemory;
use crate::plan::Step;

/// A matrix as its operands hold it.
enum HostMatrix<'a> {
    Dense(DType, [usize; 2], Cow<'a, [u8]>),
    Quantised(HostPlanes<'a>),
}

impl HostMatrix<'_> {
    fn rows(&self) -> FastRows<'_> {
        match self {
            HostMatrix::Dense(dtype, shape, bytes) => dense(*dtype, *shape, bytes),
            HostMatrix::Quantised(planes) => planes.rows(),
        }
    }
}

/// The matrices stored as `parts` say, whose operands are those from `next` on, which comes to stand behind them.
fn matrices<'a>(
    x: &'a StepInputs<'_>,
    parts: impl Iterator<Item = WeightStorage>,
    next: &mut usize,
) -> Vec<HostMatrix<'a>> {
    parts
        .map(|weights| {
            let number = *next;
            *next += weights.planes();
            match weights {
                WeightStorage::Dense => {
                    let shape = [0, 1].map(|d| x.shape(number)[d]);
                    HostMatrix::Dense(x.operands[number].dtype, shape, x.gathered(number))
                }
                WeightStorage::Quantised(format) => HostMatrix::Quantised(x.planes(format, number)),
            }
        })
        .collect()
}

pub(super) fn project(x: &StepInputs<'_>, projection: &Projection, tokens: usize) -> Values {
    let weighted = projection.norm.is_some_and(|norm| norm.weighted);
    let norm_weight = weighted.then(|| x.f32(1));
    let mut next = 1 + usize::from(weighted);
    let parts = projection.sections.iter().flat_map(|s| &s.parts);
    let matrices = matrices(x, parts.copied(), &mut next);
    let rows: Vec<FastRows<'_>> = matrices.iter().map(HostMatrix::rows).collect();
    let inputs = projection::ProjectionInputs {
        x: &x.f32(0),
        norm_weight: norm_weight.as_deref(),
        parts: rows.iter().map(|rows| rows as &dyn WeightRows).collect(),
        extras: (next..x.operands.len()).map(|n| x.load(n)).collect(),
        tokens,
    };
    projection::reference(projection, &inputs)
}

/// Products with experts of `count` rows each.
pub(super) fn experts(x: &StepInputs<'_>, projection: &ExpertProjection, count: usize) -> Values {
    let mut next = projection.first_plane();
    let weighted = projection.norm.is_some_and(|norm| norm.weighted);
    let norm_weight = weighted.then(|| x.f32(2));
    let scores = projection.chosen.map(|used| (used, x.load(1)));
    let experts = match &scores {
        Some((used, scores)) => top_k::reference(scores, x.shape(1)[1], *used),
        None => x.u32(1),
    };
    let routing = match &scores {
        Some((_, scores)) if projection.routed == Routed::Scored => Some(scores.f32().to_vec()),
        _ => projection.reads_weights().then(|| x.f32(next - 1)),
    };
    let matrices = matrices(x, projection.section.parts.iter().copied(), &mut next);
    let rows: Vec<FastRows<'_>> = matrices.iter().map(HostMatrix::rows).collect();
    let inputs = ExpertInputs {
        x: &x.f32(0),
        experts: &experts,
        used: projection.chosen.unwrap_or(x.shape(1)[1]),
        norm_weight: norm_weight.as_deref(),
        routing: routing.as_deref(),
        parts: rows.iter().map(|rows| rows as &dyn WeightRows).collect(),
        rows: count,
        extras: (next..x.operands.len()).map(|n| x.load(n)).collect(),
    };
    projection::expert_reference(projection, &inputs)
}

/// Norms and rotation of queries and keys, the writes of keys and values, and attention.
pub(super) fn decode_attention(step: &Step, params: &DecodeParams, memory: &BlockMemory) {
    let inputs = StepInputs::lock(&step.inputs, memory);
    let heads = inputs.shape(2)[1];
    let q = prepared(&inputs, 2, params.q_norm, params.optional()[1], params);
    let k = prepared(&inputs, 3, params.k_norm, params.optional()[2], params);
    let v = inputs.load(4);
    let page_size = params.attention.page_size as usize;
    let (positions, sequences, pages) = (inputs.i32(5), inputs.u32(6), inputs.u32(7));
    let places = slots::reference(&positions, &sequences, &pages, inputs.shape(7), page_size);
    drop(inputs);
    write_rows(&step.inputs[0], &Values::F32(k), &places, memory);
    write_rows(&step.inputs[1], &v, &places, memory);
    let inputs = StepInputs::lock(&step.inputs, memory);
    let mut mixed = attend(&inputs, &q, heads, [0, 1, 5, 6, 7], &params.attention);
    if let Some(number) = params.gate() {
        let gate = inputs.f32(number);
        mixed
            .iter_mut()
            .zip(gate)
            .for_each(|(x, gate)| *x /= 1.0 + (-gate).exp());
    }
    let mixed = Values::F32(mixed);
    drop(inputs);
    store(&step.outputs[0], memory, |bytes, operand| {
        mixed.store(operand.dtype, &operand.layout, bytes)
    });
}

/// Input `number` normalised, its norm's weight being input `norm_weight`, and rotated.
fn prepared(
    x: &StepInputs<'_>,
    number: usize,
    norm: Option<Norm>,
    norm_weight: Option<usize>,
    params: &DecodeParams,
) -> Vec<f32> {
    let head_dim = x.shape(number)[2];
    let mut values = x.f32(number);
    if let Some(norm) = norm {
        let norm_weight = norm_weight.map(|norm_weight| x.f32(norm_weight));
        values = rms_norm::reference(&values, norm_weight.as_deref(), norm.eps, head_dim);
    }
    match (params.rope, params.optional()[0]) {
        (Some(rotation), Some(frequencies)) => {
            rope::reference(&values, &x.i32(5), &x.f32(frequencies), head_dim, &rotation)
        }
        _ => values,
    }
}
