//! The operations of `mlx.core.fast`.
//!
//! Half-precision floats are rounded where MLX's CPU rounds them: after a norm and before its weight, the cosines and
//! sines of rotations, scores and weights of attention.

mod attention;

use refrain::Array;

pub use attention::{Mask, scaled_dot_product_attention};

use crate::ops::wrapped;
use crate::shape::{signed, tuple};
use crate::{DType, Error, Result, Value, ops};

const F32: refrain::DType = refrain::DType::F32;

/// x / √(mean(x²) + eps) · weight over the last axis, computed in f32; the result has the promoted dtype of both.
///
/// # Errors
/// Fails if x has no axes or is no float, or if the weight does not fit.
pub fn rms_norm(x: &Value, weight: Option<&Value>, eps: f32) -> Result<Value> {
    check_norm("rms_norm", x, &[weight])?;
    match weight {
        Some(weight) if [x.dtype(), weight.dtype()] != [DType::F32; 2] => {
            let normed = Value::of(refrain::fast::rms_norm(x.array(), None, eps))?;
            ops::multiply(&normed.into(), &weight.into())
        }
        _ => Value::of(refrain::fast::rms_norm(x.array(), weight.map(Value::array), eps)),
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

/// The position of the first token in [`rope`].
#[derive(Clone, Debug)]
pub enum Offset {
    /// One number for all sequences.
    Int(i64),
    /// A value: one number, or one for each sequence of the batch.
    Value(Value),
}

/// Rotary position embeddings of the first `dims` features of x `[B, .., T, D]`. Frequencies are base^(−2i / dims), or
/// the reciprocals of `freqs`; positions are multiplied by `scale`. `traditional` rotates neighbours, else halves.
///
/// # Errors
/// Fails if x has fewer than three axes or is no float, if `dims` is odd or too large, unless one of `base` and `freqs`
/// is given, or if shapes do not fit.
pub fn rope(
    x: &Value,
    dims: i64,
    traditional: bool,
    base: Option<f32>,
    scale: f32,
    offset: &Offset,
    freqs: Option<&Value>,
) -> Result<Value> {
    let rank = x.ndim();
    if rank < 3 {
        let message = format!("[rope] Input must have at least 3 dimensions but got input with {rank} dimensions.");
        return Err(Error::value(message));
    }
    let width = x.shape()[rank - 1];
    let fits = usize::try_from(dims)
        .ok()
        .filter(|&dims| dims > 0 && dims % 2 == 0 && dims <= width);
    let Some(dims) = fits.filter(|_| x.dtype().is_floating()) else {
        let message = format!(
            "[rope] {dims} rotated features do not fit {} of shape {}.",
            x.dtype(),
            tuple(x.shape())
        );
        return Err(Error::value(message));
    };
    let (tokens, half) = (x.shape()[rank - 2], dims / 2);
    let angles = angles(x, [tokens, half], base, scale, offset, freqs)?;
    let (cos, sin) = (angles.cos().astype(x.stored()), angles.sin().astype(x.stored()));
    let rotated = x.array().slice(-1, 0, dims);
    let turned = if traditional {
        let mut pairs: Vec<isize> = signed(&x.shape()[..rank - 1]);
        pairs.extend([half as isize, 2]);
        let pairs = rotated.reshape(&pairs);
        let part = |n: usize| {
            let shape: Vec<usize> = [&x.shape()[..rank - 1], &[half]].concat();
            pairs.slice(-1, n, n + 1).reshape(&signed(&shape))
        };
        let [even, odd] = [part(0), part(1)];
        let turned = [&even * &cos - &odd * &sin, &even * &sin + &odd * &cos];
        refrain::stack(&[&turned[0], &turned[1]], -1).reshape(&signed(rotated.shape()))
    } else {
        let [low, high] = [rotated.slice(-1, 0, half), rotated.slice(-1, half, dims)];
        let turned = [&low * &cos - &high * &sin, &low * &sin + &high * &cos];
        refrain::concatenate(&[&turned[0], &turned[1]], -1)
    };
    if dims == width {
        return Value::of(turned);
    }
    Value::of(refrain::concatenate(&[&turned, &x.array().slice(-1, dims, width)], -1))
}

/// Angles of tokens and pairs of features, f32 `[T, half]` or `[B, 1.., T, half]`.
fn angles(
    x: &Value,
    [tokens, half]: [usize; 2],
    base: Option<f32>,
    scale: f32,
    offset: &Offset,
    freqs: Option<&Value>,
) -> Result<Array> {
    let device = x.array().device();
    let index = |n: usize| Array::arange(device, F32, n);
    let frequencies = match (base, freqs) {
        (Some(base), None) => (index(half) * (-base.ln() / half as f32)).exp(),
        (None, Some(freqs)) if freqs.shape() == [half] => 1.0 / freqs.array().astype(F32),
        (None, Some(freqs)) => {
            let message = format!("[rope] freqs must have shape ({half},), not {}.", tuple(freqs.shape()));
            return Err(Error::value(message));
        }
        _ => return Err(Error::value("[rope] Only one of base or freqs can have a value.")),
    };
    let positions = match offset {
        // No part of the program, so that each token runs the same one.
        Offset::Int(offset) if i32::try_from(*offset).is_ok() => {
            let first = Array::integer(device, *offset as i32);
            (Array::arange(device, refrain::DType::I32, tokens) + first).astype(F32)
        }
        Offset::Int(offset) => index(tokens) + *offset as f32,
        Offset::Value(offset) if offset.size() == 1 => index(tokens) + offset.array().astype(F32).reshape(&[1]),
        Offset::Value(offset) if offset.shape() == [x.shape()[0]] => {
            let mut batch = vec![1; x.ndim() - 1];
            batch[0] = -1;
            index(tokens) + offset.array().astype(F32).reshape(&batch)
        }
        Offset::Value(offset) => {
            let message = format!(
                "[rope] offset must be a scalar or have a number for each sequence, not {}.",
                tuple(offset.shape())
            );
            return Err(Error::value(message));
        }
    };
    Ok((positions * scale).expand_dims(-1) * frequencies)
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
