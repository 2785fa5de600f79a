//! Attention over keys and values, and over caches that hold more slots than are used.

use std::hash::{Hash, Hasher};

use refrain::{Array, Composite};
use refrain_lm::{AttentionParams, BatchTokens};

use crate::lowering::{is_half, same_position};
use crate::shape::{self, signed, tuple};
use crate::{DType, Error, Result, Value, promote};

/// The keys that queries attend to.
#[derive(Clone, Debug)]
pub enum Mask {
    /// All keys.
    None,
    /// The last query attends to all keys, each earlier one to one key less.
    Causal,
    /// Truth values (true: attend) or numbers added to the scores, broadcast to `[B, H, Tq, Tk]`.
    Value(Value),
}

const OP: &str = "scaled_dot_product_attention";

/// softmax(q · kᵀ · scale + mask) · v with q `[B, H, Tq, D]`, k `[B, KVH, Tk, D]` and v `[B, KVH, Tk, E]`. A sink is one
/// more score of each head that has no value.
///
/// # Errors
/// Fails if shapes or dtypes do not fit.
pub fn scaled_dot_product_attention(
    q: &Value,
    k: &Value,
    v: &Value,
    scale: f32,
    mask: &Mask,
    sinks: Option<&Value>,
) -> Result<Value> {
    let (&[b, h, tq, d], &[bk, kvh, tk, dk], &[bv, hv, tv, e]) = (q.shape(), k.shape(), v.shape()) else {
        return Err(Error::value(format!("[{OP}] q, k and v must have four dimensions.")));
    };
    if d != dk || [bk, bv] != [b, b] || tk != tv || kvh != hv || kvh == 0 || h % kvh != 0 {
        let shapes = [q, k, v].map(|x| tuple(x.shape()));
        let message = format!(
            "[{OP}] Shapes of q {}, k {} and v {} do not fit.",
            shapes[0], shapes[1], shapes[2]
        );
        return Err(Error::value(message));
    }
    let dtype = promote(promote(q.dtype(), k.dtype()), v.dtype());
    if !dtype.is_floating() {
        return Err(Error::value(format!("[{OP}] Received unsupported type {dtype}.")));
    }
    if let Mask::Value(mask) = mask
        && shape::broadcast(OP, &[mask.shape(), &[b, h, tq, tk]])? != [b, h, tq, tk]
    {
        let message = format!(
            "[{OP}] A mask of shape {} does not fit the scores.",
            tuple(mask.shape())
        );
        return Err(Error::value(message));
    }
    sinks.map_or(Ok(()), |sinks| check_sinks(sinks, dtype, h))?;
    let (kind, mask) = match mask {
        Mask::None => (MaskKind::None, None),
        Mask::Causal => (MaskKind::Causal, None),
        Mask::Value(mask) => (MaskKind::Given, Some(mask.array())),
    };
    let cache = Cache::of(k, v, tq, kind);
    let attention = Attention {
        scale: Scale(scale),
        mask: kind,
        has_sinks: sinks.is_some(),
        dtype: dtype.stored()?,
    };
    let inputs: Vec<&Array> = [q.array(), &cache.keys, &cache.values]
        .into_iter()
        .chain(mask)
        .chain(sinks.map(Value::array))
        .collect();
    let dtype = attention.dtype;
    Value::of(Array::composed(attention, &inputs, cache.first, &[b, h, tq, e], dtype))
}

fn check_sinks(sinks: &Value, dtype: DType, heads: usize) -> Result<()> {
    if promote(sinks.dtype(), dtype) != dtype {
        return Err(Error::value(format!(
            "[{OP}] Type of sinks must promote to output type {dtype}."
        )));
    }
    if sinks.shape() != [heads] {
        let message = format!("[{OP}] Received invalid shape for sinks {}.", tuple(sinks.shape()));
        return Err(Error::value(message));
    }
    Ok(())
}

