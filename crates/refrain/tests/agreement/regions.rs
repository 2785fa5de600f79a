//! Random layers, with and without regions, on both executors.

use refrain::passes::LowerOptions;
use refrain::{Array, DType, Device, Function, QuantFormat, Quantised, concatenate, fast};
use refrain_lm::{AttentionParams, BatchTokens, RopeParams, paged_attention, paged_attention_with_sinks, slots};
use refrain_testing::sample;

use crate::assert_alike;
use crate::common::{Random, assert_silent, vulkan};

enum Weight {
    Dense(Array),
    Quantised(Quantised),
}

impl Weight {
    fn random(device: &Device, random: &mut Random, rows: usize, columns: usize) -> Weight {
        let format = match random.below(4) {
            0 => return Weight::Dense(random.dense(device, random.clone().pick(&FLOATS), &[rows, columns]) * 0.125),
            1 => QuantFormat::Q8_0,
            2 => QuantFormat::mlx(4, 64),
            _ => QuantFormat::Q4_0,
        };
        let bits: Vec<u32> = (0..rows * format.words(columns))
            .map(|_| random.bits() as u32)
            .collect();
        let groups = [rows, format.scales(columns)];
        let mut scales = || (random.dense(device, DType::F32, &groups) * 0.0625).astype(DType::F16);
        Weight::Quantised(Quantised {
            format,
            quants: Array::from_slice(device, &bits, &[rows, format.words(columns)]),
            scales: scales(),
            biases: format.has_biases().then(&mut scales),
        })
    }

    fn matmul(&self, x: &Array) -> Array {
        match self {
            Weight::Dense(w) => x.matmul(&w.transpose()),
            Weight::Quantised(w) => w.matmul(x),
        }
    }

    fn eval(&self) {
        let planes = match self {
            Weight::Dense(w) => vec![w],
            Weight::Quantised(w) => [&w.scales].into_iter().chain(&w.biases).collect(),
        };
        refrain::eval(&planes).expect("planes");
    }
}

const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];
const HIDDEN: usize = 128;

/// A random activation function of feed-forward networks.
fn activation(random: &mut Random, x: &Array) -> Array {
    match random.below(5) {
        0 => x.silu(),
        1 => x.tanh(),
        2 => x * ((x * 0.5f32.sqrt()).erf() + 1.0) * 0.5,
        3 => x * ((x * 1.595_769 * (x * x * 0.044_715 + 1.0)).sigmoid()),
        _ => x.maximum(0.0) * x,
    }
}

/// A random layer without attention over a cache: norms before and after, or none; norms of queries and keys; biases,
/// gates, sequential or parallel blocks, soft-capped results.
fn layer(device: &Device, random: &mut Random, x: &Array) -> Array {
    let tokens = x.dim(0) as isize;
    let stored = |random: &mut Random, shape: &[usize]| {
        let array = random.dense(device, DType::F32, shape) * 0.25;
        array.eval().expect("a weight");
        array
    };
    let product = |random: &mut Random, x: &Array, rows: usize| {
        let weight = Weight::random(device, random, rows, x.dim(-1));
        weight.eval();
        let y = weight.matmul(x);
        if random.one_in(3) {
            y + stored(random, &[rows])
        } else {
            y
        }
    };
    let norm_weight = stored(random, &[HIDDEN]);
    let norm = |x: &Array| fast::rms_norm(x, Some(&norm_weight), 1e-5);
    let h = if random.one_in(4) { x.clone() } else { norm(x) };
    let [q, k, v] = [64, 32, 32].map(|rows| product(random, &h, rows).reshape(&[tokens, -1, 16]));
    let head_norm_weight = stored(random, &[16]);
    let [q, k] = [q, k].map(|heads| match random.below(3) {
        0 => heads,
        1 => fast::rms_norm(&heads, None, 1e-6),
        _ => fast::rms_norm(&heads, Some(&head_norm_weight), 1e-6),
    });
    let [k, v] = [k, v].map(|heads| concatenate(&[&heads, &heads], 1).swap_axes(0, 1));
    let scores = q.swap_axes(0, 1).matmul(&k.swap_axes(-1, -2)) * 0.125;
    let attn_out = scores.softmax().matmul(&v).swap_axes(0, 1).reshape(&[tokens, -1]);
    let attn_out = if random.one_in(3) {
        attn_out * product(random, &h, 64).sigmoid()
    } else {
        attn_out
    };
    let o = product(random, &attn_out, HIDDEN);
    let between = if random.one_in(3) { x + norm(&o) } else { x + o };
    let h = match random.below(4) {
        0 => between.clone(),
        // In parallel with attention.
        1 => h,
        _ => norm(&between),
    };
    let [gate, up] = if random.one_in(3) {
        product(random, &h, 2 * 128).split(-1)
    } else {
        [0, 1].map(|_| product(random, &h, 128))
    };
    let gate = activation(random, &gate);
    let inner = (if random.one_in(4) { gate } else { gate * up }).reshape(&[tokens, -1]);
    let inner = if random.one_in(3) { inner.slice(1, 0, 64) } else { inner };
    let y = product(random, &inner, HIDDEN);
    match random.below(3) {
        0 => &between + norm(&y),
        1 => ((&between + y) * 0.015_625).tanh() * 64.0,
        _ => &between + y,
    }
}

