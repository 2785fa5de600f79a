//! Steps that carry a state from token to token, by their references.

use refrain_kernels::{Values, causal_conv, gated_delta};

use super::Memory;
use super::reference::{Inputs, store};
use crate::Primitive;
use crate::plan::Step;

/// Computes a step's result and the next version of its one state.
pub(super) fn run(step: &Step, memory: &Memory) {
    let inputs = Inputs::lock(&step.inputs, memory);
    let number = step.primitive.updates()[0];
    let mut state = inputs.f32(number);
    let result = match step.primitive {
        Primitive::CausalConv => convolve(&inputs, &mut state),
        _ => remember(&inputs, &mut state),
    };
    // The guards are released before what they guard is written.
    drop(inputs);
    for (values, operand) in [(result, &step.output), (state, &step.inputs[number])] {
        store(operand, memory, |bytes, operand| {
            Values::F32(values).store(operand.dtype, &operand.layout, bytes)
        });
    }
}

fn convolve(x: &Inputs<'_>, state: &mut [f32]) -> Vec<f32> {
    let inputs = causal_conv::Inputs {
        x: &x.f32(0),
        weights: &x.f32(1),
        positions: &x.i32(2),
        sequences: &x.u32(3),
        channels: x.shape(0)[1],
    };
    causal_conv::reference(&inputs, state)
}

fn remember(x: &Inputs<'_>, state: &mut [f32]) -> Vec<f32> {
    let (keys, values) = (x.shape(0), x.shape(2));
    let inputs = gated_delta::Inputs {
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
