use rayon::prelude::*;

use super::Params;
use crate::matmul::{Rows, dot};

/// Contiguous inputs of [`reference`].
pub struct Inputs<'a> {
    /// `[T, H, D]`.
    pub q: &'a [f32],
    /// `[slots, KVH·D]`.
    pub keys: &'a dyn Rows,
    /// `[slots, KVH·D]`.
    pub values: &'a dyn Rows,
    /// `[T]`.
    pub positions: &'a [i32],
    /// `[T]`.
    pub sequences: &'a [u32],
    /// `[S, P]`.
    pub pages: &'a [u32],
    /// H.
    pub heads: usize,
    /// KVH.
    pub kv_heads: usize,
    /// P.
    pub pages_per_sequence: usize,
}

/// Attention of every token over its own sequence's slots: `[T, H, D]`, row-major.
///
/// # Panics
/// When the slices' lengths contradict each other.
pub fn reference(inputs: &Inputs<'_>, params: &Params) -> Vec<f32> {
    let mut out = vec![0.0; inputs.q.len()];
    if out.is_empty() || inputs.keys.count() == 0 || inputs.pages.is_empty() {
        return out;
    }
    let per_token = out.len() / inputs.positions.len();
    assert_eq!(inputs.sequences.len(), inputs.positions.len());
    assert_eq!(
        inputs.heads * (inputs.keys.columns() / inputs.kv_heads),
        per_token
    );
    out.par_chunks_mut(per_token)
        .enumerate()
        .for_each(|(token, out)| attend(inputs, params, token, out));
    out
}

/// The slots that `token` attends over, oldest first.
fn slots(inputs: &Inputs<'_>, params: &Params, token: usize) -> Vec<usize> {
    let position = inputs.positions[token];
    if position < 0 {
        return Vec::new();
    }
    let (position, page_size) = (position as usize, params.page_size as usize);
    let table = inputs.pages_per_sequence;
    let sequence = (inputs.sequences[token] as usize).min(inputs.pages.len() / table - 1);
    let pages = &inputs.pages[sequence * table..][..table];
    let first = params
        .window
        .map_or(0, |window| (position + 1).saturating_sub(window as usize));
    let last_slot = inputs.keys.count() - 1;
    (first..(position + 1).min(table * page_size))
        .map(|p| {
            let page = (pages[p / page_size] as usize).min(last_slot / page_size);
            (page * page_size + p % page_size).min(last_slot)
        })
        .collect()
}

fn attend(inputs: &Inputs<'_>, params: &Params, token: usize, out: &mut [f32]) {
    let slots = slots(inputs, params, token);
    let (heads, ratio) = (inputs.heads, inputs.heads / inputs.kv_heads);
    let head_dim = out.len() / heads;
    let q = &inputs.q[token * out.len()..][..out.len()];
    let mut row = vec![0.0; inputs.keys.columns()];
    let mut scores = vec![Vec::with_capacity(slots.len()); heads];
    for &slot in &slots {
        inputs.keys.read(slot, &mut row);
        for (head, scores) in scores.iter_mut().enumerate() {
            let key = &row[head / ratio * head_dim..][..head_dim];
            scores.push(dot(&q[head * head_dim..][..head_dim], key) * params.scale);
        }
    }
    for scores in &mut scores {
        let largest = scores.iter().copied().fold(f32::MIN, f32::max);
        scores.iter_mut().for_each(|s| *s = (*s - largest).exp());
        let total: f32 = scores.iter().sum();
        scores.iter_mut().for_each(|s| *s /= total);
    }
    for (i, &slot) in slots.iter().enumerate() {
        inputs.values.read(slot, &mut row);
        for (head, out) in out.chunks_exact_mut(head_dim).enumerate() {
            let value = &row[head / ratio * head_dim..][..head_dim];
            let weight = scores[head][i];
            out.iter_mut()
                .zip(value)
                .for_each(|(o, v)| *o += weight * v);
        }
    }
}
