//! Random layers, lowered with regions and without, on both executors.

use refrain::passes::Options;
use refrain::{Array, DType, Device, Function, QuantFormat, Quantised, fast};

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

/// One layer of a kind that nobody may have thought of, without attention over a cache.
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
    let gain = random.dense(device, DType::F32, &[HIDDEN]);
    gain.eval().expect("a weight");
    let norm = |x: &Array| fast::rms_norm(x, Some(&gain), 1e-5);
    let h = if random.one_in(4) { x.clone() } else { norm(x) };
    let [q, k, v] = [64, 32, 32].map(|rows| product(random, &h, rows));
    let q = q.reshape(&[tokens, 4, 16]);
    let q = if random.one_in(2) {
        fast::rms_norm(&q, None, 1e-6)
    } else {
        q
    };
    let scores = q.matmul(&k.reshape(&[tokens, 2, 16]).swap_axes(-1, -2)).softmax();
    let mixed = scores.matmul(&v.reshape(&[tokens, 2, 16])).reshape(&[tokens, -1]);
    let o = product(random, &mixed, HIDDEN);
    let x = if random.one_in(3) { x + norm(&o) } else { x + o };
    let h = if random.one_in(4) { x.clone() } else { norm(&x) };
    let [gate, up] = match random.one_in(3) {
        true => product(random, &h, 2 * 96).split(-1),
        false => [0, 1].map(|_| product(random, &h, 96)),
    };
    let gate = if random.one_in(2) { gate.silu() } else { gate.tanh() };
    let inner = (gate * up).reshape(&[tokens, -1]);
    let inner = inner.slice(1, 0, 64);
    &x + product(random, &inner, HIDDEN)
}

#[test]
fn layers_joined_to_regions_compute_what_they_compute_apart() {
    for seed in 700..706 {
        let mut results: Vec<Vec<f32>> = Vec::new();
        for device in [&Device::cpu(), vulkan()] {
            for regions in [false, true] {
                let random = &mut Random::new(seed);
                let tokens = random.pick(&[1, 1, 3, 8]);
                let x = Array::input(device, "x", DType::F32, &[tokens, HIDDEN]);
                let y = layer(device, random, &x);
                let options = Options {
                    regions,
                    ..Options::default()
                };
                let function = Function::trace_with(&[&y], options).expect("a layer that lowers");
                let joined = function.plan().to_string().contains("projection of rms_norm");
                assert!(regions || !joined, "{}", function.plan());
                let values: Vec<f32> = (0..tokens * HIDDEN).map(|_| random.unit()).collect();
                function.call(&[("x", bytemuck::cast_slice(&values))]).expect("a call");
                results.push(function.read(0).expect("the result"));
            }
        }
        let largest = results[0].iter().fold(0.0f32, |a, v| a.max(v.abs()));
        for (which, result) in results.iter().enumerate() {
            let furthest = result
                .iter()
                .zip(&results[0])
                .map(|(a, b)| (a - b).abs())
                .fold(0.0, f32::max);
            assert!(
                furthest <= 5e-5 * largest,
                "seed {seed}, way {which}: {furthest} of {largest}"
            );
        }
    }
    assert_silent();
}
