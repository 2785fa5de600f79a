//! The operations of `mlx.core.fast`.
//!
//! Half-precision floats are rounded where MLX's CPU rounds them: after a norm and before its weight, the cosines and
//! sines of rotations, scores and weights of attention.

mod attention;
mod rope;

use std::hash::Hasher;

use refrain::{Array, Composite};

pub use attention::{Mask, scaled_dot_product_attention};
pub use rope::{Offset, rope};

use crate::ops::wrapped;
use crate::shape::{signed, tuple};
use crate::{DType, Error, Result, Value, ops, promote};

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

/// (x, weight) → x / rms(x), rounded to x's dtype, times the weight.
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
        let normed = refrain::fast::rms_norm(&inputs[0], None, self.eps);
        normed.astype(self.dtype) * inputs[1].astype(self.dtype)
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

/// (x − mean) / √(variance + eps) · weight + bias over the last axis, computed in f32; the result has x's dtype.
///
/// # Errors
/// As [`rms_norm`].
pub fn layer_norm(x: &Value, weight: Option<&Value>, bias: Option<&Value>, eps: f32) -> Result<Value> {
    check_norm("layer_norm", x, &[weight, bias])?;
    let wide = x.array().astype(F32);
    let keep = || refrain::Axes::keepdims(&[-1]);
    let centred = &wide - wide.mean(keep());
    let variance = (&centred * &centred).mean(keep());
    let mut normed = Value::of(centred * (variance + eps).rsqrt())?.cast(x.dtype())?;
    if let Some(weight) = weight {
        normed = ops::multiply(&normed.into(), &weight.into())?;
    }
    if let Some(bias) = bias {
        normed = ops::add(&normed.into(), &bias.into())?;
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

/// The gated delta rule over T steps: for each step, S ← γ S + β (v − γ S k) kᵀ and y = S q. q and k are
/// `[B, T, HK, DK]`, v is `[B, T, H, DV]`, γ `[B, T, H]` or `[B, T, H, DK]`, β `[B, T, H]`, the state `[B, H, DV, DK]` in
/// f32 (zeros without one). Where the mask `[B, T]` is false, a step leaves the state as it is. Returns y
/// `[B, T, H, DV]` in q's dtype and the last state.
///
/// # Errors
/// Fails if shapes do not fit.
pub fn gated_delta_update(
    [q, k, v]: [&Value; 3],
    gamma: &Value,
    beta: &Value,
    state: Option<&Value>,
    mask: Option<&Value>,
) -> Result<(Value, Value)> {
    const OP: &str = "gated_delta_update";
    let (&[b, t, hk, dk], &[.., h, dv]) = (q.shape(), v.shape()) else {
        return Err(Error::value(format!("[{OP}] q, k and v must have four dimensions.")));
    };
    if k.shape() != q.shape() || v.ndim() != 4 || hk == 0 || h % hk != 0 {
        return Err(Error::value(format!("[{OP}] Shapes of q, k and v do not fit.")));
    }
    let heads = |x: &Value| -> Result<Value> { ops::repeat(&x.cast(DType::F32)?, (h / hk) as i64, Some(2)) };
    let (queries, keys, values) = (heads(q)?, heads(k)?, v.cast(DType::F32)?);
    let at = |x: &Value, step: usize, shape: &[usize]| -> Result<Array> {
        let one = x.array().astype(F32).slice(1, step, step + 1);
        Ok(Value::of(one.reshape(&signed(shape)))?.array().clone())
    };
    let mut current = match state {
        Some(state) => state.array().astype(F32),
        None => Array::zeros(q.array().device(), F32, &[b, h, dv, dk]),
    };
    let mut outputs = Vec::with_capacity(t);
    for step in 0..t {
        let row = |x: &Value| at(x, step, &[b, h, 1, dk]);
        let (query, key) = (row(&queries)?, row(&keys)?);
        let value = at(&values, step, &[b, h, dv, 1])?;
        let decay = if gamma.ndim() == 4 {
            row(gamma)?
        } else {
            at(gamma, step, &[b, h, 1, 1])?
        };
        let rate = at(beta, step, &[b, h, 1, 1])?;
        let kept = &current * &decay;
        let recalled = (&kept * &key).sum(refrain::Axes::keepdims(&[-1]));
        let next = &kept + &((value - recalled) * rate) * &key;
        let next = match mask {
            Some(mask) => at(mask, step, &[b, 1, 1, 1])?.ne(0.0).select(&next, &current),
            None => next,
        };
        outputs.push((&next * &query).sum(&[-1]));
        current = next;
    }
    let steps: Vec<&Array> = outputs.iter().collect();
    let y = if steps.is_empty() {
        Array::zeros(q.array().device(), F32, &[b, 0, h, dv])
    } else {
        refrain::stack(&steps, 1)
    };
    Ok((Value::of(y)?.cast(q.dtype())?, Value::of(current)?))
}
