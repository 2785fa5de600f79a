//! Steps that carry a state from token to token, by their references.

use refrain_kernels::delta_net::{self, DeltaNetParams};
use refrain_kernels::{Values, causal_conv, gated_delta};

use super::BlockMemory;
use super::reference::{StepInputs, store};
use crate::Primitive;
use crate::plan::Step;

/// Computes a step's result and the next versions of its states.
pub(super) fn run(step: &Step, memory: &BlockMemory) {
    let inputs = StepInputs::lock(&step.inputs, memory);
    let numbers = step.primitive.updates();
    let mut states: Vec<Vec<f32>> = numbers.iter().map(|&number| inputs.f32(number)).collect();
    let result = match (&step.primitive, &mut states[..]) {
        (Primitive::CausalConv, [window]) => convolve(&inputs, window),
        (Primitive::GatedDelta, [state]) => remember(&inputs, state),
        (Primitive::DeltaNet(params), [window, state]) => delta_net(&inputs, params, window, state),
        (other, _) => unreachable!("{} is no recurrence", other.name()),
    };
    // The guards are released before what they guard is written.
    drop(inputs);
    let written = numbers.iter().map(|&number| &step.inputs[number]);
    for (values, operand) in [result]
        .into_iter()
        .chain(states)
        .zip(step.outputs.iter().chain(written))
    {
        store(operand, memory, |bytes, operand| {
            Values::F32(values).store(operand.dtype, &operand.layout, bytes)
        });
    }
}

fn convolve(x: &StepInputs<'_>, state: &mut [f32]) -> Vec<f32> {
    let inputs = causal_conv::CausalConvInputs {
        x: &x.f32(0),
        weights: &x.f32(1),
        positions: &x.i32(2),
        sequences: &x.u32(3),
        channels: x.shape(0)[1],
    };
    causal_conv::reference(&inputs, state)
}

fn remember(x: &StepInputs<'_>, state: &mut [f32]) -> Vec<f32> {
    let (keys, values) = (x.shape(0), x.shape(2));
    let inputs = gated_delta::GatedDeltaInputs {
        q: &x.f32(0),
        k: &x.f32(1),
        v: &x.f32(2),
        decay: &x.f32(3),
        beta: &x.f32(4),
        positions: &x.i32(5),
        sequences: &x.u32(6),
        sizes: [keys[1], keys[2], values[1], values[2]],
    };
    gated_delta::reference(&inputs, state)
}

fn delta_net(x: &StepInputs<'_>, params: &DeltaNetParams, window: &mut [f32], state: &mut [f32]) -> Vec<f32> {
    let (channels, memory) = (x.shape(0)[1], x.shape(8));
    let [heads, value_dim, key_dim] = [memory[1], memory[2], memory[3]];
    let norm_weight = params.norm.weighted.then(|| x.f32(9));
    let inputs = delta_net::DeltaNetInputs {
        x: &x.f32(0),
        weights: &x.f32(1),
        decay: &x.f32(2),
        beta: &x.f32(3),
        z: &x.f32(4),
        positions: &x.i32(5),
        sequences: &x.u32(6),
        norm_weight: norm_weight.as_deref(),
        sizes: [
            (channels - heads * value_dim) / (2 * key_dim),
            key_dim,
            heads,
            value_dim,
        ],
    };
    delta_net::reference(&inputs, params, window, state)
}
