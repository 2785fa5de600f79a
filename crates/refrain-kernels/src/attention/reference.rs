//! Attention in plain Rust.

use rayon::prelude::*;

use super::AttentionParams;
use crate::kit::dot::dot;
use crate::matmul::WeightRows;

/// Contiguous inputs of [`reference()`].
pub struct AttentionInputs<'a> {
    /// `[T, H, Dk]`.
    pub q: &'a [f32],
    /// `[slots, KVH·Dk]`.
    pub keys: &'a dyn WeightRows,
    /// `[slots, KVH·Dv]`.
    pub values: &'a dyn WeightRows,
    /// `[T]`.
    pub positions: &'a [i32],
    /// `[T]`.
    pub sequences: &'a [u32],
    /// `[S, P]`.
    pub pages: &'a [u32],
    /// `[H]`: attention sinks, a score of each head whose value is zero.
    pub sinks: Option<&'a [f32]>,
    /// H.
    pub heads: usize,
    /// KVH.
    pub kv_heads: usize,
    /// P.
    pub pages_per_sequence: usize,
}

impl AttentionInputs<'_> {
    /// Dk and Dv.
    pub(crate) fn head_dims(&self) -> [usize; 2] {
        [self.keys, self.values].map(|rows| rows.columns() / self.kv_heads)
    }
}

/// Computes attention of every token over its own sequence: `[T, H, Dv]`, row-major.
///
/// # Panics
/// Panics if the slices' lengths contradict each other.
pub fn reference(inputs: &AttentionInputs<'_>, params: &AttentionParams) -> Vec<f32> {
    let [head_dim, value_dim] = inputs.head_dims();
    let per_token = inputs.heads * value_dim;
    let mut out = vec![0.0; inputs.positions.len() * per_token];
    if out.is_empty() || inputs.keys.count() == 0 || inputs.pages.is_empty() {
        return out;
    }
    assert_eq!(inputs.sequences.len(), inputs.positions.len());
    assert_eq!(inputs.positions.len() * inputs.heads * head_dim, inputs.q.len());
    out.par_chunks_mut(per_token)
        .enumerate()
        .for_each(|(token, out)| attend(inputs, params, token, out));
    out
}