#[test]
fn layers_agree_with_and_without_regions() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let mut normed = 0;
    for seed in 700..710 {
        let mut results: Vec<Vec<f32>> = Vec::new();
        for device in [&Device::cpu(), vulkan()] {
            for regions in [false, true] {
                let random = &mut Random::new(seed);
                let tokens = random.pick(&[1, 1, 3, 8]);
                let x = Array::input(device, "x", DType::F32, &[tokens, HIDDEN]);
                let y = layer(device, random, &x);
                let options = LowerOptions {
                    regions,
                    ..LowerOptions::default()
                };
                let function = Function::trace_with(&[&y], options).expect("a layer that lowers");
                let joined = function.plan().to_string().contains("projection of rms_norm");
                assert!(regions || !joined, "{}", function.plan());
                normed += usize::from(joined);
                let values: Vec<f32> = (0..tokens * HIDDEN).map(|_| random.unit()).collect();
                function
                    .call_bytes(&[("x", bytemuck::cast_slice(&values))])
                    .expect("a call");
                results.push(function.read(0).expect("the result"));
            }
        }
        // Soft-capped results are smaller than the numbers that were rounded.
        assert_alike(&format!("seed {seed}"), &results, 3e-4);
    }
    assert!(normed > 10, "{normed} of 20 plans");
    assert_silent();
}

/// Attention over a paged cache with random options: the states of keys and values, and the result with their next
/// versions.
pub fn attention(device: &Device, random: &mut Random, tokens: usize, decode: bool) -> ([Array; 2], [Array; 3]) {
    const PAGE: usize = 4;
    let (kv_heads, group, d) = (random.pick(&[1, 2]), random.pick(&[1, 3]), random.pick(&[8, 20]));
    let value_dim = random.pick(&[d, 12]);
    let dtype = random.pick(&FLOATS);
    let [keys, values] =
        [d, value_dim].map(|d| Array::state(device, dtype, &[tokens * 4 * PAGE, kv_heads, d]).expect("a small state"));
    let input = |name: &str, dtype| Array::input(device, name, dtype, &[tokens]);
    let [positions, sequences] = [("positions", DType::I32), ("sequences", DType::U32)].map(|(n, t)| input(n, t));
    let pages: Vec<u32> = random.order(tokens * 4).into_iter().map(|p| p as u32).collect();
    let pages = Array::from_slice(device, &pages, &[tokens, 4]);
    let batch = BatchTokens {
        positions: &positions,
        sequences: &sequences,
        pages: &pages,
    };
    let weight = |random: &mut Random, shape: &[usize]| {
        let array = random.dense(device, DType::F32, shape) * 0.125;
        array.eval().expect("a weight");
        array
    };
    let x = Array::input(device, "x", DType::F32, &[tokens, HIDDEN]);
    let heads = |random: &mut Random, [heads, d]: [usize; 2]| {
        let y = x.matmul(&weight(random, &[heads * d, HIDDEN]).transpose());
        let y = y.reshape(&[tokens as isize, heads as isize, d as isize]);
        let norm_weight = weight(random, &[d]);
        if random.one_in(2) {
            y
        } else {
            fast::rms_norm(&y, Some(&norm_weight), 1e-6)
        }
    };
    let [q, k, v] = [[kv_heads * group, d], [kv_heads, d], [kv_heads, value_dim]].map(|n| heads(random, n));
    let rope = RopeParams {
        dims: d / 4 * 2,
        interleaved: random.one_in(2),
        scale: 1.0,
    };
    let frequencies = weight(random, &[rope.dims / 2]).abs();
    frequencies.eval().expect("a weight");
    let rotated = !random.one_in(3);
    let turned = |x: Array| {
        if rotated {
            refrain_lm::rope(&x, &positions, &frequencies, rope)
        } else {
            x
        }
    };
    let [q, k] = [q, k].map(turned);
    let slots = slots(batch, PAGE);
    let states = [keys.clone(), values.clone()];
    let (keys, values) = (keys.write_rows(&k, &slots), values.write_rows(&v, &slots));
    let params = AttentionParams {
        scale: 0.3,
        page_size: PAGE as u32,
        window: random.pick(&[None, Some(5)]),
        decode,
        blocks: [None; 2],
    };
    let sinks = random.one_in(2).then(|| weight(random, &[kv_heads * group]));
    let attn_out = match sinks {
        Some(sinks) => paged_attention_with_sinks(&q, &keys, &values, batch, &sinks, params),
        None => paged_attention(&q, &keys, &values, batch, params),
    };
    (states, [attn_out * 2.0, keys, values])
}

