//! Small random programs, one or more for each kernel family.

use crate::fast::{self, BatchTokens, Sequences};
use crate::sample::Settings;
use crate::{Array, AttentionParams, DType, Device, QuantFormat, Quantised, RopeParams, concatenate};

/// Builds a family's programs on a device: named results, the same on every device.
pub(super) type Build = fn(&Device) -> Vec<(String, Array)>;

/// A family's name, and its programs.
pub(super) type Family = (&'static str, Build);

/// Every family that has kernels.
pub(super) const FAMILIES: &[Family] = &[
    ("elementwise", elementwise),
    ("reduce", reduce),
    ("softmax", softmax),
    ("argmax", argmax),
    ("top-k", top_k),
    ("sort", sort),
    ("gather", gather),
    ("write rows", write_rows),
    ("matrix product", products),
    ("quantised product", quantised_products),
    ("RMS norm", rms_norm),
    ("RoPE", rope),
    ("attention", attention),
    ("mixture of experts", experts),
    ("recurrence", recurrences),
    ("sampling", sampling),
];

const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

/// Random elements, the same on every device.
struct Source<'a> {
    device: &'a Device,
    state: u64,
}

impl<'a> Source<'a> {
    fn new(device: &'a Device) -> Self {
        Self { device, state: 1 }
    }

    /// SplitMix64 (Steele, Lea and Flood, 2014).
    fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn words(&mut self, shape: &[usize]) -> Array {
        let words: Vec<u32> = (0..shape.iter().product()).map(|_| self.bits() as u32).collect();
        Array::from_slice(self.device, &words, shape)
    }

    /// Indices below `end`.
    fn indices(&mut self, shape: &[usize], end: u32) -> Array {
        let count: usize = shape.iter().product();
        let indices: Vec<u32> = (0..count).map(|_| (self.bits() % u64::from(end)) as u32).collect();
        Array::from_slice(self.device, &indices, shape)
    }

    /// Floats between -1 and 1.
    fn floats(&mut self, dtype: DType, shape: &[usize]) -> Array {
        let count: usize = shape.iter().product();
        let unit = |bits: u64| (bits >> 40) as f32 / (1 << 23) as f32 - 1.0;
        let values: Vec<f32> = (0..count).map(|_| unit(self.bits())).collect();
        Array::from_slice(self.device, &values, shape).astype(dtype)
    }

    /// The numbers from 0 on in a random order: no two are equal.
    fn shuffled(&mut self, shape: &[usize]) -> Array {
        let count: usize = shape.iter().product();
        let mut values: Vec<f32> = (0..count).map(|value| value as f32).collect();
        for last in (1..count).rev() {
            values.swap(last, (self.bits() % (last as u64 + 1)) as usize);
        }
        Array::from_slice(self.device, &values, shape)
    }

    fn positions(&self, first: i32, count: i32) -> Array {
        let positions: Vec<i32> = (first..first + count).collect();
        Array::from_slice(self.device, &positions, &[count as usize])
    }
}

fn named(name: impl ToString, array: Array) -> (String, Array) {
    (name.to_string(), array)
}

fn elementwise(device: &Device) -> Vec<(String, Array)> {
    let mut source = Source::new(device);
    let program = |dtype| {
        let (x, y) = (source.floats(dtype, &[7, 33]), source.floats(dtype, &[33]));
        let chain = (&x * &y + 0.5).silu().maximum(x.sin() * y.exp());
        named(dtype, x.gt(&y).select(&chain, x.abs().sqrt()))
    };
    let mut results: Vec<_> = FLOATS.into_iter().map(program).collect();
    let words = source.words(&[65]);
    let low = words.bit_and(255);
    results.push(named("u32", low.clone()));
    results.push(named("u8 from u32", low.astype(DType::U8)));
    results.push(named("joined", concatenate(&[&low, &low], 0)));
    results
}

fn reduce(device: &Device) -> Vec<(String, Array)> {
    let mut source = Source::new(device);
    let mut results = Vec::new();
    for dtype in FLOATS {
        let x = source.floats(dtype, &[5, 300]);
        results.push(named(format!("sum of {dtype}"), x.sum(&[-1])));
        results.push(named(format!("mean of {dtype}"), x.mean(&[0, 1])));
        results.push(named(format!("max of {dtype}"), x.max(&[0])));
        results.push(named(format!("min of {dtype}"), x.min(&[1])));
    }
    let x = source.floats(DType::F32, &[5, 30]);
    results.push(named("product", (&x + 2.0).prod(&[1])));
    let positive = x.gt(-0.9);
    results.push(named("all", positive.all(&[1])));
    results.push(named("any", positive.any(&[1])));
    results
}

