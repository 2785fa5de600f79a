use refrain::fast::{self, Mask};
use refrain::{Array, DType, Device, QuantFormat, Quantised};
use refrain_lm::{RopeParams, rope};
use refrain_testing::sample;

use crate::check;
use crate::common::Random;

const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

#[test]
fn products_of_any_layout_agree() {
    if !refrain_testing::drawn(6) {
        return;
    }
    for seed in sample(600..640, 8) {
        check(seed, |device, random| {
            let batch = random.shape(random.clone().below(3), 12);
            let [m, k, n] = [0, 1, 2].map(|_| random.pick(&[1, 2, 3, 5, 8, 17, 33, 40]));
            let k = if random.one_in(12) { 0 } else { k };
            let [a, b] = [random.pick(&FLOATS), random.pick(&FLOATS)];
            let left = random.viewed(device, a, &[&batch[..], &[m, k]].concat());
            let shared = if random.one_in(2) { 0 } else { batch.len() };
            let right = random.viewed(device, b, &[&batch[shared..], &[k, n]].concat());
            vec![left.matmul(&right)]
        });
    }
}

#[test]
fn products_of_weights_and_vectors_agree() {
    for seed in sample(640..652, 6) {
        check(seed, |device, random| {
            let (m, k, n) = (
                random.pick(&[1, 3, 9]),
                random.pick(&[8, 40, 96]),
                random.pick(&[1, 7, 64]),
            );
            let dtype = random.pick(&FLOATS);
            let weight = random.dense(device, dtype, &[n, k]);
            let x = random.viewed(device, DType::F32, &[m, k]);
            let row = x.slice(0, 0, 1).reshape(&[-1]);
            let product = x.matmul(&weight.transpose());
            vec![
                product.clone(),
                weight.matmul(&row),
                row.matmul(&weight.transpose()),
                row.matmul(&row),
                product.silu(),
            ]
        });
    }
}

/// If the product is read in another order, the matmul writes that order, and nothing is copied.
#[test]
fn products_written_in_the_layout_of_their_user_agree() {
    for seed in sample(652..664, 6) {
        check(seed, |device, random| {
            let parted = random
                .dense(device, DType::F16, &[6, 8])
                .matmul(&random.viewed(device, DType::F32, &[8, 10]));
            let parted = parted.reshape(&[2, 3, 5, 2]).permute(&random.axes(4)).contiguous();
            let (t, h, d) = (random.pick(&[1, 4, 19]), random.pick(&[2, 3]), random.pick(&[2, 8]));
            let x = random.viewed(device, DType::F32, &[t, 24]);
            let w = random.dense(device, DType::F32, &[24, h * d]);
            let heads = x
                .matmul(&w)
                .reshape(&[t as isize, h as isize, d as isize])
                .permute(&[1, 0, 2]);
            let scores = heads.matmul(&heads.swap_axes(-1, -2));
            let back = scores
                .softmax()
                .matmul(&heads)
                .permute(&[1, 0, 2])
                .reshape(&[t as isize, -1]);
            vec![heads.contiguous(), heads.contiguous() + 1.0, back, parted]
        });
    }
}

#[test]
fn batched_products_in_layouts_that_no_kernel_writes_agree() {
    check(666, |device, random| {
        let a = random.dense(device, DType::F32, &[2, 3, 4, 5, 6]);
        let b = random.dense(device, DType::F32, &[2, 3, 4, 6, 7]);
        let product = a.matmul(&b);
        vec![
            product.permute(&[2, 4, 1, 3, 0]).contiguous(),
            a.permute(&[2, 0, 1, 3, 4]).matmul(&b.permute(&[2, 0, 1, 3, 4])),
        ]
    });
}

/// Random records of two-level scales, with factors below 1/32.
fn records(random: &mut Random, device: &Device, shape: [usize; 2], record: usize) -> Array {
    let words: Vec<u32> = (0..shape[0] * shape[1])
        .map(|word| random.bits() as u32 & if word % record == 0 { 0xa7ff_a7ff } else { u32::MAX })
        .collect();
    Array::from_slice(device, &words, &shape)
}