/// Returns the slots that `token` attends over, oldest first.
pub(crate) fn slots(inputs: &AttentionInputs<'_>, params: &AttentionParams, token: usize) -> Vec<usize> {
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

fn attend(inputs: &AttentionInputs<'_>, params: &AttentionParams, token: usize, out: &mut [f32]) {
    let slots = slots(inputs, params, token);
    let (heads, ratio) = (inputs.heads, inputs.heads / inputs.kv_heads);
    let [head_dim, value_dim] = inputs.head_dims();
    let q = &inputs.q[token * heads * head_dim..][..heads * head_dim];
    let mut row = vec![0.0; inputs.keys.columns()];
    let mut scores = vec![Vec::with_capacity(slots.len()); heads];
    for &slot in &slots {
        inputs.keys.read(slot, &mut row);
        for (head, scores) in scores.iter_mut().enumerate() {
            let key = &row[head / ratio * head_dim..][..head_dim];
            scores.push(dot(&q[head * head_dim..][..head_dim], key) * params.scale);
        }
    }
    for (head, scores) in scores.iter_mut().enumerate() {
        let sink = inputs.sinks.map_or(f32::MIN, |sinks| sinks[head]);
        let largest = scores.iter().copied().fold(sink, f32::max);
        scores.iter_mut().for_each(|s| *s = (*s - largest).exp());
        let total = scores.iter().sum::<f32>() + inputs.sinks.map_or(0.0, |_| (sink - largest).exp());
        scores.iter_mut().for_each(|s| *s /= total);
    }
    row.resize(inputs.values.columns(), 0.0);
    for (i, &slot) in slots.iter().enumerate() {
        inputs.values.read(slot, &mut row);
        for (head, out) in out.chunks_exact_mut(value_dim).enumerate() {
            let value = &row[head / ratio * value_dim..][..value_dim];
            let weight = scores[head][i];
            out.iter_mut().zip(value).for_each(|(o, v)| *o += weight * v);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matmul::SliceRows;

    const PARAMS: AttentionParams = AttentionParams {
        scale: 1.0,
        page_size: 2,
        window: None,
        decode: false,
        blocks: [None; 2],
    };

    /// Attends over two sequences of two pages in eight slots. A slot's value is its index and all keys are equal, so
    /// an output is the mean of the slots attended over.
    fn means(positions: &[i32], sequences: &[u32], pages: &[u32], params: &AttentionParams) -> Vec<f32> {
        let (keys, values) = ([1.0; 16], std::array::from_fn::<f32, 16, _>(|i| (i / 2) as f32));
        let q = vec![0.5; positions.len() * 2];
        let inputs = AttentionInputs {
            q: &q,
            keys: &SliceRows::new(&keys, 2),
            values: &SliceRows::new(&values, 2),
            positions,
            sequences,
            pages,
            heads: 1,
            kv_heads: 1,
            pages_per_sequence: 2,
            sinks: None,
        };
        let out = reference(&inputs, params);
        out.chunks_exact(2).map(|token| token[0]).collect()
    }

    #[test]
    fn token_attends_over_its_own_pages_up_to_its_position() {
        let pages = [3, 0, 2, 1];
        let seen = means(&[0, 1, 2, 3, 2], &[0, 0, 0, 0, 1], &pages, &PARAMS);
        assert_eq!(seen, [6.0, 6.5, 13.0 / 3.0, 3.5, 11.0 / 3.0]);
    }

    #[test]
    fn window_limits_positions_and_padding_gives_zeros() {
        let params = AttentionParams {
            window: Some(2),
            decode: false,
            ..PARAMS
        };
        assert_eq!(means(&[3, -1, 0], &[0, 9, 0], &[3, 0, 2, 1], &params), [0.5, 0.0, 6.0]);
    }

    #[test]
    fn out_of_range_sequences_and_pages_are_clamped() {
        // Sequence 9 and page 77 are clamped to the last ones; position 5 is beyond the table.
        let seen = means(&[1, 5], &[9, 9], &[0, 0, 77, 1], &PARAMS);
        assert_eq!(seen, [6.5, 4.5]);
    }

    #[test]
    fn grouped_query_heads_share_kv_heads() {
        let keys = [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0];
        let values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        let q = [2.0, 0.0, 0.0, 0.0, 0.0, 3.0, 0.0, 0.0];
        let inputs = AttentionInputs {
            q: &q,
            keys: &SliceRows::new(&keys, 4),
            values: &SliceRows::new(&values, 4),
            positions: &[1],
            sequences: &[0],
            pages: &[0],
            heads: 4,
            kv_heads: 2,
            pages_per_sequence: 1,
            sinks: None,
        };
        let out = reference(&inputs, &PARAMS);
        let weight = |score: f32| score.exp() / (1.0 + score.exp());
        let expected = [1.0 + 4.0 * weight(2.0), 3.0, 3.0 + 4.0 * weight(3.0), 5.0];
        for (head, expected) in out.chunks_exact(2).zip(expected) {
            assert!((head[0] - expected).abs() < 1e-5, "{out:?}");
        }
    }

    #[test]
    fn value_heads_may_differ_in_size_from_key_heads() {
        let inputs = AttentionInputs {
            q: &[1.0, 0.0],
            keys: &SliceRows::new(&[2.0, 0.0, 3.0, 0.0], 2),
            values: &SliceRows::new(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], 4),
            positions: &[1],
            sequences: &[0],
            pages: &[0],
            sinks: None,
            heads: 1,
            kv_heads: 1,
            pages_per_sequence: 1,
        };
        let weight = 1.0 / (1.0 + (-1f32).exp());
        let expected = [1.0, 2.0, 3.0, 4.0].map(|first| first + 4.0 * weight);
        let out = reference(&inputs, &PARAMS);
        assert_eq!(out.len(), 4);
        assert!(out.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5), "{out:?}");
    }

    #[test]
    fn sink_adds_to_the_softmax_denominator() {
        let inputs = AttentionInputs {
            q: &[1.0, 0.0, 1.0, 0.0],
            keys: &SliceRows::new(&[2.0, 0.0, 3.0, 0.0], 2),
            values: &SliceRows::new(&[1.0, 2.0, 3.0, 4.0], 2),
            positions: &[1],
            sequences: &[0],
            pages: &[0],
            sinks: Some(&[4.0, -100.0]),
            heads: 2,
            kv_heads: 1,
            pages_per_sequence: 1,
        };
        let out = reference(&inputs, &PARAMS);
        let [a, b, sink] = [2f32, 3.0, 4.0].map(f32::exp);
        let expected = [(a + 3.0 * b) / (a + b + sink), (a + 3.0 * b) / (a + b)];
        for (head, expected) in out.chunks_exact(2).zip(expected) {
            assert!((head[0] - expected).abs() < 1e-5, "{out:?}");
        }
    }
}
