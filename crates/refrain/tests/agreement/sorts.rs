//! Sorting, top-k and logsumexp, compared with plain Rust on every device.

use refrain::{Array, Axes, DType, Device, passes};
use refrain_testing::sample;

use crate::common::{assert_silent, plain, vulkan};

/// Unsorted numbers, some of them equal.
fn unsorted(count: usize) -> Vec<f32> {
    let number = |i: usize| ((i * 7919 + 13) % 1009) as f32 / 8.0 - 60.0;
    (0..count).map(number).collect()
}

fn devices() -> [Device; 3] {
    [Device::cpu(), vulkan().clone(), plain().clone()]
}

#[test]
fn rows_of_every_length_are_sorted() {
    for device in devices() {
        for n in [1, 2, 3, 64, 511, 512, 513, 1000, 1025, 5000, 40_000] {
            let numbers = unsorted(3 * n);
            let sorted = Array::from_slice(&device, &numbers, &[3, n]).sort(-1);
            let mut expected = numbers;
            expected.chunks_mut(n).for_each(|row| row.sort_by(f32::total_cmp));
            assert_eq!(sorted.to_vec::<f32>().expect("sorts"), expected, "{n} on {device:?}");
        }
    }
    assert_silent();
}

/// Row-major elements sorted along `axis`.
fn sorted_along(mut elements: Vec<f32>, shape: [usize; 3], axis: usize) -> Vec<f32> {
    let inner: usize = shape[axis + 1..].iter().product();
    let n = shape[axis];
    for start in (0..elements.len()).filter(|start| (start / inner).is_multiple_of(n)) {
        let indices = || (0..n).map(|i| start + i * inner);
        let mut line: Vec<f32> = indices().map(|index| elements[index]).collect();
        line.sort_by(f32::total_cmp);
        indices()
            .zip(line)
            .for_each(|(index, element)| elements[index] = element);
    }
    elements
}

#[test]
fn every_dtype_is_sorted_along_any_axis() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let shape = [3, 700, 2];
    for device in devices() {
        let x = Array::from_slice(&device, &unsorted(3 * 700 * 2), &shape);
        for dtype in sample(DType::ALL, 6) {
            let x = x.abs().astype(dtype);
            let read = |x: &Array| x.astype(DType::F32).to_vec::<f32>().expect("computes");
            for axis in [0isize, 1, -1] {
                let expected = sorted_along(read(&x), shape, axis.rem_euclid(3) as usize);
                assert_eq!(read(&x.sort(axis)), expected, "{dtype} along {axis} on {device:?}");
            }
        }
    }
    assert_silent();
}

#[test]
fn nan_comes_last_and_zeros_keep_their_signs() {
    let extremes = [
        f32::NAN,
        f32::INFINITY,
        0.0,
        -0.0,
        f32::MIN,
        f32::NEG_INFINITY,
        -f32::NAN,
        f32::MAX,
    ];
    for device in devices() {
        let sorted = Array::from_slice(&device, &extremes, &[8])
            .sort(0)
            .to_vec::<f32>()
            .expect("sorts");
        assert!(sorted[6].is_nan() && sorted[7].is_nan(), "{sorted:?} on {device:?}");
        let expected = [f32::NEG_INFINITY, f32::MIN, -0.0, 0.0, f32::MAX, f32::INFINITY];
        assert_eq!(
            sorted[..6].iter().map(|x| x.to_bits()).collect::<Vec<_>>(),
            expected.map(f32::to_bits)
        );
        let integers = [i32::MAX, 0, i32::MIN, -1, i32::MAX];
        let sorted = Array::from_slice(&device, &integers, &[5])
            .sort(0)
            .to_vec::<i32>()
            .expect("sorts");
        assert_eq!(sorted, [i32::MIN, -1, 0, i32::MAX, i32::MAX]);
    }
    assert!(Array::ones(&Device::cpu(), DType::F32, &[2]).sort(1).error().is_some());
    assert!(Array::ones(&Device::cpu(), DType::F32, &[]).sort(0).error().is_some());
}

#[test]
fn logsumexp_matches_its_formula() {
    let numbers: Vec<f32> = unsorted(2 * 30 * 5).iter().map(|x| 4.0 * x).collect();
    let exact = |numbers: &mut dyn Iterator<Item = f32>| {
        let numbers: Vec<f64> = numbers.map(f64::from).collect();
        let largest = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (largest + numbers.iter().map(|x| (x - largest).exp()).sum::<f64>().ln()) as f32
    };
    for device in devices() {
        let x = Array::from_slice(&device, &numbers, &[2, 30, 5]);
        let middle: Vec<f32> = (0..10)
            .map(|i| exact(&mut (0..30).map(|j| numbers[i / 5 * 150 + 5 * j + i % 5])))
            .collect();
        let close = |found: Vec<f32>, expected: &[f32]| {
            assert_eq!(found.len(), expected.len());
            for (a, b) in found.iter().zip(expected) {
                assert!((a - b).abs() <= 2e-5 * b.abs().max(1.0), "{a} and {b} on {device:?}");
            }
        };
        close(x.logsumexp(&[1]).to_vec().expect("computes"), &middle);
        let kept = x.logsumexp(Axes::keepdims(&[-2]));
        assert_eq!(kept.shape(), [2, 1, 5]);
        close(kept.to_vec().expect("computes"), &middle);
        close(
            x.logsumexp(&[0, 1, 2]).to_vec().expect("computes"),
            &[exact(&mut numbers.iter().copied())],
        );
        let infinite = [f32::NEG_INFINITY, f32::NEG_INFINITY, 1.0, f32::INFINITY, f32::NAN, 0.0];
        let infinite = Array::from_slice(&device, &infinite, &[3, 2]).logsumexp(&[1]);
        let infinite = infinite.to_vec::<f32>().expect("computes");
        assert!(
            infinite[..2] == [f32::NEG_INFINITY, f32::INFINITY] && infinite[2].is_nan(),
            "{infinite:?}"
        );
    }
    assert_silent();
}

#[test]
fn top_k_returns_values_and_indices_for_rows_of_every_length_and_dtype() {
    if !refrain_testing::drawn(8) {
        return;
    }
    for device in devices() {
        // Rows that fit a workgroup, longer ones, rows split among workgroups, and more results than one workgroup
        // sorts.
        for (n, k) in [(64, 8), (512, 512), (1000, 7), (40_000, 5), (5000, 1500)] {
            for dtype in sample(DType::ALL, 6) {
                let x = Array::from_slice(&device, &unsorted(2 * n), &[2, n])
                    .abs()
                    .astype(dtype);
                let x = x.reshape(&[n as isize, 2]).transpose();
                let (largest, indices) = x.top_k_with_values(k);
                let read = |x: &Array| x.astype(DType::F32).to_vec::<f32>().expect("computes");
                let (found, taken) = (read(&largest), read(&x.take_along(&indices)));
                assert_eq!(found, taken, "{k} of {n} {dtype} on {device:?}");
                assert_eq!(read(&indices), read(&x.top_k(k)), "{k} of {n} {dtype} on {device:?}");
            }
        }
        let x = Array::from_slice(&device, &unsorted(64), &[64]);
        let (largest, indices) = x.top_k_with_values(4);
        let plan = passes::plan(&[&largest, &indices]).expect("a plan");
        assert_eq!(plan.dispatches(), usize::from(!device.is_cpu()), "{plan}");
    }
    assert_silent();
}
