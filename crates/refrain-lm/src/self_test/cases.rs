//! Test cases: small random programs, at least one per family.

use refrain::self_test::{FLOATS, FamilyTest, RandomArrays, named, quantised};
use refrain::{Array, DType, Device, QuantFormat, fast};

use crate::sample::Settings;
use crate::{
    AttentionParams, BatchTokens, BlockFormat, RopeParams, Sequences, causal_conv, causal_conv_results,
    causal_conv_state, expert_matmul, gated_delta, gated_delta_from, gated_delta_results, gated_delta_state,
    paged_attention, sample, slots, store_rows,
};

/// The families of this crate's operations.
pub const FAMILIES: &[FamilyTest] = &[
    ("RoPE", rope),
    ("attention", attention),
    ("mixture of experts", experts),
    ("recurrence", recurrences),
    ("sampling", sampling),
];

fn rope(device: &Device) -> Vec<(String, Array)> {
    let mut source = RandomArrays::new(device);
    let frequencies: Vec<f32> = (0..32).map(|i| 1e4f32.powf(-(i as f32) / 32.0)).collect();
    let frequencies = Array::from_slice(device, &frequencies, &[32]);
    // Large positions: angles of thousands of turns.
    let positions = source.positions(30_000, 6);
    let program = |(interleaved, dtype)| {
        let params = RopeParams {
            interleaved,
            ..RopeParams::new(64)
        };
        let x = source.floats(dtype, &[6, 2, 64]);
        let pairs = if interleaved { "interleaved" } else { "split halves" };
        let rotated = crate::rope(&x, &positions, &frequencies, params);
        named(format!("{pairs} of {dtype}"), rotated)
    };
    [(false, DType::F32), (true, DType::F32), (false, DType::F16)]
        .into_iter()
        .map(program)
        .collect()
}

fn attention(device: &Device) -> Vec<(String, Array)> {
    let mut source = RandomArrays::new(device);
    let mut results = Vec::new();
    for cache in FLOATS {
        let keys = source.floats(cache, &[768, 2, 64]);
        let values = source.floats(cache, &[768, 2, 64]);
        let pages: Vec<u32> = vec![2, 0, 1];
        let pages = Array::from_slice(device, &pages, &[1, 3]);
        for (what, tokens, first, window) in [
            ("one token", 1, 700, None),
            ("a prompt", 24, 60, None),
            ("a window", 3, 300, Some(50)),
        ] {
            let params = AttentionParams {
                window,
                decode: tokens == 1,
                ..AttentionParams::new(64, 256)
            };
            let tokens = BatchTokens {
                positions: &source.positions(first, tokens),
                sequences: &Array::zeros(device, DType::U32, &[tokens as usize]),
                pages: &pages,
            };
            let q = source.floats(DType::F32, &[tokens.positions.count(), 4, 64]);
            if cache == DType::F32 {
                results.push(named(format!("slots of {what}"), slots(tokens, 256)));
            }
            let attn_out = paged_attention(&q, &keys, &values, tokens, params);
            results.push(named(format!("{what} over {cache}"), attn_out));
        }
    }
    results.extend(fused_prompt(device, &mut source));
    results.extend(
        BlockFormat::ALL
            .into_iter()
            .flat_map(|format| blocks(device, &mut source, format)),
    );
    results
}

/// A prompt and a token over a cache in a block format, which is written just before.
fn blocks(device: &Device, source: &mut RandomArrays, format: BlockFormat) -> Vec<(String, Array)> {
    let shape = [768, 2, format.words(64)];
    let case = |(what, tokens, first): (&str, i32, i32)| {
        // If states cannot be allocated, the other cases still run.
        let state = || Array::state(device, DType::U32, &shape).ok();
        let (keys, values) = (state()?, state()?);
        let pages = Array::from_slice(device, &[2u32, 0, 1], &[1, 3]);
        let tokens = BatchTokens {
            positions: &source.positions(first, tokens),
            sequences: &Array::zeros(device, DType::U32, &[tokens as usize]),
            pages: &pages,
        };
        let count = tokens.positions.count();
        let slots = slots(tokens, 256);
        let [keys, values] = [keys, values].map(|state| {
            let rows = source.floats(DType::F32, &[count, 2, 64]);
            store_rows(&state, &rows, &slots, Some(format))
        });
        let params = AttentionParams {
            decode: count == 1,
            blocks: [Some(format); 2],
            ..AttentionParams::new(64, 256)
        };
        let q = source.floats(DType::F32, &[count, 4, 64]);
        let attn_out = paged_attention(&q, &keys, &values, tokens, params);
        Some(named(format!("{what} over {}", format.name), attn_out))
    };
    [("one token", 1, 300), ("a prompt", 24, 0)]
        .into_iter()
        .filter_map(case)
        .collect()
}