fn softmax(device: &Device) -> Vec<(String, Array)> {
    let mut source = Source::new(device);
    let program = |dtype| named(dtype, (source.floats(dtype, &[3, 777]) * 8.0).softmax());
    FLOATS.into_iter().map(program).collect()
}

fn argmax(device: &Device) -> Vec<(String, Array)> {
    let mut source = Source::new(device);
    let few = source.shuffled(&[6, 50]).argmax();
    vec![
        named("rows of 50", few),
        named("a row of 5000", source.shuffled(&[1, 5000]).argmax()),
    ]
}

fn top_k(device: &Device) -> Vec<(String, Array)> {
    let mut source = Source::new(device);
    let few = source.shuffled(&[4, 64]).top_k(8);
    vec![
        named("8 of 64", few),
        named("40 of 3000", source.shuffled(&[1, 3000]).top_k(40)),
    ]
}

fn sort(device: &Device) -> Vec<(String, Array)> {
    let mut source = Source::new(device);
    let few = source.shuffled(&[4, 64]).sort(-1);
    vec![
        named("rows of 64", few),
        named("a row of 3000", source.shuffled(&[1, 3000]).sort(-1)),
    ]
}

fn gather(device: &Device) -> Vec<(String, Array)> {
    let mut source = Source::new(device);
    let mut results = Vec::new();
    for dtype in FLOATS {
        let (table, rows) = (source.floats(dtype, &[20, 48]), source.indices(&[9], 20));
        results.push(named(format!("rows of {dtype}"), table.take(&rows, 0)));
        let places = source.indices(&[20, 5], 48);
        results.push(named(format!("elements of {dtype}"), table.take_along(&places)));
    }
    results
}

fn write_rows(device: &Device) -> Vec<(String, Array)> {
    let mut source = Source::new(device);
    let mut results = Vec::new();
    for dtype in FLOATS {
        let slots: Vec<i32> = vec![3, 0, -1, 2, 1];
        let slots = Array::from_slice(device, &slots, &[5]);
        // Without memory for a state, the others tell.
        if let Ok(state) = Array::state(device, dtype, &[4, 3, 16]) {
            let rows = source.floats(DType::F32, &[5, 3, 16]);
            results.push(named(dtype, state.write_rows(&rows.astype(dtype), &slots)));
        }
    }
    results
}

fn products(device: &Device) -> Vec<(String, Array)> {
    let mut source = Source::new(device);
    let mut results = Vec::new();
    for dtype in FLOATS {
        let weight = source.floats(dtype, &[72, 256]);
        for tokens in [1, 5, 70] {
            let x = source.floats(DType::F32, &[tokens, 256]);
            let name = format!("{tokens} rows of f32 times {dtype}");
            results.push(named(name, x.matmul(&weight.transpose())));
        }
        let square = source.floats(dtype, &[1, 256]).matmul(&weight.transpose());
        results.push(named(format!("{dtype} times {dtype}"), square));
    }
    results
}

/// A matrix `[n, k]` with random quants and scales of ±1.
fn quantised(source: &mut Source<'_>, format: QuantFormat, n: usize, k: usize) -> Quantised {
    let groups = [n, format.scales(k)];
    let scales = match DType::of_scales(format, DType::F16) {
        // Each record begins with two factors in f16: these bits keep them below 1/32.
        DType::U32 => {
            let record = format.scales(256);
            let mask: Vec<u32> = (0..n * groups[1])
                .map(|word| if word % record == 0 { 0xa7ff_a7ff } else { u32::MAX })
                .collect();
            let mask = Array::from_slice(source.device, &mask, &groups);
            source.words(&groups).bit_and(&mask)
        }
        // Exponents of numbers about 1/64.
        DType::U8 => {
            let exponents: Vec<u8> = (0..n * groups[1]).map(|group| 118 + (group % 5) as u8).collect();
            Array::from_slice(source.device, &exponents, &groups)
        }
        floats => source.floats(floats, &groups),
    };
    let biases = format.has_biases().then(|| source.floats(DType::F16, &groups));
    Quantised {
        format,
        quants: source.words(&[n, format.words(k)]),
        scales,
        biases,
    }
}