/// Maximum number of unused slots of a cache, beside as many as are used, that are read to keep shapes constant.
const MAX_UNUSED_SLOTS: usize = 1024;

/// The keys and values to attend to.
struct Cache {
    keys: Array,
    values: Array,
    /// The number of keys before those of the queries, if arrays hold more slots than are used. In a decode loop it is
    /// RoPE's offset and the start of the cache's update, too, and all three are one word of the program.
    first: Option<i32>,
}

impl Cache {
    /// Keys and values that are the beginning of a cache are read from the whole cache, up to a length that is no part
    /// of the program: so a program for a token serves the next one, too. Those of a prompt that the cache begins with
    /// are read as they come, before they are rounded and reordered for the cache.
    fn of(k: &Value, v: &Value, queries: usize, mask: MaskKind) -> Cache {
        let written = || [k, v].map(|x| x.array().written_prefix(2));
        if k.shape()[0] == 1
            && queries > MAX_SCALAR_TOKENS
            && let [Some(keys), Some(values)] = written()
        {
            let first = None;
            return Cache { keys, values, first };
        }
        let (used, whole) = (k.shape()[2], || [k, v].map(|x| x.array().prefix_of(2)));
        if mask != MaskKind::Given
            && let [Some(keys), Some(values)] = whole()
        {
            let slots = keys.shape()[2];
            let is_small = slots <= used.saturating_add(MAX_UNUSED_SLOTS.max(used));
            let first = used.checked_sub(queries).and_then(|first| i32::try_from(first).ok());
            if is_small && values.shape()[2] == slots && first.is_some() {
                return Cache { keys, values, first };
            }
        }
        let [keys, values] = [k, v].map(|x| x.array().clone());
        let first = None;
        Cache { keys, values, first }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum MaskKind {
    None,
    Causal,
    /// The fourth input.
    Given,
}

/// (q `[B, H, Tq, D]`, keys `[B, KVH, slots, D]`, values `[B, KVH, slots, E]`, {mask}, {sinks `[H]`}) → `[B, H, Tq, E]`.
/// Slots are attended to up to the composite's integer and Tq more; all slots, if there is no integer.
#[derive(Hash, Debug)]
struct Attention {
    scale: Scale,
    mask: MaskKind,
    has_sinks: bool,
    dtype: refrain::DType,
}

/// A factor, with its bits as its identity.
#[derive(Clone, Copy, Debug)]
struct Scale(f32);

impl Hash for Scale {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(self.0.to_bits());
    }
}

impl Composite for Attention {
    fn name(&self) -> &'static str {
        OP
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn compose(&self, inputs: &[Array], first: Option<&Array>) -> Array {
        let [q, keys, values, others @ ..] = inputs else {
            unreachable!("there are three arrays")
        };
        let (&[b, h, tq, d], &[_, kvh, slots, e]) = (q.shape(), values.shape()) else {
            unreachable!("they have four dimensions")
        };
        if self.is_paged([q, keys, values]) {
            return self.paged([q, keys, values], first);
        }
        let length = first.map(|first| first + tq as i64);
        let length = length.as_ref();
        // The query heads of a key head get an axis of their own, so that keys and values are not repeated.
        let group = |x: &Array, heads: usize, t: usize, n: usize| {
            let shape = [b, kvh, heads, t, n].map(|n| n as isize);
            x.astype(self.dtype).reshape(&shape)
        };
        let (queries, keys) = (group(q, h / kvh, tq, d), group(keys, 1, slots, d));
        let values = used_values(group(values, 1, slots, e), length);
        let scores = (queries * self.scale.0).matmul(&keys.swap_axes(-1, -2));
        let mut scores = self.masked(scores, others.first(), [b, h, tq, slots], length);
        if let Some(sinks) = others.last().filter(|_| self.has_sinks) {
            let shape = [1, kvh as isize, (h / kvh) as isize, 1, 1];
            let column = sinks.astype(self.dtype).reshape(&shape);
            let column = column.broadcast_to(&[b, kvh, h / kvh, tq, 1]);
            scores = refrain::concatenate(&[&scores, &column], -1);
        }
        let weights = scores.softmax().slice(-1, 0, slots);
        weights.matmul(&values).reshape(&[b, h, tq, e].map(|n| n as isize))
    }
}

/// Values `[.., slots, E]` with zeros in unused slots, where there could be NaN, which a weight of 0 does not hide.
fn used_values(values: Array, length: Option<&Array>) -> Array {
    let Some(length) = length else {
        return values;
    };
    let slots = Array::arange(values.device(), refrain::DType::I32, values.dim(-2));
    slots.reshape(&[-1, 1]).lt(length).select(&values, 0.0)
}

/// Maximum number of tokens for which attention over pages needs no matrix cores.
const MAX_SCALAR_TOKENS: usize = 8;

/// Slots of a page. MLX's caches grow by as many.
const PAGE: usize = 256;

impl Attention {
    /// Whether the kernel of paged attention computes this well: it has no masks, heads of up to 256 features, and matrix
    /// cores in half precision only.
    fn is_paged(&self, [q, keys, values]: [&Array; 3]) -> bool {
        let (tokens, slots) = (q.dim(2), keys.dim(2));
        let dims = [keys.dim(3), values.dim(3)];
        let in_half = [keys, values].iter().all(|x| is_half(x.dtype()));
        self.mask != MaskKind::Given
            && !self.has_sinks
            && dims.iter().all(|dim| dim % 2 == 0 && (2..=256).contains(dim))
            && q.count() > 0
            && slots >= tokens
            && (tokens <= MAX_SCALAR_TOKENS || in_half)
    }

