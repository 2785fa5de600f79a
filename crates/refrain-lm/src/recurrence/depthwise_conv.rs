//! Depthwise convolution of whole sequences, without a state.

use std::hash::Hasher;

use refrain::operation::{
    self, ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values, exact_inputs, renumber,
};
use refrain::{Array, DType, Layout};
use refrain_kernels::elementwise::{self, BinaryOp, Expression, ExpressionStep};

/// Maximum number of taps of [`depthwise_conv()`]: each takes two inputs of an elementwise kernel.
pub const MAX_DEPTHWISE_TAPS: usize = elementwise::MAX_INPUTS / 2;

/// (x `[N, L, C]`, weights `[C, W]`) → `[N, L − W + 1, C]`.
#[derive(Debug)]
pub(super) struct DepthwiseConv;

impl Operation for DepthwiseConv {
    fn name(&self) -> &'static str {
        "depthwise_conv"
    }

    fn key(&self, _state: &mut dyn Hasher) {}

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let [x, weights] = exact_inputs(inputs)?;
        let are_floats = [x, weights].iter().all(|a| a.dtype.is_float());
        let (&[count, length, channels], &[rows, taps]) = (&x.shape[..], &weights.shape[..]) else {
            return Err(format!("{x} and {weights} must have three and two dimensions"));
        };
        if !are_floats || rows != channels || !(1..=MAX_DEPTHWISE_TAPS).contains(&taps) || taps > length {
            return Err(format!("{x} cannot be convolved with {weights}"));
        }
        Ok(vec![ArraySpec::new(&[count, length - taps + 1, channels], DType::F32)])
    }

    /// One elementwise kernel, which reads x at the position of each tap.
    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let [x, weights, out] = operation::operands(operands);
        let taps = weights.layout.shape[1];
        let (mut inputs, mut numbers) = (Vec::with_capacity(2 * taps), Vec::with_capacity(2 * taps + 1));
        for tap in 0..taps {
            inputs.extend([at_tap(x, out, tap), of_tap(weights, out, tap)]);
            numbers.extend([0, 1]);
        }
        numbers.push(2);
        let inputs: Vec<&OperandSpec> = inputs.iter().chain([out]).collect();
        let mut call = elementwise::call(traits, &sum_of_products(taps, [x.dtype, weights.dtype]), &inputs)?;
        renumber(&mut call, &numbers);
        Ok(Kernels::one(call))
    }

    fn reference(&self, step: &HostStep<'_>) {
        step.result(|x| {
            let (&[_, length, channels], taps) = (x.shape(0), x.columns(1)) else {
                unreachable!("checked by `results`")
            };
            let (values, weights) = (x.f32(0), x.f32(1));
            let mut out = Vec::new();
            for sequence in values.chunks((length * channels).max(1)) {
                for start in 0..=length - taps {
                    let term = |channel: usize, tap: usize| {
                        sequence[(start + tap) * channels + channel] * weights[channel * taps + tap]
                    };
                    out.extend((0..channels).map(|channel| (0..taps).map(|tap| term(channel, tap)).sum::<f32>()));
                }
            }
            Values::F32(out)
        });
    }

    fn multiplications(&self, operands: &[OperandSpec]) -> u64 {
        (operands[2].layout.count() as u64).saturating_mul(operands[1].layout.shape[1] as u64)
    }
}

/// x at the position of a tap, in the result's shape.
fn at_tap(x: &OperandSpec, out: &OperandSpec, tap: usize) -> OperandSpec {
    let [start, stop] = [tap, tap + out.layout.shape[1]];
    let shape = &x.layout.shape;
    let layout = x.layout.slice(&[0, start, 0], &[shape[0], stop, shape[2]], &[1; 3]);
    OperandSpec { dtype: x.dtype, layout }
}

/// The weights of a tap, in the result's shape.
fn of_tap(weights: &OperandSpec, out: &OperandSpec, tap: usize) -> OperandSpec {
    let strides = &weights.layout.strides;
    let layout = Layout {
        shape: out.layout.shape.clone(),
        strides: vec![0, 0, strides[0]].into(),
        offset: weights.layout.offset + tap * strides[1],
    };
    OperandSpec {
        dtype: weights.dtype,
        layout,
    }
}

/// x₀ · w₀ + x₁ · w₁ + … in f32, of the inputs x₀, w₀, x₁, w₁, …
fn sum_of_products(taps: usize, dtypes: [DType; 2]) -> Expression {
    let mut steps = Vec::new();
    let mut push = |step| {
        steps.push(step);
        steps.len() - 1
    };
    let mut sum = None;
    for tap in 0..taps {
        let [x, w] = [0, 1].map(|part| {
            let input = push(ExpressionStep::Input(2 * tap + part));
            if dtypes[part] == DType::F32 {
                input
            } else {
                push(ExpressionStep::Cast(input, DType::F32))
            }
        });
        let product = push(ExpressionStep::Binary(BinaryOp::Mul, x, w));
        sum = Some(sum.map_or(product, |sum| push(ExpressionStep::Binary(BinaryOp::Add, sum, product))));
    }
    Expression {
        inputs: dtypes.repeat(taps),
        steps,
    }
}

/// Depthwise convolution along the second axis, without padding: `out[n, t, c] = Σ_j weights[c, j] · x[n, t + j, c]`.
///
/// x floats `[N, L, C]`, weights floats `[C, W]` of up to [`MAX_DEPTHWISE_TAPS`] taps → f32 `[N, L − W + 1, C]`.
/// Invalid if shapes do not match, or if there are more taps than elements.
#[track_caller]
pub fn depthwise_conv(x: &Array, weights: &Array) -> Array {
    let [out] = Array::apply(DepthwiseConv, &[x, weights]);
    out
}
