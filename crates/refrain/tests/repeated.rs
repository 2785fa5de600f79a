//! Programs that are evaluated again and again with other integers, as a decode loop that is written for MLX.

mod common;

use common::{assert_silent, plain, vulkan};
use refrain::{Array, DType, Device, eval_referenced};

const SLOTS: usize = 12;
const WIDTH: usize = 4;

fn numbers(count: usize, step: usize) -> Vec<f32> {
    (0..count)
        .map(|i| ((7 * i + 3 * step) % 11) as f32 / 4.0 - 1.0)
        .collect()
}

/// Attention of one token with three heads over a cache `[3, slots, width]`, and the cache with the token in it.
fn attend(cache: &Array, step: usize) -> (Array, Array) {
    let device = cache.device();
    let token = Array::from_slice(device, &numbers(3 * WIDTH, step), &[3, 1, WIDTH]);
    let position = Array::integer(device, step as i32);
    let token = token * (&position.astype(DType::F32) * 0.1).cos();
    let cache = cache.slice_update(&token, &[0, step, 0], &[3, step + 1, WIDTH], &[1, 1, 1]);
    let scores = token.matmul(&cache.swap_axes(1, 2));
    let slots = Array::arange(device, DType::I32, SLOTS);
    let weights = slots.le(&position).select(&scores, f32::MIN).softmax();
    (weights.matmul(&cache), cache)
}

/// The same on the host.
fn expected(keys: &mut Vec<Vec<f32>>, step: usize) -> Vec<f32> {
    let turn = (step as f32 * 0.1).cos();
    keys.push(numbers(3 * WIDTH, step).iter().map(|x| x * turn).collect());
    let token = keys[step].clone();
    let mut result = vec![];
    for head in 0..3 {
        let part = head * WIDTH..(head + 1) * WIDTH;
        let dot = |key: &Vec<f32>| -> f32 {
            key[part.clone()]
                .iter()
                .zip(&token[part.clone()])
                .map(|(a, b)| a * b)
                .sum()
        };
        let weights: Vec<f32> = keys.iter().map(|key| dot(key).exp()).collect();
        let total: f32 = weights.iter().sum();
        for column in part.clone() {
            result.push(keys.iter().zip(&weights).map(|(key, w)| key[column] * w / total).sum());
        }
    }
    result
}

#[test]
fn a_decode_loop_is_lowered_twice_and_copies_nothing() {
    // No other test of this file uses this device, whose counters are compared.
    for device in [Device::cpu(), vulkan().clone()] {
        let mut cache = Array::from_slice(&device, &[0.0f32; 3 * SLOTS * WIDTH], &[3, SLOTS, WIDTH]);
        let before = device.program_counts();
        let mut keys = vec![];
        for step in 0..SLOTS {
            let (result, next) = attend(&cache, step);
            cache = next;
            eval_referenced(&[&result]).expect("computes");
            let found = result.to_vec::<f32>().expect("reads");
            for (found, expected) in found.iter().zip(expected(&mut keys, step)) {
                assert!(
                    (found - expected).abs() < 1e-5,
                    "{found} instead of {expected} at step {step}"
                );
            }
        }
        let counts = device.program_counts();
        assert_eq!(counts.lowerings - before.lowerings, 2, "{}", device.explain());
        assert_eq!(counts.hits - before.hits, SLOTS as u64 - 2);
        assert_eq!(counts.copies, before.copies, "on {device:?}");
        assert_eq!(counts.in_place - before.in_place, SLOTS as u64);
    }
    assert_silent();
}

#[test]
fn slices_are_replaced_wherever_they_start() {
    for device in [Device::cpu(), plain().clone()] {
        // For each axis, parts of several lengths at several places, with and without a copy.
        let shape = [3, 5, 4];
        for (axis, length) in [(0, 1), (0, 2), (1, 1), (1, 3), (2, 1), (2, 2)] {
            for dtype in [DType::F32, DType::F16, DType::I32] {
                let mut x = Array::zeros(&device, dtype, &shape);
                let mut expected = [0.0; 60];
                for (step, start) in [0, 1, 2, 0].into_iter().enumerate() {
                    let start = start.min(shape[axis] - length);
                    let (mut from, mut to) = ([0; 3], shape);
                    (from[axis], to[axis]) = (start, start + length);
                    let part = Array::full(&device, dtype, &[], step as i64 + 1);
                    let old = x.clone();
                    x = x.slice_update(&part, &from, &to, &[1; 3]);
                    if step % 2 == 1 {
                        drop(old);
                        x.eval().expect("computes");
                    } else {
                        x.eval().expect("computes");
                        old.eval().expect("computes");
                    }
                    for (index, element) in expected.iter_mut().enumerate() {
                        let place = [index / 20, index / 4 % 5, index % 4][axis];
                        if (start..start + length).contains(&place) {
                            *element = step as f32 + 1.0;
                        }
                    }
                    let found = x.astype(DType::F32).to_vec::<f32>().expect("reads");
                    assert_eq!(found, expected, "{dtype} {axis} {start} on {device:?}");
                }
            }
        }
    }
    assert_silent();
}

