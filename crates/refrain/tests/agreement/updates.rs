//! Updates of parts of arrays, and keyed random bits, on every device.

use refrain::{Array, Combine, DType, Device, concatenate, eval_referenced, random};

use crate::check;
use crate::common::{Random, assert_silent, plain, vulkan};

/// Random numbers that every dtype holds exactly, in a shape.
fn numbers(device: &Device, random: &mut Random, dtype: DType, shape: &[usize]) -> Array {
    let count: usize = shape.iter().product();
    let numbers: Vec<f32> = (0..count).map(|_| random.pick(&[0.0f32, 1.0, 2.0, 3.0, 5.0])).collect();
    Array::from_slice(device, &numbers, shape).astype(dtype)
}

#[test]
fn slices_are_replaced_in_every_layout() {
    if !refrain_testing::drawn(6) {
        return;
    }
    for seed in 0..24 {
        check(seed, |device, random| {
            let dtype = random.pick(&DType::ALL);
            let shape = [random.pick(&[1, 4, 5]), random.pick(&[3, 8]), random.pick(&[2, 7])];
            let x = numbers(device, random, dtype, &shape).swap_axes(0, 2);
            let shape = x.shape().to_vec();
            let start: Vec<usize> = shape.iter().map(|&n| random.pick(&[0, n / 2])).collect();
            let step: Vec<usize> = shape.iter().map(|_| random.pick(&[1, 2, 9])).collect();
            let extents = shape.iter().zip(&start).zip(&step);
            let part: Vec<usize> = extents.map(|((n, start), step)| (n - start).div_ceil(*step)).collect();
            let part = numbers(device, random, DType::F32, &part);
            let updated = x.slice_update(&part, &start, &shape, &step);
            vec![updated.clone(), &updated + &x, x]
        });
    }
}

#[test]
fn rows_are_replaced_and_combined() {
    if !refrain_testing::drawn(6) {
        return;
    }
    for seed in 0..24 {
        check(seed, |device, random| {
            let dtype = random.pick(&[DType::F32, DType::F16, DType::I32, DType::U32, DType::U8]);
            let (rows, width, count) = (
                random.pick(&[1, 5, 9]),
                random.pick(&[1, 3, 8]),
                random.pick(&[0, 1, 6]),
            );
            let x = numbers(device, random, dtype, &[width, rows]).swap_axes(0, 1);
            let values = numbers(device, random, DType::F32, &[count, width]);
            // Each slot once, some of them outside.
            let slots: Vec<i32> = (0..count).map(|slot| slot as i32 * 2 - 1).collect();
            let slots = Array::from_slice(device, &slots, &[count]);
            let several = slots.maximum(0).minimum(1);
            let combine = random.pick(&[Combine::Add, Combine::Multiply, Combine::Max, Combine::Min]);
            vec![
                x.scatter_rows(&values, &slots),
                x.combine_rows(&values, &several, combine),
                x.combine_rows(&values, &slots, combine),
            ]
        });
    }
}

#[test]
fn keyed_bits_are_equal_on_every_device() {
    for count in [1, 2, 7, 1000, 70_001] {
        let bits = |device: &Device| {
            let key = Array::from_slice(device, &[7u32, 0xffff_fff0], &[2]);
            random::keyed_bits(&key, count).to_vec::<u32>().expect("computes")
        };
        let expected = bits(&Device::cpu());
        assert_eq!(bits(vulkan()), expected, "{count} words");
        assert_eq!(bits(plain()), expected, "{count} words");
    }
    assert_silent();
}

#[test]
fn referenced_arrays_are_kept_and_right() {
    for device in [Device::cpu(), vulkan().clone(), plain().clone()] {
        let x = Array::from_slice(&device, &[1.0f32, 2.0, 3.0, 4.0], &[2, 2]);
        let squares = &x * &x;
        let view = squares.swap_axes(0, 1);
        let constant = Array::full(&device, DType::F32, &[2, 2], 5);
        let joined = concatenate(&[&(&view + 1.0), &constant], 0);
        eval_referenced(&[&joined.sum(&[0, 1])]).expect("computes");
        for (array, expected) in [
            (&squares, vec![1.0, 4.0, 9.0, 16.0]),
            (&view, vec![1.0, 9.0, 4.0, 16.0]),
            (&constant, vec![5.0; 4]),
            (&joined, vec![2.0, 10.0, 5.0, 17.0, 5.0, 5.0, 5.0, 5.0]),
        ] {
            assert!(array.is_evaluated(), "{array:?}");
            assert_eq!(array.to_vec::<f32>().expect("reads"), expected);
        }
        // Nothing refers to what is between a second sum and the squares.
        let lowered = device.program_counts();
        eval_referenced(&[&squares]).expect("nothing is left to compute");
        assert_eq!(device.program_counts(), lowered);
    }
    assert_silent();
}