/// A prompt with norms and RoPE of queries and keys, and writes of keys and values to the cache before attention.
fn fused_prompt(device: &Device, source: &mut RandomArrays) -> Option<(String, Array)> {
    // If states cannot be allocated, the other cases still run.
    let state = || Array::state(device, DType::F16, &[256, 2, 64]).ok();
    let (keys, values) = (state()?, state()?);
    let pages = Array::from_slice(device, &[0u32], &[1, 1]);
    let tokens = BatchTokens {
        positions: &source.positions(0, 24),
        sequences: &Array::zeros(device, DType::U32, &[24]),
        pages: &pages,
    };
    let frequencies: Vec<f32> = (0..32).map(|i| 1e4f32.powf(-(i as f32) / 32.0)).collect();
    let frequencies = Array::from_slice(device, &frequencies, &[32]);
    let [q, k] = [4, 2].map(|heads| {
        let x = source.floats(DType::F32, &[24, heads, 64]);
        let x = fast::rms_norm(&x, Some(&source.floats(DType::F32, &[64])), 1e-6);
        crate::rope(&x, tokens.positions, &frequencies, RopeParams::new(64))
    });
    let slots = slots(tokens, 256);
    let keys = keys.write_rows(&k, &slots);
    let values = values.write_rows(&source.floats(DType::F32, &[24, 2, 64]), &slots);
    let attn_out = paged_attention(&q, &keys, &values, tokens, AttentionParams::new(64, 256));
    Some(named("a prompt with norms, RoPE and cache writes", attn_out))
}

fn experts(device: &Device) -> Vec<(String, Array)> {
    let mut source = RandomArrays::new(device);
    // Includes an expert that does not exist.
    let routed = source.indices(&[5, 2], 4);
    let x = source.floats(DType::F32, &[5, 1, 256]);
    let dense = source.floats(DType::F16, &[3 * 24, 256]);
    let weight = quantised(&mut source, QuantFormat::Q4_0, 3 * 24, 256);
    vec![
        named("f16", expert_matmul(&x, &routed, dense, 24)),
        named("q4_0", expert_matmul(&x, &routed, weight, 24)),
    ]
}

fn recurrences(device: &Device) -> Vec<(String, Array)> {
    let mut source = RandomArrays::new(device);
    let positions = source.positions(0, 5);
    let sequences = Array::from_slice(device, &[0u32; 5], &[5]);
    let pages = Array::from_slice(device, &[0u32], &[1, 1]);
    let tokens = BatchTokens {
        positions: &positions,
        sequences: &sequences,
        pages: &pages,
    };
    let state = |shape: &[usize]| Array::state(device, DType::F32, shape);
    // If states cannot be allocated, the other cases still run.
    let (Ok(conv_state), Ok(delta_state)) = (state(&[1, 3, 40]), state(&[1, 4, 16, 32])) else {
        return vec![];
    };
    let (x, weights) = (source.floats(DType::F32, &[5, 40]), source.floats(DType::F32, &[40, 4]));
    let [q, k] = [(); 2].map(|()| source.floats(DType::F32, &[5, 2, 32]));
    let v = source.floats(DType::F32, &[5, 4, 16]);
    let [decay, beta] = [(); 2].map(|()| source.floats(DType::F32, &[5, 4]));
    let from = source.floats(DType::F32, &[1, 4, 16, 32]);
    let places = [&source.positions(3, 5), &sequences];
    let (outputs, last) = gated_delta_from([&q, &k, &v], [&decay, &beta], places, &from);
    // What is computed without the other, for a state that does not change, and one that then does.
    let conv_results = causal_conv_results(&x, &weights, tokens, &conv_state);
    let delta_results = gated_delta_results([&q, &k, &v], [&decay, &beta], tokens, &delta_state);
    let (Ok(other_conv), Ok(other_delta)) = (state(&[1, 3, 40]), state(&[1, 4, 16, 32])) else {
        return vec![];
    };
    let begin = [&positions, &sequences];
    vec![
        named("delta rule from a state", outputs),
        named("the last state of a delta rule", last),
        named("convolution without an update", conv_results),
        named("delta rule without an update", delta_results),
        named(
            "the state of a convolution",
            causal_conv_state(&x, &weights, begin, &other_conv),
        ),
        named(
            "the state of a delta rule",
            gated_delta_state([&q, &k, &v], [&decay, &beta], begin, &other_delta),
        ),
        named("convolution", causal_conv(&x, &weights, tokens, &conv_state).0),
        named(
            "delta rule",
            gated_delta([&q, &k, &v], [&decay, &beta], tokens, &delta_state).0,
        ),
    ]
}

fn sampling(device: &Device) -> Vec<(String, Array)> {
    const VOCABULARY: usize = 5000;
    let mut source = RandomArrays::new(device);
    // If states cannot be allocated, the other cases still run.
    let Ok(sequences) = Sequences::new(device, 4, VOCABULARY, 2, 1) else {
        return vec![];
    };
    let settings = |(sequence, [temperature, top_p, min_p]): (u32, [f32; 3])| Settings {
        temperature,
        top_k: if sequence == 1 { 40 } else { 0 },
        top_p,
        min_p,
        sequence,
        ..Settings::default()
    };
    let kinds = [[0.0, 1.0, 0.0], [0.8, 0.9, 0.05], [1.0, 0.7, 0.0], [1.2, 1.0, 0.0]];
    let words = (0..)
        .zip(kinds)
        .map(settings)
        .filter_map(|settings| settings.encode().ok());
    let words: Vec<u32> = words.flatten().collect();
    let words = Array::from_slice(device, &words, &[kinds.len(), Settings::WORDS]);
    let logits = &source.floats(DType::F32, &[kinds.len(), VOCABULARY]) * 8.0;
    let (tokens, _) = sample(&logits, &words, &sequences, None);
    vec![named("greedy and random", tokens)]
}
