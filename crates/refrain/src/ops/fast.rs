//! The operations that transformers are made of, each one kernel.

use refrain_kernels::{attention, rope};

use crate::{Array, DType, Primitive};

/// x / √(mean(x²) + eps) · weight over the last dimension (Zhang & Sennrich 2019), computed in f32.
/// x `[.., n]`, weight `[n]` or none.
#[track_caller]
pub fn rms_norm(x: &Array, weight: Option<&Array>, eps: f32) -> Array {
    let n = x.dim(-1);
    if x.rank() == 0 || n == 0 || !x.dtype().is_float() || weight.is_some_and(|w| w.shape() != [n]) {
        let weight = weight.map_or(String::new(), |w| format!(" with a weight of {:?}", w.shape()));
        return Array::invalid(
            x,
            "rms_norm",
            format!("cannot normalise {}{:?}{weight}", x.dtype(), x.shape()),
        );
    }
    let inputs: Vec<&Array> = [x].into_iter().chain(weight).collect();
    Array::lazy(
        Primitive::RmsNorm {
            eps,
            weighted: weight.is_some(),
        },
        &inputs,
        x.shape(),
        x.dtype(),
    )
}

/// Rotary position embedding (Su et al. 2021). x `[T, H, D]`, positions i32 `[T]`, frequencies f32
/// `[dims / 2]` in radians per position → `[T, H, D]`; dimensions from `params.dims` on are copied.
#[track_caller]
pub fn rope(x: &Array, positions: &Array, frequencies: &Array, params: rope::Params) -> Array {
    let dims = params.dims as usize;
    let fits = x.rank() == 3
        && dims % 2 == 0
        && dims <= x.dim(2)
        && positions.shape() == [x.dim(0)]
        && frequencies.shape() == [dims / 2]
        && positions.dtype() == DType::I32
        && frequencies.dtype() == DType::F32;
    if !fits {
        let what = format!(
            "x {:?}, positions {:?} and frequencies {:?} do not fit {dims} rotated dimensions",
            x.shape(),
            positions.shape(),
            frequencies.shape()
        );
        return Array::invalid(x, "rope", what);
    }
    Array::lazy(
        Primitive::Rope(params),
        &[x, positions, frequencies],
        x.shape(),
        x.dtype(),
    )
}

/// Where each token of a flat batch stands, for [`paged_attention`].
#[derive(Clone, Copy)]
pub struct Tokens<'a> {
    /// i32 `[T]`: position in its sequence; negative for padding.
    pub positions: &'a Array,
    /// u32 `[T]`: row of `pages`.
    pub sequences: &'a Array,
    /// u32 `[S, P]`: the pages of each sequence, in order.
    pub pages: &'a Array,
}

/// Causal attention over a paged KV cache. q `[T, H, D]`; keys and values `[slots, KVH, D]`, H a
/// multiple of KVH → `[T, H, D]`. A token sees the positions up to its own (or the last
/// `params.window` of them); position p of sequence s lies in slot
/// `pages[s, p / page_size] · page_size + p mod page_size`.
#[track_caller]
pub fn paged_attention(
    q: &Array,
    keys: &Array,
    values: &Array,
    tokens: Tokens<'_>,
    params: attention::Params,
) -> Array {
    let fits = q.rank() == 3
        && keys.rank() == 3
        && keys.shape() == values.shape()
        && keys.dim(2) == q.dim(2)
        && keys.dim(1) > 0
        && q.dim(1) % keys.dim(1) == 0
        && tokens.positions.shape() == [q.dim(0)]
        && tokens.sequences.shape() == [q.dim(0)]
        && tokens.pages.rank() == 2;
    if !fits {
        let what = format!(
            "q {:?} does not attend to keys {:?} and values {:?}",
            q.shape(),
            keys.shape(),
            values.shape()
        );
        return Array::invalid(q, "paged_attention", what);
    }
    let inputs = [q, keys, values, tokens.positions, tokens.sequences, tokens.pages];
    Array::lazy(Primitive::PagedAttention(params), &inputs, q.shape(), q.dtype())
}

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

/// softmax(q · kᵀ · scale + mask) · v. q `[B, H, Tq, D]`, k `[B, KVH, Tk, D]`, v `[B, KVH, Tk, E]` with H
/// a multiple of KVH → `[B, H, Tq, E]`. Made of matmuls and a softmax, for arrays that are not in a
/// paged cache.
#[track_caller]
pub fn scaled_dot_product_attention(q: &Array, k: &Array, v: &Array, scale: f32, mask: Mask<'_>) -> Array {
    let (&[b, h, tq, d], &[_, kvh, tk, dk]) = (q.shape(), k.shape()) else {
        return Array::invalid(
            q,
            "scaled_dot_product_attention",
            format!("q {:?} and k {:?} need four dimensions", q.shape(), k.shape()),
        );
    };
    let &[_, _, tv, e] = v.shape() else {
        return Array::invalid(
            v,
            "scaled_dot_product_attention",
            format!("v {:?} needs four dimensions", v.shape()),
        );
    };
    if d != dk || tk != tv || kvh == 0 || h % kvh != 0 || k.shape()[..2] != v.shape()[..2] || k.dim(0) != b {
        let what = format!("q {:?}, k {:?} and v {:?} do not fit", q.shape(), k.shape(), v.shape());
        return Array::invalid(q, "scaled_dot_product_attention", what);
    }
    // Query heads that share a key head are a dimension of their own, so that nothing is repeated.
    let group = |x: &Array, heads: usize, t: usize, n: usize| {
        x.reshape(&[b as isize, kvh as isize, heads as isize, t as isize, n as isize])
    };
    let (q, k, v) = (group(q, h / kvh, tq, d), group(k, 1, tk, d), group(v, 1, tk, e));
    let mut scores = q.matmul(&k.swap_axes(-1, -2)).astype(DType::F32) * scale;
    let masked = Array::full(q.device(), DType::F32, &[], f32::MIN / 2.0);
    match mask {
        Mask::None => {}
        Mask::Causal => {
            let last = Array::arange(q.device(), DType::I32, tq).reshape(&[-1, 1]) + (tk as f32 - tq as f32);
            scores = Array::arange(q.device(), DType::I32, tk)
                .le(&last)
                .select(&scores, &masked);
        }
        Mask::Array(mask) => {
            let mask = group(&mask.broadcast_to(&[b, h, tq, tk]), h / kvh, tq, tk);
            scores = if mask.dtype() == DType::Bool {
                mask.select(&scores, &masked)
            } else {
                scores + mask
            };
        }
    }
    let mixed = scores.softmax().astype(v.dtype()).matmul(&v);
    mixed.reshape(&[b as isize, h as isize, tq as isize, e as isize])
}