    /// Attention over pages, which follow each other. Each key head of each sequence is a sequence of its own, as caches
    /// have them; but where keys and values are converted, those of a token come together, as queries and results are.
    fn paged(&self, [q, keys, values]: [&Array; 3], first: Option<&Array>) -> Array {
        let (&[b, h, tq, d], &[_, kvh, slots, e]) = (q.shape(), values.shape()) else {
            unreachable!("they have four dimensions")
        };
        let device = q.device();
        let index = |dtype: refrain::DType, n: usize| Array::arange(device, dtype, n);
        // Tokens of one sequence follow each other where kernels take several of them at once.
        let is_grouped = tq > MAX_SCALAR_TOKENS;
        // Matrix cores take f16, which has more bits than bf16, but a smaller range. What is no cache has fewer heads to
        // reorder than queries and results have.
        let is_bf16 = [keys, values].iter().any(|x| x.dtype() == refrain::DType::BF16);
        let is_converted = is_grouped && (is_bf16 || first.is_none());
        // Sequences for each of MLX's, and query heads of each.
        let own = if is_converted { 1 } else { kvh };
        let (sequences, heads) = (b * own, h / own);
        let (order, by_token, back) = if is_grouped {
            ([0, 1, 3, 2, 4], [b, own, tq], [0, 1, 3, 2, 4])
        } else {
            ([0, 3, 1, 2, 4], [b, tq, own], [0, 2, 3, 1, 4])
        };
        // What differs along one of these axes, for each token.
        let spread = |x: &Array, shape: [usize; 3]| {
            let x = x.reshape(&shape.map(|n| n as isize));
            x.broadcast_to(&by_token).reshape(&[-1])
        };
        let (along_tokens, along_heads) = if is_grouped {
            ([1, 1, tq], [b, own, 1])
        } else {
            ([1, tq, 1], [b, 1, own])
        };
        let first = match first {
            Some(first) => first.clone(),
            None => Array::full(device, refrain::DType::I32, &[], (slots - tq) as i64),
        };
        // The kernel reads these without strides. As copies, all layers share them.
        let own_sequences = spread(&index(refrain::DType::U32, sequences), along_heads).contiguous();
        let positions = match self.mask {
            _ if tq == 1 => same_position(&first, sequences),
            MaskKind::Causal => spread(&(index(refrain::DType::I32, tq) + first), along_tokens).contiguous(),
            _ => same_position(&(first + (tq as i64 - 1)), sequences * tq),
        };
        // Only a single sequence may end within a page.
        let has_pages = slots.is_multiple_of(PAGE) || (sequences == 1 && is_grouped);
        let page = if has_pages { PAGE } else { slots };
        let pages = index(refrain::DType::U32, sequences * slots.div_ceil(page));
        let tokens = BatchTokens {
            positions: &positions,
            sequences: &own_sequences,
            pages: &pages.reshape(&[sequences as isize, -1]),
        };
        let params = AttentionParams {
            scale: self.scale.0,
            page_size: page as u32,
            window: None,
            decode: tq == 1,
            blocks: [None; 2],
        };
        let stored = |x: &Array| {
            if !is_converted || x.dtype() == refrain::DType::F16 {
                return x.clone();
            }
            let [least, most] = [half::f16::MIN, half::f16::MAX].map(half::f16::to_f32);
            let clamped = x.astype(refrain::DType::F32).maximum(least).minimum(most);
            clamped.astype(refrain::DType::F16)
        };
        let queries = q.reshape(&[b, own, heads, tq, d].map(|n| n as isize));
        let queries = queries.permute(&order).reshape(&[-1, heads as isize, d as isize]);
        // Converted behind the views, so that what is f32 already is not copied.
        let queries = queries.astype(if is_converted { refrain::DType::F32 } else { self.dtype });
        let rows = |x: &Array, dim: usize| {
            let x = x.reshape(&[b, own, kvh / own, slots, dim].map(|n| n as isize));
            stored(&x.permute(&[0, 1, 3, 2, 4])).reshape(&[-1, (kvh / own) as isize, dim as isize])
        };
        let attended = refrain_lm::paged_attention(&queries, &rows(keys, d), &rows(values, e), tokens, params);
        let attended = attended.astype(self.dtype);
        let [first, second, third] = by_token.map(|n| n as isize);
        let attended = attended.reshape(&[first, second, third, heads as isize, e as isize]);
        attended.permute(&back).reshape(&[b, h, tq, e].map(|n| n as isize))
    }

