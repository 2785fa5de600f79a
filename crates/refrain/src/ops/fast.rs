//! The operations that transformers are made of.

use refrain_kernels::{attention, rope};

pub use super::sampling::{Sequences, sample};

use super::Caller;
pub use super::experts::expert_matmul;
pub use super::recurrent::{causal_conv, gated_delta};
use crate::{Array, DType, Primitive};

/// x / √(mean(x²) + eps) · weight over the last dimension (Zhang & Sennrich 2019), computed in f32.
/// x floats `[.., n]`, weight floats `[n]` or none → as x. Invalid for n = 0 and where they do not fit.
#[track_caller]
pub fn rms_norm(x: &Array, weight: Option<&Array>, eps: f32) -> Array {
    let operation = Caller::new("rms_norm");
    let inputs: Vec<&Array> = [x].into_iter().chain(weight).collect();
    let n = x.dim(-1);
    let fits = n > 0 && inputs.iter().all(|x| x.dtype().is_float()) && weight.is_none_or(|w| w.shape() == [n]);
    if !fits {
        let weight = weight.map_or(String::new(), |w| {
            format!(" with a weight {}{:?}", w.dtype(), w.shape())
        });
        return operation.invalid(
            &inputs,
            format!("{}{:?}{weight} is not normalised", x.dtype(), x.shape()),
        );
    }
    let primitive = Primitive::RmsNorm {
        eps,
        weighted: weight.is_some(),
    };
    operation.node(primitive, &inputs, x.shape(), x.dtype())
}

/// Rotary position embedding (Su et al. 2021). x floats `[T, H, D]`, positions i32 `[T]`, frequencies
/// f32 `[dims / 2]` in radians per position → as x; dimensions from `params.dims` on are copied.
/// Invalid where they do not fit, and for odd `dims`.
#[track_caller]
pub fn rope(x: &Array, positions: &Array, frequencies: &Array, params: rope::RopeParams) -> Array {
    let operation = Caller::new("rope");
    let inputs = [x, positions, frequencies];
    let dims = params.dims;
    let fits = x.rank() == 3
        && x.dtype().is_float()
        && dims.is_multiple_of(2)
        && dims <= x.dim(2)
        && positions.shape() == [x.dim(0)]
        && frequencies.shape() == [dims / 2]
        && positions.dtype() == DType::I32
        && frequencies.dtype() == DType::F32;
    if !fits {
        let [x, positions, frequencies] = inputs.map(|a| format!("{}{:?}", a.dtype(), a.shape()));
        let what =
            format!("x {x}, positions {positions} and frequencies {frequencies} do not fit {dims} rotated dimensions");
        return operation.invalid(&inputs, what);
    }
    operation.node(Primitive::Rope(params), &inputs, x.shape(), x.dtype())
}

/// Where each token of a flat batch stands, for [`paged_attention`].
#[derive(Clone, Copy)]
pub struct BatchTokens<'a> {
    /// i32 `[T]`: position in its sequence; negative for padding, which gives zeros.
    pub positions: &'a Array,
    /// u32 `[T]`: row of `pages`.
    pub sequences: &'a Array,
    /// u32 `[S, P]`: the pages of each sequence, in order.
    pub pages: &'a Array,
}

/// Where tokens' keys and values go in a paged state: slot `pages[s, p / page_size] · page_size +
/// p mod page_size` of position p of sequence s, −1 for negative positions and for those beyond the table:
/// i32 `[T]`. Invalid where shapes do not fit.
#[track_caller]
pub fn slots(tokens: BatchTokens<'_>, page_size: usize) -> Array {
    let operation = Caller::new("slots");
    let inputs = [tokens.positions, tokens.sequences, tokens.pages];
    let fits = tokens.positions.rank() == 1
        && tokens.sequences.shape() == tokens.positions.shape()
        && tokens.pages.rank() == 2
        && inputs
            .iter()
            .map(|x| x.dtype())
            .eq([DType::I32, DType::U32, DType::U32])
        && page_size > 0;
    if !fits {
        let [positions, sequences, pages] = inputs.map(|a| format!("{}{:?}", a.dtype(), a.shape()));
        let what = format!("positions {positions}, sequences {sequences} and pages {pages} of {page_size} slots");
        return operation.invalid(&inputs, format!("{what} do not fit"));
    }
    let shape = tokens.positions.shape();
    operation.node(Primitive::Slots { page_size }, &inputs, shape, DType::I32)
}

/// Causal attention over a paged KV cache. q floats `[T, H, D]`; keys and values floats
/// `[slots, KVH, D]`, H a multiple of KVH → as q. A token sees the positions up to its own (or the last
/// `params.window` of them); position p of sequence s lies in slot
/// `pages[s, p / page_size] · page_size + p mod page_size`. Invalid where they do not fit; GPUs take even
/// D up to 256.
#[track_caller]
pub fn paged_attention(
    q: &Array,
    keys: &Array,
    values: &Array,
    tokens: BatchTokens<'_>,
    params: attention::AttentionParams,
) -> Array {
    let operation = Caller::new("paged_attention");
    let inputs = [q, keys, values, tokens.positions, tokens.sequences, tokens.pages];
    let fits = [q, keys, values].iter().all(|x| x.rank() == 3 && x.dtype().is_float())
        && keys.shape() == values.shape()
        && keys.dim(2) == q.dim(2)
        && keys.dim(1) > 0
        && q.dim(1).is_multiple_of(keys.dim(1))
        && tokens.positions.shape() == [q.dim(0)]
        && tokens.sequences.shape() == [q.dim(0)]
        && tokens.pages.rank() == 2
        && inputs[3..]
            .iter()
            .map(|x| x.dtype())
            .eq([DType::I32, DType::U32, DType::U32])
        && params.page_size > 0;
    if !fits {
        let [q, keys, values, positions, sequences, pages] = inputs.map(|a| format!("{}{:?}", a.dtype(), a.shape()));
        let what = format!(
            "q {q} does not attend to keys {keys} and values {values} by positions {positions}, sequences {sequences} and pages {pages} of {} slots",
            params.page_size
        );
        return operation.invalid(&inputs, what);
    }
    operation.node(Primitive::PagedAttention(params), &inputs, q.shape(), q.dtype())
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
