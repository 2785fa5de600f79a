//! A decode loop as mlx-lm writes it: one program serves all tokens.

use std::sync::{Mutex, PoisonError};

use refrain_mlx::index::{self, Index};
use refrain_mlx::{DType, Value, compute_device, fast, ops};

const HEADS: usize = 4;
const KEY_HEADS: usize = 2;
const WIDTH: usize = 8;
const SLOTS: usize = 32;

fn random(shape: &[usize], seed: usize) -> Value {
    let n: usize = shape.iter().product();
    let numbers: Vec<f32> = (0..n)
        .map(|i| ((31 * i + 17 * seed) % 23) as f32 / 11.0 - 1.0)
        .collect();
    Value::from_slice(&numbers, shape).expect("it fits")
}

/// The elements as f32.
fn read(value: &Value) -> Vec<f32> {
    let floats = value.cast(DType::F32).expect("it converts");
    floats.to_vec().expect("it computes")
}

/// `[..., first:last, :]`.
fn slots(first: usize, last: usize) -> Vec<Index> {
    let slice = Index::Slice {
        start: Some(first as i64),
        stop: Some(last as i64),
        step: None,
    };
    vec![Index::Ellipsis, slice, Index::ALL]
}

struct Cache {
    arrays: [Value; 2],
    used: usize,
}

impl Cache {
    /// Adds keys or values; returns all that are used.
    fn updated(&mut self, which: usize, new: &Value) -> Value {
        let items = slots(self.used, self.used + new.shape()[2]);
        self.arrays[which] = index::set(&self.arrays[which], &items, &new.into()).expect("it fits");
        index::get(&self.arrays[which], &slots(0, self.used + new.shape()[2])).expect("inside")
    }
}

fn rotated(x: &Value, offset: usize) -> Value {
    let offset = fast::Offset::Int(offset as i64);
    fast::rope(x, WIDTH as i64, false, Some(10_000.0), 1.0, &offset, None).expect("rotates")
}

/// A layer's attention for some tokens. With `apart`, keys and values are computed before they are attended to.
fn layer(cache: &mut Cache, step: usize, tokens: usize, dtype: DType, apart: bool) -> Value {
    let input = |heads: usize, seed: usize| {
        let x = random(&[1, heads, tokens, WIDTH], 5 * step + seed);
        x.cast(dtype).expect("casts")
    };
    let q = rotated(&input(HEADS, 0), cache.used);
    let k = rotated(&input(KEY_HEADS, 1), cache.used);
    let (keys, values) = (cache.updated(0, &k), cache.updated(1, &input(KEY_HEADS, 2)));
    if apart {
        refrain_mlx::eval(&[keys.clone(), values.clone()]).expect("computes");
    }
    let mask = if tokens > 1 {
        fast::Mask::Causal
    } else {
        fast::Mask::None
    };
    let sinks = random(&[HEADS], 1).cast(dtype).expect("casts");
    let sinks = (dtype == DType::F32).then_some(&sinks);
    cache.used += tokens;
    fast::scaled_dot_product_attention(&q, &keys, &values, 0.3, &mask, sinks).expect("attends")
}

fn cache(dtype: DType) -> Cache {
    let zeros = || random(&[1, KEY_HEADS, SLOTS, WIDTH], 0).cast(dtype).expect("casts");
    let zeros = [zeros(), zeros()].map(|x| ops::multiply(&x.into(), &0i64.into()).expect("multiplies"));
    refrain_mlx::eval(&zeros).expect("computes");
    Cache { arrays: zeros, used: 0 }
}

/// One test runs at a time: they share a device, whose programs are counted.
static DEVICE: Mutex<()> = Mutex::new(());

#[test]
fn tokens_share_a_program_and_their_cache_is_not_copied() {
    let _alone = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    for (dtype, bound) in [(DType::F32, 1e-6), (DType::F16, 2e-3)] {
        let (mut whole, mut apart) = (cache(dtype), cache(dtype));
        // A prompt in chunks, then tokens.
        let chunks = [6, 6, 6, 6, 1, 1, 1, 1, 1, 1, 1, 1];
        let device = compute_device();
        for (step, tokens) in chunks.into_iter().enumerate() {
            let before = device.program_counts();
            let result = layer(&mut whole, step, tokens, dtype, false);
            refrain_mlx::eval(std::slice::from_ref(&result)).expect("computes");
            let after = device.program_counts();
            // The second chunk has other integers. What follows starts with the words of the chunks.
            let is_lowered = step == 0 || step == 1 && dtype == DType::F32 || chunks[step] != chunks[step - 1];
            let lowered = after.lowerings - before.lowerings;
            assert_eq!(lowered, u64::from(is_lowered), "step {step}: {}", device.explain());
            assert_eq!([after.in_place - before.in_place, after.copies - before.copies], [2, 0]);
            let expected = layer(&mut apart, step, tokens, dtype, true);
            for (found, expected) in read(&result).into_iter().zip(read(&expected)) {
                assert!(
                    (found - expected).abs() <= bound,
                    "{found} instead of {expected} at step {step}"
                );
            }
        }
    }
}

#[test]
fn unused_slots_are_not_read() {
    let _alone = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut nan = random(&[1, 1, 8, 4], 0);
    nan = index::set(&nan, &slots(3, 8), &f64::NAN.into()).expect("it fits");
    let q = random(&[1, 1, 1, 4], 2);
    let part = index::get(&nan, &slots(0, 3)).expect("inside");
    let attended = fast::scaled_dot_product_attention(&q, &part, &part, 0.5, &fast::Mask::None, None).expect("attends");
    let numbers = read(&attended);
    let alone = Value::from_slice(&read(&part), &[1, 1, 3, 4]).expect("it fits");
    let expected = fast::scaled_dot_product_attention(&q, &alone, &alone, 0.5, &fast::Mask::None, None);
    for (found, expected) in numbers.into_iter().zip(read(&expected.expect("attends"))) {
        assert!((found - expected).abs() < 1e-6, "{found} instead of {expected}");
    }
}