/// A matrix `[n, k]` in `format` with random planes.
fn quantised(random: &mut Random, device: &Device, format: QuantFormat, n: usize, k: usize) -> Quantised {
    let words: Vec<u32> = (0..n * format.words(k)).map(|_| random.bits() as u32).collect();
    let groups = [n, format.scales(k)];
    let dtype = random.pick(&FLOATS);
    let scales = match DType::of_scales(format, dtype) {
        DType::U32 => records(random, device, groups, format.scales(256)),
        DType::U8 => {
            let exponents: Vec<u8> = (0..n * groups[1]).map(|_| 118 + random.bits() as u8 % 8).collect();
            Array::from_slice(device, &exponents, &groups)
        }
        floats => random.viewed(device, floats, &groups),
    };
    let biases = format.has_biases().then(|| random.dense(device, dtype, &groups));
    Quantised {
        format,
        quants: Array::from_slice(device, &words, &[n, format.words(k)]),
        scales,
        biases,
    }
}

/// The number of values of which rows must be a multiple.
fn unit(format: QuantFormat) -> usize {
    if format.has_records() {
        256
    } else {
        format.group as usize
    }
}

#[test]
fn quantised_products_and_rows_agree() {
    if !refrain_testing::drawn(6) {
        return;
    }
    for (seed, format) in sample((670..).zip(&QuantFormat::ALL), 8) {
        check(seed, |device, random| {
            let (n, k) = (random.pick(&[1, 5, 33]), unit(*format) * random.pick(&[1, 2, 3]));
            let w = quantised(random, device, *format, n, k);
            let batch = random.shape(random.clone().below(3), 20);
            let dtype = random.pick(&FLOATS);
            let x = random.viewed(device, dtype, &[&batch[..], &[k]].concat());
            let indices = random.viewed(device, DType::I32, &[7]);
            // Rows of a matrix that is a view of another one.
            let from = random.below(n);
            let part = |plane: &Array| plane.slice(0, from, n);
            let biases = w.biases.as_ref().map(part);
            let some = Quantised {
                format: *format,
                quants: part(&w.quants),
                scales: part(&w.scales),
                biases,
            };
            vec![
                w.matmul(&x),
                w.take(&indices),
                some.matmul(&x),
                some.take(&indices.astype(DType::U32)),
            ]
        });
    }
}

#[test]
fn rotary_embeddings_agree() {
    for seed in sample(700..712, 6) {
        check(seed, |device, random| {
            let (t, h, half) = (random.below(6), random.pick(&[1, 3]), random.pick(&[1, 2, 8]));
            let rest = random.below(3);
            let dtype = random.pick(&FLOATS);
            let x = random.viewed(device, dtype, &[t, h, 2 * half + rest]);
            let positions = random.viewed(device, DType::I32, &[t]) * 1000.0;
            let frequencies = random.viewed(device, DType::F32, &[half]);
            let params = RopeParams {
                dims: 2 * half,
                interleaved: random.one_in(2),
                scale: 1.5,
            };
            vec![rope(&x, &positions, &frequencies, params)]
        });
    }
}

#[test]
fn attention_composed_of_matmuls_agrees() {
    if !refrain_testing::drawn(6) {
        return;
    }
    for seed in sample(720..735, 6) {
        check(seed, |device, random| {
            let (b, kvh, group) = (1 + random.below(2), 1 + random.below(2), 1 + random.below(3));
            let (tq, tk, d) = (random.pick(&[1, 4]), random.pick(&[4, 9]), random.pick(&[2, 8]));
            let dtype = random.pick(&FLOATS);
            let mut array = |shape: &[usize]| random.viewed(device, dtype, shape) * 0.5;
            let q = array(&[b, tq, kvh * group, d]).swap_axes(1, 2);
            let (k, v) = (array(&[b, kvh, tk, d]), array(&[b, kvh, tk, d + 1]));
            let mask = random.viewed(device, DType::F32, &[tq, tk]);
            let seen = mask.gt(0.0);
            let attend = |mask| fast::scaled_dot_product_attention(&q, &k, &v, 0.3, mask);
            vec![
                attend(Mask::None),
                attend(Mask::Causal),
                attend(Mask::Array(&mask)),
                attend(Mask::Array(&seen)),
            ]
        });
    }
}