fn quantised_products(device: &Device) -> Vec<(String, Array)> {
    let mut source = Source::new(device);
    let mut results = Vec::new();
    // The group's size is a number that kernels are given: one is as good as another.
    let formats = QuantFormat::ALL.into_iter().filter(|format| format.group != 128);
    for format in formats {
        let weight = quantised(&mut source, format, 24, 256);
        for tokens in [1, 40] {
            let x = source.floats(DType::F32, &[tokens, 256]);
            results.push(named(format!("{tokens} rows times {format}"), weight.matmul(&x)));
        }
        let rows = source.indices(&[3], 24);
        results.push(named(format!("rows of {format}"), weight.take(&rows)));
    }
    results
}

fn rms_norm(device: &Device) -> Vec<(String, Array)> {
    let mut source = Source::new(device);
    let program = |dtype| {
        let (x, weight) = (source.floats(dtype, &[4, 200]), source.floats(dtype, &[200]));
        named(dtype, fast::rms_norm(&x, Some(&weight), 1e-6))
    };
    FLOATS.into_iter().map(program).collect()
}

fn rope(device: &Device) -> Vec<(String, Array)> {
    let mut source = Source::new(device);
    let frequencies: Vec<f32> = (0..32).map(|i| 1e4f32.powf(-(i as f32) / 32.0)).collect();
    let frequencies = Array::from_slice(device, &frequencies, &[32]);
    // Far positions: angles of thousands of turns.
    let positions = source.positions(30_000, 6);
    let program = |(interleaved, dtype)| {
        let params = RopeParams {
            interleaved,
            ..RopeParams::new(64)
        };
        let x = source.floats(dtype, &[6, 2, 64]);
        let pairs = if interleaved { "neighbours" } else { "halves" };
        let rotated = fast::rope(&x, &positions, &frequencies, params);
        named(format!("{pairs} of {dtype}"), rotated)
    };
    [(false, DType::F32), (true, DType::F32), (false, DType::F16)]
        .into_iter()
        .map(program)
        .collect()
}

fn attention(device: &Device) -> Vec<(String, Array)> {
    let mut source = Source::new(device);
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
                results.push(named(format!("slots of {what}"), fast::slots(tokens, 256)));
            }
            let mixed = fast::paged_attention(&q, &keys, &values, tokens, params);
            results.push(named(format!("{what} over {cache}"), mixed));
        }
    }
    results
}

fn experts(device: &Device) -> Vec<(String, Array)> {
    let mut source = Source::new(device);
    // One expert more than there are.
    let routed = source.indices(&[5, 2], 4);
    let x = source.floats(DType::F32, &[5, 1, 256]);
    let dense = source.floats(DType::F16, &[3 * 24, 256]);
    let weight = quantised(&mut source, QuantFormat::Q4_0, 3 * 24, 256);
    vec![
        named("f16", fast::expert_matmul(&x, &routed, &dense, 24)),
        named("q4_0", weight.expert_matmul(&x, &routed, 24)),
    ]
}

fn recurrences(device: &Device) -> Vec<(String, Array)> {
    let mut source = Source::new(device);
    let positions = source.positions(0, 5);
    let sequences = Array::from_slice(device, &[0u32; 5], &[5]);
    let pages = Array::from_slice(device, &[0u32], &[1, 1]);
    let tokens = BatchTokens {
        positions: &positions,
        sequences: &sequences,
        pages: &pages,
    };
    let state = |shape: &[usize]| Array::state(device, DType::F32, shape);
    // Without memory for states, the others tell.
    let (Ok(window), Ok(memory)) = (state(&[1, 3, 40]), state(&[1, 4, 16, 32])) else {
        return vec![];
    };
    let (x, weights) = (source.floats(DType::F32, &[5, 40]), source.floats(DType::F32, &[40, 4]));
    let [q, k] = [(); 2].map(|()| source.floats(DType::F32, &[5, 2, 32]));
    let v = source.floats(DType::F32, &[5, 4, 16]);
    let [decay, beta] = [(); 2].map(|()| source.floats(DType::F32, &[5, 4]));
    vec![
        named("convolution", fast::causal_conv(&x, &weights, tokens, &window).0),
        named(
            "delta rule",
            fast::gated_delta([&q, &k, &v], [&decay, &beta], tokens, &memory).0,
        ),
    ]
}

fn sampling(device: &Device) -> Vec<(String, Array)> {
    const VOCABULARY: usize = 5000;
    let mut source = Source::new(device);
    // Without memory for states, the others tell.
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
    let (tokens, _) = fast::sample(&logits, &words, &sequences, None);
    vec![named("greedy and drawn", tokens)]
}