/// The result of attention for the next tokens.
fn attended(function: &Function, x: &[f32], positions: &[i32], sequences: &[u32]) -> Vec<f32> {
    let arguments: [(&str, &[u8]); 3] = [
        ("x", bytemuck::cast_slice(x)),
        ("positions", bytemuck::cast_slice(positions)),
        ("sequences", bytemuck::cast_slice(sequences)),
    ];
    function.call_bytes(&arguments).expect("a call");
    function.read(0).expect("the result")
}

fn kept(state: Array) -> Vec<f32> {
    state.astype(DType::F32).to_vec().expect("the state")
}

#[test]
fn attention_of_single_tokens_agrees_with_and_without_regions_over_several_steps() {
    if !refrain_testing::drawn(6) {
        return;
    }
    for seed in sample(720..726, 6) {
        let mut results: Vec<Vec<f32>> = Vec::new();
        for device in [&Device::cpu(), vulkan()] {
            for regions in [false, true] {
                let random = &mut Random::new(seed);
                let tokens = random.pick(&[1, 3]);
                let (states, outputs) = attention(device, random, tokens, true);
                let options = LowerOptions {
                    regions,
                    ..LowerOptions::default()
                };
                let function = Function::trace_with(&outputs.each_ref(), options).expect("a step that lowers");
                let plan = function.plan().to_string();
                assert_eq!(plan.contains("decode_attention"), regions, "{plan}");
                assert_eq!(plan.contains("write_rows"), !regions, "{plan}");
                let mut found = Vec::new();
                for step in 0..7 {
                    let x: Vec<f32> = (0..tokens * HIDDEN).map(|_| random.unit()).collect();
                    // The second sequence pauses at times.
                    let position = |t: usize| if t == 1 && step % 3 == 1 { -1 } else { (step + t) as i32 };
                    let positions: Vec<i32> = (0..tokens).map(position).collect();
                    let sequences: Vec<u32> = (0..tokens as u32).collect();
                    found.extend(attended(&function, &x, &positions, &sequences));
                }
                found.extend(states.into_iter().flat_map(kept));
                results.push(found);
            }
        }
        // Rounding to the dtype of the states may differ.
        assert_alike(&format!("seed {seed}"), &results, 1e-2);
    }
    assert_silent();
}

#[test]
fn attention_of_prompts_agrees_with_and_without_regions_over_several_chunks() {
    if !refrain_testing::drawn(6) {
        return;
    }
    const TOKENS: usize = 5;
    for seed in sample(730..742, 6) {
        let mut results: Vec<Vec<f32>> = Vec::new();
        for device in [&Device::cpu(), vulkan()] {
            for regions in [false, true] {
                let random = &mut Random::new(seed);
                let (states, outputs) = attention(device, random, TOKENS, false);
                let options = LowerOptions {
                    regions,
                    ..LowerOptions::default()
                };
                let function = Function::trace_with(&outputs.each_ref(), options).expect("a chunk that lowers");
                let plan = function.plan().to_string();
                let joined = plan.contains("prepare_attention");
                assert!(regions || !joined, "{plan}");
                assert!(!(regions && plan.contains("= rope")), "{plan}");
                assert_eq!(plan.contains("write_rows"), !joined, "{plan}");
                let mut found = Vec::new();
                for chunk in 0..3 {
                    let x: Vec<f32> = (0..TOKENS * HIDDEN).map(|_| random.unit()).collect();
                    // Three tokens of one sequence and two of another, the last of which may be padding.
                    let position = |t: i32| match t {
                        0..3 => 3 * chunk + t,
                        3 => 2 * chunk,
                        _ => [2 * chunk + 1, -1][usize::from(chunk == 1)],
                    };
                    let positions: Vec<i32> = (0..TOKENS as i32).map(position).collect();
                    found.extend(attended(&function, &x, &positions, &[0, 0, 0, 1, 1]));
                }
                found.extend(states.into_iter().flat_map(kept));
                results.push(found);
            }
        }
        assert_alike(&format!("seed {seed}"), &results, 1e-2);
    }
    assert_silent();
}
