use refrain::{Array, DType, Device};
use refrain_testing::sample;

use crate::check;
use crate::common::Random;

const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];
const INTEGERS: [DType; 3] = [DType::I32, DType::U32, DType::U8];

type Unary = fn(&Array) -> Array;
type Binary = fn(&Array, &Array) -> Array;

#[test]
fn unary_functions_agree() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let functions: [(Unary, &[DType]); 16] = [
        (|x| -x, &DType::ALL),
        (Array::abs, &DType::ALL),
        (Array::sign, &DType::ALL),
        (Array::logical_not, &DType::ALL),
        (Array::exp, &FLOATS),
        (|x| (x.abs() + 0.125).log(), &FLOATS),
        (|x| x.abs().sqrt(), &FLOATS),
        (|x| (x.abs() + 0.125).rsqrt(), &FLOATS),
        (Array::sin, &FLOATS),
        (Array::cos, &INTEGERS),
        (Array::tanh, &FLOATS),
        (Array::erf, &FLOATS),
        (Array::sigmoid, &DType::ALL),
        (Array::silu, &FLOATS),
        (|x| x.floor() + x.ceil(), &FLOATS),
        (Array::round, &FLOATS),
    ];
    for (seed, (function, dtypes)) in (0..).zip(functions) {
        check(seed, |device, random| {
            let dtype = random.pick(dtypes);
            let shape = random.shape(3, 600);
            vec![function(&random.viewed(device, dtype, &shape))]
        });
    }
}

#[test]
fn binary_functions_of_broadcast_arrays_agree() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let functions: [(Binary, &[DType]); 20] = [
        (|a, b| a + b, &DType::ALL),
        (|a, b| a - b, &DType::ALL),
        (|a, b| a * b, &DType::ALL),
        (|a, b| a / (b + 8.0), &DType::ALL),
        (|a, b| a % b, &INTEGERS),
        (|a, b| a % (b + 8.0), &FLOATS),
        (|a, b| a.abs().pow(b), &FLOATS),
        (|x, y| x.maximum(y), &DType::ALL),
        (|x, y| x.minimum(y), &DType::ALL),
        (|x, y| x.eq(y), &DType::ALL),
        (|x, y| x.ne(y), &DType::ALL),
        (|x, y| x.lt(y), &DType::ALL),
        (|x, y| x.le(y), &DType::ALL),
        (|x, y| x.gt(y), &DType::ALL),
        (|x, y| x.ge(y), &DType::ALL),
        (|x, y| x.bit_and(y), &INTEGERS),
        (|x, y| x.bit_or(y), &INTEGERS),
        (|x, y| x.bit_xor(y), &[DType::Bool, DType::U8]),
        (|x, y| x.shift_left(y), &INTEGERS),
        (|x, y| x.shift_right(y), &INTEGERS),
    ];
    for (seed, (function, dtypes)) in (100..).zip(functions) {
        check(seed, |device, random| {
            let [a, b] = [random.pick(dtypes), random.pick(dtypes)];
            let shape = random.shape(3, 600);
            let (left, right) = (broadcastable(random, &shape), broadcastable(random, &shape));
            vec![function(
                &random.viewed(device, a, &left),
                &random.viewed(device, b, &right),
            )]
        });
    }
}

/// Some trailing dimensions of a shape, some of them replaced by 1.
fn broadcastable(random: &mut Random, shape: &[usize]) -> Vec<usize> {
    let from = if random.one_in(3) {
        random.below(shape.len() + 1)
    } else {
        0
    };
    shape[from..]
        .iter()
        .map(|&n| if random.one_in(4) { 1 } else { n })
        .collect()
}

#[test]
fn chains_with_scalars_selections_and_fills_agree() {
    for seed in sample(200..212, 6) {
        check(seed, |device, random| {
            let dtype = random.pick(&FLOATS);
            let shape = random.shape(2, 900);
            let [x, y] = [0, 1].map(|_| random.viewed(device, dtype, &shape));
            let gate = ((&x * 0.5 + 1.0) * x.sigmoid()).maximum(&y - 2.0);
            let chosen = x.gt(&y).select(&gate, &(&x + &y)).astype(random.pick(&FLOATS));
            let counted = Array::arange(device, DType::I32, shape[1]) * 3.0 - 4.0;
            let filled = Array::full(device, DType::U8, &shape, 300.0) + Array::ones(device, DType::U8, &[]);
            vec![chosen + &counted, filled, 2.0 - &(1.0 / (counted + 9.5))]
        });
    }
}

#[test]
fn large_arrays_agree() {
    check(300, |device: &Device, _| {
        let x = Array::arange(device, DType::F32, (1 << 20) + 77) * 0.001;
        vec![(&x * &x + 1.0).sqrt()]
    });
}