    /// Applies the mask to scores `[B, KVH, H / KVH, Tq, Tk]`; `shape` is `[B, H, Tq, Tk]`. Only the first `length` keys,
    /// an i32, are attended to.
    fn masked(&self, scores: Array, mask: Option<&Array>, shape: [usize; 4], length: Option<&Array>) -> Array {
        let [_, _, tq, tk] = shape;
        let lowest = masked_score(self.dtype);
        let index = |n: usize| Array::arange(scores.device(), refrain::DType::I32, n);
        match (self.mask, length) {
            (MaskKind::None, None) => scores,
            (MaskKind::None, Some(length)) => index(tk).lt(length).select(&scores, lowest),
            (MaskKind::Causal, _) => {
                let first = match length {
                    Some(length) => length - tq as i64,
                    None => Array::full(scores.device(), refrain::DType::I32, &[], tk as i64 - tq as i64),
                };
                let last = index(tq).reshape(&[-1, 1]) + first;
                index(tk).le(&last).select(&scores, lowest)
            }
            (MaskKind::Given, _) => {
                let mask = mask.expect("it is given").broadcast_to(&shape);
                let spread = mask.reshape(&signed(scores.shape()));
                if mask.dtype() == refrain::DType::Bool {
                    spread.select(&scores, lowest)
                } else {
                    scores + spread.astype(self.dtype).maximum(lowest)
                }
            }
        }
    }
}

/// A score that no softmax sees; finite, because differences of infinities are NaN.
fn masked_score(dtype: refrain::DType) -> f32 {
    match dtype {
        refrain::DType::F16 => half::f16::MIN.to_f32(),
        refrain::DType::BF16 => half::bf16::MIN.to_f32(),
        _ => f32::MIN,
    }
}
