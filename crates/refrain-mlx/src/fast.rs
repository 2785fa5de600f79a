//! The operations of `mlx.core.fast`.
//!
//! Half-precision floats are rounded where MLX's CPU rounds them: after a norm and before its weight if the result has
//! half precision, the cosines and sines of rotations, scores and weights of attention.

mod attention;
mod gated_delta;
mod rope;

use std::hash::Hasher;

use refrain::{Array, Composite};

pub use attention::{Mask, scaled_dot_product_attention};
pub use gated_delta::gated_delta_update;
pub use rope::{Offset, rope};

use crate::ops::wrapped;
use crate::shape::{signed, tuple};
use crate::{Error, Result, Value, ops, promote};

const F32: refrain::DType = refrain::DType::F32;

/// x / √(mean(x²) + eps) · weight over the last axis, computed in f32; the result has the promoted dtype of both.
///
/// # Errors
/// Fails if x has no axes or is no float, or if the weight does not fit.
pub fn rms_norm(x: &Value, weight: Option<&Value>, eps: f32) -> Result<Value> {
    check_norm("rms_norm", x, &[weight])?;
    match weight {
        Some(weight) if promote(x.dtype(), weight.dtype()) != x.dtype() => {
            let dtype = promote(x.dtype(), weight.dtype()).stored()?;
            let inputs = [x.array(), weight.array()];
            Value::of(Array::composed(RmsNorm { eps, dtype }, &inputs, None, x.shape(), dtype))
        }
        _ => Value::of(refrain::fast::rms_norm(x.array(), weight.map(Value::array), eps)),
    }
}

/// (x, weight) → x / rms(x) · weight in a dtype that is wider than x's.
#[derive(Debug)]
struct RmsNorm {
    eps: f32,
    dtype: refrain::DType,
}

impl Composite for RmsNorm {
    fn name(&self) -> &'static str {
        "rms_norm"
    }

    fn key(&self, state: &mut dyn Hasher) {
        state.write_u32(self.eps.to_bits());
    }

    fn compose(&self, inputs: &[Array], _integer: Option<&Array>) -> Array {
        refrain::fast::rms_norm(&inputs[0].astype(self.dtype), Some(&inputs[1]), self.eps)
    }
}

fn check_norm(op: &str, x: &Value, planes: &[Option<&Value>]) -> Result<()> {
    let Some(&n) = x.shape().last() else {
        return Err(Error::value(format!(
            "[{op}] Input must have at least 1 dimension but got input with 0 dimensions."
        )));
    };
    if !x.dtype().is_floating() {
        return Err(Error::value(format!("[{op}] Received unsupported type {}.", x.dtype())));
    }
    for plane in planes.iter().copied().flatten() {
        if plane.ndim() != 1 {
            let message = format!(
                "[{op}] (*weight) must have 1 dimension but has {} dimensions.",
                plane.ndim()
            );
            return Err(Error::value(message));
        }
        if plane.size() != n {
            let message = format!(
                "[{op}] (*weight) must have the same size as the last dimension of x but has {} elements.",
                plane.size()
            );
            return Err(Error::value(message));
        }
    }
    Ok(())
}

/// (x − mean) / √(variance + eps) · weight + bias over the last axis, computed in f32; the result has the promoted dtype
/// of all, or x's without a weight.
///
/// # Errors
/// As [`rms_norm`].
pub fn layer_norm(x: &Value, weight: Option<&Value>, bias: Option<&Value>, eps: f32) -> Result<Value> {
    check_norm("layer_norm", x, &[weight, bias])?;
    let dtype = weight.map_or(x.dtype(), |weight| {
        let dtype = promote(x.dtype(), weight.dtype());
        bias.map_or(dtype, |bias| promote(dtype, bias.dtype()))
    });
    let wide = x.array().astype(F32);
    let keep = || refrain::Axes::keepdims(&[-1]);
    let centred = &wide - wide.mean(keep());
    let variance = (&centred * &centred).mean(keep());
    let mut normed = Value::of(centred * (variance + eps).rsqrt())?.cast(dtype)?;
    if let Some(weight) = weight {
        normed = ops::multiply(&normed.into(), &weight.into())?;
    }
    if let Some(bias) = bias {
        normed = ops::add(&normed.into(), &bias.cast(dtype)?.into())?;
    }
    Ok(normed)
}

/// Cross entropy of logits `[.., n]` with the indices of the right classes `[..]`: logsumexp − the class's logit.
///
/// # Errors
/// Fails if shapes do not fit, or if targets are no integers.
pub fn cross_entropy(logits: &Value, targets: &Value) -> Result<Value> {
    let rank = logits.ndim();
    if rank == 0 || logits.shape()[..rank - 1] != *targets.shape() {
        let message = format!(
            "[cross_entropy] Targets of shape {} do not fit logits of shape {}.",
            tuple(targets.shape()),
            tuple(logits.shape())
        );
        return Err(Error::value(message));
    }
    let n = logits.shape()[rank - 1];
    let index = wrapped("cross_entropy", targets, n)?.expand_dims(-1);
    let wide = logits.array().astype(F32);
    let loss = wide.logsumexp(&[-1]) - wide.take_along(&index).reshape(&signed(targets.shape()));
    Value::of(loss)
}