#[test]
fn integers_without_effect_and_constants_of_functions() {
    let device = Device::cpu();
    for n in [3, 4, 5] {
        let (x, unused) = (Array::arange(&device, DType::I32, 2), Array::integer(&device, n));
        let none = x.slice(0, 0, 0) + &unused;
        assert_eq!(none.to_vec::<i32>().expect("computes"), [0; 0]);
        let function = refrain::Function::trace(&[&(&x + &unused)]).expect("lowers");
        let result = function.call(&[]).expect("runs");
        assert_eq!(result[0].to_vec::<i32>().expect("reads"), [n, n + 1]);
    }
    // Equal integers that part later.
    for (a, b) in [(1, 1), (2, 2), (3, 3), (4, 5), (5, 7)] {
        let sum = Array::integer(&device, a) * 10 + Array::integer(&device, b);
        assert_eq!(sum.to_vec::<i32>().expect("computes"), [10 * a + b]);
    }
}

#[test]
fn a_loop_that_reads_its_last_result_is_replayed() {
    for device in [Device::cpu(), vulkan().tuned("").expect("a device of its own counters")] {
        let w = Array::from_slice(&device, &[0.5f32], &[1]);
        let first = Array::from_slice(&device, &[1.0f32, -2.0, 4.0], &[3]);
        let (mut x, mut expected) = (first, vec![1.0f32, -2.0, 4.0]);
        let mut held = vec![];
        for step in 0..24 {
            let before = device.program_counts().replays;
            let next = &x * &w + 1.0;
            eval_referenced(&[&next]).expect("computes");
            expected.iter_mut().for_each(|x| *x = *x * 0.5 + 1.0);
            x = next;
            let is_replayed = device.program_counts().replays > before;
            assert!(
                is_replayed || !(6..12).contains(&step),
                "step {step}: {}",
                device.explain()
            );
            // Results that are held keep their memory. Then other memory takes turns.
            if step >= 12 && step % 3 == 0 {
                held.push((x.clone(), expected.clone()));
            }
        }
        held.push((x, expected));
        for (found, expected) in held {
            assert_eq!(found.to_vec::<f32>().expect("reads"), expected);
        }
        device.clear_cache();
    }
}

#[test]
fn a_loop_over_a_large_state_is_replayed() {
    for device in [Device::cpu(), vulkan().tuned("").expect("a device of its own counters")] {
        // More than may be kept of memory that nothing refers to: the first state is not kept.
        let mut state = Array::full(&device, DType::F32, &[5 << 20], 1) + 0.0;
        for step in 0..10 {
            let before = device.program_counts().replays;
            let next = &state * 0.5 + 1.0;
            drop(std::mem::replace(&mut state, next));
            eval_referenced(&[&state]).expect("computes");
            let is_replayed = device.program_counts().replays > before;
            assert!(is_replayed || step < 7, "step {step}: {}", device.explain());
        }
        let last = state.slice(0, (5 << 20) - 1, 5 << 20).to_vec::<f32>().expect("reads");
        assert_eq!(last, [2.0 - 0.5f32.powi(10)]);
    }
}

#[test]
fn a_kept_executable_does_not_hinder_updates_in_place() {
    for device in [Device::cpu(), vulkan().tuned("").expect("a device of its own counters")] {
        let mut cache = Array::from_slice(&device, &[0.0f32; 8], &[8, 1]);
        let mut x = Array::from_slice(&device, &[1.0f32], &[1, 1]);
        for step in 0..8 {
            let before = device.program_counts();
            let next = &x + 1.0;
            let updated = cache.slice_update(&x, &[step, 0], &[step + 1, 1], &[1, 1]);
            drop(std::mem::replace(&mut cache, updated));
            eval_referenced(&[&next, &cache]).expect("computes");
            x = next;
            let after = device.program_counts();
            if device.is_cpu() {
                assert_eq!([after.in_place - before.in_place, after.copies - before.copies], [1, 0]);
                assert!(step < 7 || after.replays > before.replays, "{}", device.explain());
            }
        }
        let expected: Vec<f32> = (1..9).map(|x| x as f32).collect();
        assert_eq!(cache.to_vec::<f32>().expect("reads"), expected);
    }
}
