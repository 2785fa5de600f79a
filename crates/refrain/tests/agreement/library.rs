//! Printing, random numbers, stacking and padding.

use refrain::{Array, DType, Device, Error, random, stack};

use crate::check;
use crate::common::vulkan;

#[test]
fn arrays_print_their_elements_row_by_row() {
    let device = Device::cpu();
    let x = Array::from_slice(&device, &[1.0f32, -2.5, 3.25, 1000.0], &[2, 2]);
    assert_eq!(x.to_string(), "[[   1.0000,   -2.5000],\n [   3.2500, 1000.0000]]");
    assert_eq!(format!("{x:.1}"), "[[   1.0,   -2.5],\n [   3.2, 1000.0]]");
    assert_eq!((&x * 1e6).astype(DType::I32).sum(&[0, 1]).to_string(), "1001750000");
    assert_eq!(x.gt(0).to_string(), "[[ true, false],\n [ true,  true]]");
    assert_eq!((&x * 1e-6).slice(0, 0, 1).to_string(), "[[ 1.0000e-6, -2.5000e-6]]");
    assert_eq!(Array::zeros(&device, DType::U8, &[0, 3]).to_string(), "[]");
    let deep = Array::arange(&device, DType::I32, 8).reshape(&[2, 2, 2]);
    assert_eq!(deep.to_string(), "[[[0, 1],\n  [2, 3]],\n\n [[4, 5],\n  [6, 7]]]");
    let long = Array::arange(&device, DType::I32, 5000);
    assert_eq!(long.to_string(), "[   0,    1,    2, …, 4997, 4998, 4999]");
    let wrong = x.reshape(&[3]).to_string();
    assert!(wrong.starts_with("Array(invalid: reshape"), "{wrong}");
}

#[test]
fn random_numbers_are_the_same_on_every_device() {
    for seed in [0, 7, u64::MAX, 1 << 40] {
        let on = |device: &Device| {
            let x = random::bits(device, seed, &[33, 7]);
            (
                x.to_vec::<u32>().expect("bits"),
                random::uniform(device, seed, &[231])
                    .to_vec::<f32>()
                    .expect("fractions"),
            )
        };
        assert_eq!(on(&Device::cpu()), on(vulkan()));
    }
    check(470, |device, _| vec![random::normal(device, 3, &[500])]);
}

#[test]
fn random_numbers_have_the_documented_distribution() {
    let device = Device::cpu();
    let [x, y] = [1, 2].map(|seed| random::uniform(&device, seed, &[20_000]));
    let mean = |x: &Array| x.mean(&[0]).to_vec::<f32>().expect("a mean")[0];
    assert!((mean(&x) - 0.5).abs() < 0.01 && (mean(&(&x * &x)) - 1.0 / 3.0).abs() < 0.01);
    assert!(
        (mean(&(&x * &y)) - 0.25).abs() < 0.01,
        "seeds do not depend on each other"
    );
    let bounds = (
        x.min(&[0]).to_vec::<f32>().unwrap()[0],
        x.max(&[0]).to_vec::<f32>().unwrap()[0],
    );
    assert!(bounds.0 >= 0.0 && bounds.1 < 1.0);
    let z = random::normal(&device, 1, &[20_000]);
    assert!(mean(&z).abs() < 0.03 && (mean(&(&z * &z)) - 1.0).abs() < 0.03);
}

#[test]
fn stacked_and_padded_arrays_agree() {
    check(471, |device, random| {
        let [x, y] = [0, 1].map(|_| random.viewed(device, DType::F32, &[3, 4]));
        vec![
            stack(&[&x, &y], 0),
            stack(&[&x, &y, &x], -1),
            x.pad(&[(1, 2), (0, 3)], -1.5),
            y.pad(&[(0, 0), (2, 0)], 0),
        ]
    });
    let device = Device::cpu();
    let x = Array::from_slice(&device, &[1, 2], &[2]);
    assert_eq!(stack(&[&x, &(&x + 2)], 1).to_vec::<i32>().unwrap(), [1, 3, 2, 4]);
    assert_eq!(
        x.pad(&[(1, 2)], 16_777_217).to_vec::<i32>().unwrap(),
        [16_777_217, 1, 2, 16_777_217, 16_777_217]
    );
    for wrong in [
        stack(&[], 0),
        stack(&[&x, &x.pad(&[(0, 1)], 0)], 0),
        stack(&[&x], 2),
        x.pad(&[], 0),
        x.pad(&[(usize::MAX, 1)], 0),
    ] {
        assert!(matches!(wrong.eval(), Err(Error::Invalid { .. })), "{wrong:?}");
    }
}
