//! The operations that networks are made of.

pub use super::rms_norm::rms_norm;

use super::Caller;
use crate::{Array, DType};

/// Which keys a query sees in [`scaled_dot_product_attention`].
#[derive(Clone, Copy)]
pub enum Mask<'a> {
    /// All of them.
    None,
    /// The last query sees all keys, each earlier one a key less.
    Causal,
    /// bool (true: seen) or float (added to the scores), broadcast to `[B, H, Tq, Tk]`.
    Array(&'a Array),
}

/// softmax(q · kᵀ · scale + mask) · v. q `[B, H, Tq, D]`, k `[B, KVH, Tk, D]`, v `[B, KVH, Tk, E]`, floats,
/// with H a multiple of KVH → `[B, H, Tq, E]` in v's dtype. Made of matmuls and a softmax, for arrays that
/// are not in a paged cache. Invalid where shapes do not fit.
#[track_caller]
pub fn scaled_dot_product_attention(q: &Array, k: &Array, v: &Array, scale: f32, mask: Mask<'_>) -> Array {
    let operation = Caller::new("scaled_dot_product_attention");
    let fail = || {
        let what = format!("q {:?}, k {:?} and v {:?} do not fit", q.shape(), k.shape(), v.shape());
        operation.invalid(&[q, k, v], what)
    };
    let (&[b, h, tq, d], &[bk, kvh, tk, dk], &[bv, hv, tv, e]) = (q.shape(), k.shape(), v.shape()) else {
        return fail();
    };
    if d != dk || [bk, bv] != [b, b] || tk != tv || kvh != hv || kvh == 0 || h % kvh != 0 {
        return fail();
    }
    // Query heads that share a key head are a dimension of their own, so that nothing is repeated.
    let group = |x: &Array, heads: usize, t: usize, n: usize| operation.reshape(x, &[b, kvh, heads, t, n]);
    let (q, k, v) = (group(q, h / kvh, tq, d), group(k, 1, tk, d), group(v, 1, tk, e));
    let mut scores = q.matmul(&k.swap_axes(-1, -2)).astype(DType::F32) * scale;
    // Stands for minus infinity, of which differences would be NaN.
    const MASKED: f32 = f32::MIN / 2.0;
    match mask {
        Mask::None => {}
        Mask::Causal => {
            let last = Array::arange(q.device(), DType::I32, tq).reshape(&[-1, 1]) + (tk as i64 - tq as i64);
            scores = Array::arange(q.device(), DType::I32, tk)
                .le(&last)
                .select(&scores, MASKED);
        }
        Mask::Array(mask) => {
            let mask = group(&operation.broadcast(mask, &[b, h, tq, tk]), h / kvh, tq, tk);
            scores = if mask.dtype() == DType::Bool {
                mask.select(&scores, MASKED)
            } else {
                scores + mask
            };
        }
    }
    let mixed = scores.softmax().astype(v.dtype()).matmul(&v);
    operation.reshape(&mixed, &[b, h, tq, e])
}
