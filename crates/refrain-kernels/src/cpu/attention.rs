use multiversion::multiversion;
use multiversion::target::target_cfg_f;
use rayon::prelude::*;

use super::f32x8::F32x8;
use crate::attention::{AttentionInputs, AttentionParams, slots};
use crate::kit::threads::min_items;

/// Consecutive values of a head that are summed at once: their sums stay in registers.
const VALUES_AT_ONCE: usize = 8 * F32x8::LANES;
/// Keys that a query is multiplied with at once.
const KEYS_AT_ONCE: usize = 4;

/// [`crate::attention::reference()`] for keys `[slots, KVH·Dk]` and values `[slots, KVH·Dv]` in f32, with Dk and Dv
/// multiples of eight. The rows in `inputs` are not read.
///
/// # Panics
/// Panics if the slices' lengths contradict each other.
pub fn attention(inputs: &AttentionInputs<'_>, keys: &[f32], values: &[f32], params: &AttentionParams) -> Vec<f32> {
    let [head_dim, value_dim] = inputs.head_dims();
    let tokens = inputs.positions.len();
    let mut out = vec![0.0; tokens * inputs.heads * value_dim];
    if out.is_empty() || inputs.keys.count() == 0 || inputs.pages.is_empty() {
        return out;
    }
    let heads = inputs.heads / inputs.kv_heads;
    let group = heads * head_dim;
    let longest = inputs
        .positions
        .iter()
        .fold(0, |longest, &position| longest.max(position)) as usize;
    let parts = out
        .par_chunks_mut(heads * value_dim)
        .zip(inputs.q.par_chunks(group))
        .enumerate();
    let parts = parts.with_min_len(min_items((longest + 1) * group));
    parts.for_each(|(number, (out, q))| {
        let (token, kv_head) = (number / inputs.kv_heads, number % inputs.kv_heads);
        let cache = HeadCache {
            keys: HeadRows::of(keys, inputs.kv_heads, kv_head, head_dim),
            values: HeadRows::of(values, inputs.kv_heads, kv_head, value_dim),
            slots: &slots(inputs, params, token),
            sinks: inputs.sinks.map(|sinks| &sinks[kv_head * heads..][..heads]),
        };
        attend(&cache, q, [head_dim, value_dim], params.scale, out);
    });
    out
}

/// The keys, values and slots that the queries of one key head attend to.
struct HeadCache<'a> {
    keys: HeadRows<'a>,
    values: HeadRows<'a>,
    slots: &'a [usize],
    /// Attention sinks: an additional score per query head, whose value is zero.
    sinks: Option<&'a [f32]>,
}

/// Keys or values of a head in all slots.
struct HeadRows<'a> {
    all: &'a [f32],
    /// Stride between slots, in values.
    stride: usize,
    /// Offset of the head in a slot.
    first: usize,
}

impl<'a> HeadRows<'a> {
    fn of(all: &'a [f32], heads: usize, head: usize, size: usize) -> HeadRows<'a> {
        HeadRows {
            all,
            stride: heads * size,
            first: head * size,
        }
    }

    #[inline(always)]
    fn row(&self, slot: usize, first: usize, length: usize) -> &'a [f32] {
        &self.all[slot * self.stride + self.first + first..][..length]
    }
}

/// Attention of the query heads `q` that share a key head.
#[multiversion(targets("x86_64+avx2+fma"))]
fn attend(cache: &HeadCache<'_>, q: &[f32], [head_dim, value_dim]: [usize; 2], scale: f32, out: &mut [f32]) {
    const FUSED: bool = target_cfg_f!(any(target_feature = "fma", target_arch = "aarch64"));
    let count = cache.slots.len();
    let heads = q.chunks_exact(head_dim);
    let mut scores = vec![0.0; heads.len() * count];
    let whole = count / KEYS_AT_ONCE * KEYS_AT_ONCE;
    for i in (0..whole).step_by(KEYS_AT_ONCE) {
        let keys: [&[f32]; KEYS_AT_ONCE] = std::array::from_fn(|n| cache.keys.row(cache.slots[i + n], 0, head_dim));
        for (q, scores) in heads.clone().zip(scores.chunks_exact_mut(count)) {
            scores[i..i + KEYS_AT_ONCE].copy_from_slice(&dots::<KEYS_AT_ONCE, FUSED>(q, keys));
        }
    }
    for i in whole..count {
        let key = cache.keys.row(cache.slots[i], 0, head_dim);
        for (q, scores) in heads.clone().zip(scores.chunks_exact_mut(count)) {
            [scores[i]] = dots::<1, FUSED>(q, [key]);
        }
    }
    for (head, (scores, out)) in scores
        .chunks_exact_mut(count.max(1))
        .zip(out.chunks_exact_mut(value_dim))
        .enumerate()
    {
        softmax(scores, scale, cache.sinks.map(|sinks| sinks[head]));
        let (wide, narrow) = out.as_chunks_mut::<VALUES_AT_ONCE>();
        let first_of_narrow = wide.len() * VALUES_AT_ONCE;
        for (number, out) in wide.iter_mut().enumerate() {
            weighted_sum::<{ VALUES_AT_ONCE / F32x8::LANES }, FUSED>(cache, scores, number * VALUES_AT_ONCE, out);
        }
        for (number, out) in narrow.chunks_exact_mut(F32x8::LANES).enumerate() {
            weighted_sum::<1, FUSED>(cache, scores, first_of_narrow + number * F32x8::LANES, out);
        }
    }
}

/// Dot products of a query with some keys.
#[inline(always)]
fn dots<const COUNT: usize, const FUSED: bool>(q: &[f32], keys: [&[f32]; COUNT]) -> [f32; COUNT] {
    let (q, _) = q.as_chunks::<{ F32x8::LANES }>();
    let keys = keys.map(|key| &key.as_chunks::<{ F32x8::LANES }>().0[..q.len()]);
    let mut sums = [F32x8::ZERO; COUNT];
    for (i, &q) in q.iter().enumerate() {
        for (sum, key) in sums.iter_mut().zip(keys) {
            *sum = F32x8(q).mul_add::<FUSED>(F32x8(key[i]), *sum);
        }
    }
    sums.map(|sum| sum.sum())
}

/// Softmax over the scores and the sink; the sink's weight is dropped.
fn softmax(scores: &mut [f32], scale: f32, sink: Option<f32>) {
    let largest = scores
        .iter()
        .fold(sink.unwrap_or(f32::MIN), |largest, score| largest.max(score * scale));
    scores
        .iter_mut()
        .for_each(|score| *score = (*score * scale - largest).exp());
    let total = scores.iter().sum::<f32>() + sink.map_or(0.0, |sink| (sink - largest).exp());
    scores.iter_mut().for_each(|score| *score /= total);
}

/// Weighted sum of the values over all slots, for `COUNT` times eight values from `first` on.
#[inline(always)]
fn weighted_sum<const COUNT: usize, const FUSED: bool>(
    cache: &HeadCache<'_>,
    weights: &[f32],
    first: usize,
    out: &mut [f32],
) {
    let mut sums = [F32x8::ZERO; COUNT];
    for (i, &weight) in weights.iter().enumerate() {
        let (values, _) = cache
            .values
            .row(cache.slots[i], first, COUNT * F32x8::LANES)
            .as_chunks();
        for (sum, &values) in sums.iter_mut().zip(values) {
            *sum = F32x8([weight; F32x8::LANES]).mul_add::<FUSED>(F32x8(values), *sum);
        }
    }
    out.copy_from_slice(sums.map(|sum| sum.0).as_flattened());
}
