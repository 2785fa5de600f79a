//! Neural network operations on plain arrays.

pub use super::rms_norm::rms_norm;

use super::CallSite;
use crate::{Array, DType};

/// The keys that each query attends to in [`scaled_dot_product_attention`].
#[derive(Clone, Copy)]
pub enum Mask<'a> {
    /// All keys.
    None,
    /// The last query attends to all keys, each earlier query to one key less.
    Causal,
    /// A bool array (true: attend) or a float array (added to the scores), broadcast to `[B, H, Tq, Tk]`.
    Array(&'a Array),
}

/// softmax(q · kᵀ · scale + mask) · v, with floats q `[B, H, Tq, D]`, k `[B, KVH, Tk, D]`, v `[B, KVH, Tk, E]` and H a
/// multiple of KVH. Returns `[B, H, Tq, E]` in v's dtype. Composed of matmuls and a softmax, for arrays that are not in
/// a paged cache. Invalid if shapes do not fit.
#[track_caller]
pub fn scaled_dot_product_attention(q: &Array, k: &Array, v: &Array, scale: f32, mask: Mask<'_>) -> Array {
    let call_site = CallSite::new("scaled_dot_product_attention");
    let fail = || {
        let what = format!("q {:?}, k {:?} and v {:?} do not fit", q.shape(), k.shape(), v.shape());
        call_site.invalid(&[q, k, v], what)
    };
    let (&[b, h, tq, d], &[bk, kvh, tk, dk], &[bv, hv, tv, e]) = (q.shape(), k.shape(), v.shape()) else {
        return fail();
    };
    if d != dk || [bk, bv] != [b, b] || tk != tv || kvh != hv || kvh == 0 || h % kvh != 0 {
        return fail();
    }
    // The query heads of a key head get a dimension of their own, so that keys and values are not repeated.
    let group = |x: &Array, heads: usize, t: usize, n: usize| call_site.reshape(x, &[b, kvh, heads, t, n]);
    let (q, k, v) = (group(q, h / kvh, tq, d), group(k, 1, tk, d), group(v, 1, tk, e));
    let mut scores = q.matmul(&k.swap_axes(-1, -2)).astype(DType::F32) * scale;
    // Finite, because differences of infinities would be NaN.
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
            let mask = group(&call_site.broadcast(mask, &[b, h, tq, tk]), h / kvh, tq, tk);
            scores = if mask.dtype() == DType::Bool {
                mask.select(&scores, MASKED)
            } else {
                scores + mask
            };
        }
    }
    let attn_out = scores.softmax().astype(v.dtype()).matmul(&v);
    call_site.reshape(&attn_out, &[b, h, tq, e])
}
