//! Attention over keys and values, and over caches that hold more slots than are used.

use refrain::Array;

use crate::shape::{signed, tuple};
use crate::{DType, Error, Result, Value, ops, promote};

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

/// A score that no softmax sees; finite, because differences of infinities are NaN.
fn masked_score(dtype: DType) -> f32 {
    match dtype {
        DType::F16 => half::f16::MIN.to_f32(),
        DType::BF16 => half::bf16::MIN.to_f32(),
        _ => f32::MIN,
    }
}

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
    const OP: &str = "scaled_dot_product_attention";
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
    // The query heads of a key head get an axis of their own, so that keys and values are not repeated.
    let stored = dtype.stored()?;
    let group = |x: &Array, heads: usize, t: usize, n: usize| {
        x.astype(stored).reshape(&[b, kvh, heads, t, n].map(|n| n as isize))
    };
    let cache = Cache::of(k, v, mask);
    let slots = cache.keys.shape()[2];
    let (queries, keys) = (group(q.array(), h / kvh, tq, d), group(&cache.keys, 1, slots, d));
    let values = cache.values_to_read(group(&cache.values, 1, slots, e));
    let scores = (queries * scale).matmul(&keys.swap_axes(-1, -2));
    let scores = masked(scores, mask, dtype, [b, h, tq, slots], cache.length.as_ref())?;
    let mut scores = Value::of(scores)?.array().clone();
    if let Some(sinks) = sinks {
        if promote(sinks.dtype(), dtype) != dtype {
            return Err(Error::value(format!(
                "[{OP}] Type of sinks must promote to output type {dtype}."
            )));
        }
        if sinks.shape() != [h] {
            let message = format!("[{OP}] Received invalid shape for sinks {}.", tuple(sinks.shape()));
            return Err(Error::value(message));
        }
        let sinks = sinks
            .array()
            .astype(stored)
            .reshape(&[1, kvh as isize, (h / kvh) as isize, 1, 1]);
        let column = sinks.broadcast_to(&[b, kvh, h / kvh, tq, 1]);
        scores = refrain::concatenate(&[&scores, &column], -1);
    }
    let weights = scores.softmax().slice(-1, 0, slots);
    Value::of(weights.matmul(&values).reshape(&[b, h, tq, e].map(|n| n as isize)))
}

/// Maximum number of unused slots of a cache, beside as many as are used, that are read to keep shapes constant.
const MAX_UNUSED_SLOTS: usize = 1024;

/// The keys and values to attend to.
struct Cache {
    keys: Array,
    values: Array,
    /// The number of keys, an i32, if arrays hold more slots than that.
    length: Option<Array>,
}

impl Cache {
    /// Keys and values that are the beginning of a cache are read from the whole cache, up to a length that is no part
    /// of the program: so a program for a token serves the next one, too.
    fn of(k: &Value, v: &Value, mask: &Mask) -> Cache {
        let (used, whole) = (k.shape()[2], [k, v].map(|x| x.array().prefix_of(2)));
        if let (Mask::None | Mask::Causal, [Some(keys), Some(values)]) = (mask, whole) {
            let slots = keys.shape()[2];
            let is_small = slots <= used.saturating_add(MAX_UNUSED_SLOTS.max(used));
            if let (true, true, Ok(length)) = (is_small, values.shape()[2] == slots, i32::try_from(used)) {
                let length = Some(Array::integer(keys.device(), length));
                return Cache { keys, values, length };
            }
        }
        let [keys, values] = [k, v].map(|x| x.array().clone());
        let length = None;
        Cache { keys, values, length }
    }

    /// Values `[.., slots, E]` with zeros in unused slots, where there could be NaN, which a weight of 0 does not hide.
    fn values_to_read(&self, values: Array) -> Array {
        let Some(length) = &self.length else {
            return values;
        };
        let slots = Array::arange(values.device(), refrain::DType::I32, self.keys.shape()[2]);
        slots.reshape(&[-1, 1]).lt(length).select(&values, 0.0)
    }
}

/// Applies a mask to scores `[B, KVH, H / KVH, Tq, Tk]`; `shape` is `[B, H, Tq, Tk]`. Only the first `length` keys, an
/// i32, are attended to.
fn masked(scores: Array, mask: &Mask, dtype: DType, shape: [usize; 4], length: Option<&Array>) -> Result<Array> {
    let [_, _, tq, tk] = shape;
    let lowest = masked_score(dtype);
    let index = |n: usize| Array::arange(scores.device(), refrain::DType::I32, n);
    Ok(match (mask, length) {
        (Mask::None, None) => scores,
        (Mask::None, Some(length)) => index(tk).lt(length).select(&scores, lowest),
        (Mask::Causal, _) => {
            let first = match length {
                Some(length) => length - tq as i64,
                None => Array::full(scores.device(), refrain::DType::I32, &[], tk as i64 - tq as i64),
            };
            let last = index(tq).reshape(&[-1, 1]) + first;
            index(tk).le(&last).select(&scores, lowest)
        }
        (Mask::Value(mask), _) => {
            let spread = ops::broadcast_to(mask, &shape.map(|n| n as i64))?;
            let spread = spread.array().reshape(&signed(scores.shape()));
            if mask.dtype() == DType::Bool {
                spread.select(&scores, lowest)
            } else {
                scores + spread.astype(dtype.stored()?).maximum(lowest)
            }
        }
    })
}
