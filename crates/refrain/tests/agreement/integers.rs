//! Integers beyond the 24 bits that f32 can represent stay exact in every operation.

use refrain::{Array, DType, Device, Error, concatenate};

use crate::common::{assert_silent, plain, vulkan};

/// The first integer that f32 cannot represent.
const ODD: i32 = (1 << 24) + 1;

fn each_device(test: impl Fn(&Device)) {
    for device in [&Device::cpu(), vulkan(), plain()] {
        test(device);
    }
    assert_silent();
}

fn i32s(x: &Array) -> Vec<i32> {
    x.to_vec().unwrap_or_else(|error| panic!("{error}"))
}

fn u32s(x: &Array) -> Vec<u32> {
    x.to_vec().unwrap_or_else(|error| panic!("{error}"))
}

fn bools(x: &Array) -> Vec<bool> {
    x.to_vec().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn fills_are_exact() {
    each_device(|device| {
        for n in [ODD, -ODD, i32::MAX, i32::MIN] {
            assert_eq!(i32s(&Array::full(device, DType::I32, &[2], n)), [n; 2]);
            // As a float, and as a wider integer.
            assert_eq!(i32s(&Array::full(device, DType::I32, &[1], f64::from(n))), [n]);
            assert_eq!(i32s(&Array::full(device, DType::I32, &[1], i64::from(n))), [n]);
        }
        for n in [ODD as u32, u32::MAX, u32::MAX - 1] {
            assert_eq!(u32s(&Array::full(device, DType::U32, &[2], n)), [n; 2]);
            assert_eq!(u32s(&Array::full(device, DType::U32, &[2], n as usize)), [n; 2]);
        }
    });
}

#[test]
fn numbers_as_operands_of_integer_arrays_are_exact() {
    each_device(|device| {
        let x = Array::from_slice(device, &[0, 1, ODD, ODD - 1], &[4]);
        assert_eq!(i32s(&(&x + ODD)), [ODD, ODD + 1, 2 * ODD, 2 * ODD - 1]);
        assert_eq!(i32s(&(ODD - &x)), [ODD, ODD - 1, 0, 1]);
        assert_eq!(i32s(&(&x % ODD)), [0, 1, 0, ODD - 1]);
        assert_eq!(i32s(&(&x * 1 + f64::from(ODD))), [ODD, ODD + 1, 2 * ODD, 2 * ODD - 1]);
        assert_eq!(i32s(&x.maximum(ODD)), [ODD, ODD, ODD, ODD]);
        assert_eq!(i32s(&x.eq(1).select(ODD, &x)), [0, ODD, ODD, ODD - 1]);
        assert_eq!(i32s(&x.eq(1).select(ODD, ODD + 2)), [ODD + 2, ODD, ODD + 2, ODD + 2]);
        let y = Array::from_slice(device, &[u32::MAX, 7], &[2]);
        assert_eq!(u32s(&(&y - (u32::MAX - 1))), [1, 9]);
        assert_eq!(u32s(&y.bit_and(0xffff_fffeu32)), [0xffff_fffe, 6]);
    });
}

#[test]
fn integers_are_compared_as_integers() {
    each_device(|device| {
        let x = Array::from_slice(device, &[ODD - 1, ODD, ODD + 1], &[3]);
        assert_eq!(bools(&x.eq(ODD)), [false, true, false]);
        assert_eq!(bools(&x.lt(ODD)), [true, false, false]);
        assert_eq!(bools(&x.ge(f64::from(ODD))), [false, true, true]);
        let turned = Array::from_slice(device, &[ODD, ODD, ODD], &[3]);
        assert_eq!(bools(&x.ne(&turned)), [true, false, true]);
        assert_eq!(u32s(&x.argmax()), [2]);
        assert_eq!(u32s(&x.top_k(2)), [2, 1]);
    });
}

#[test]
fn operations_on_integers_are_exact() {
    if !refrain_testing::drawn(6) {
        return;
    }
    each_device(|device| {
        let x = Array::from_slice(device, &[ODD, 1 - ODD, -ODD, 3], &[2, 2]);
        assert_eq!(i32s(&x.sum(&[0])), [0, 4 - ODD]);
        assert_eq!(i32s(&x.max(&[0, 1])), [ODD]);
        assert_eq!(i32s(&x.min(&[1])), [1 - ODD, -ODD]);
        assert_eq!(i32s(&x.prod(&[1])), [ODD.wrapping_mul(1 - ODD), ODD.wrapping_mul(-3)]);
        for whole in [x.floor(), x.ceil(), x.round(), x.astype(DType::U32).astype(DType::I32)] {
            assert_eq!(i32s(&whole), [ODD, 1 - ODD, -ODD, 3]);
        }
        assert_eq!(i32s(&concatenate(&[&x.slice(0, 0, 1), &x.slice(0, 1, 2)], 0)), i32s(&x));
        assert_eq!(i32s(&(x.abs() - 1)), [ODD - 1, ODD - 2, ODD - 1, 2]);
        let count = Array::arange(device, DType::I32, ODD as usize + 1);
        assert_eq!(i32s(&count.slice(0, ODD as usize, ODD as usize + 1)), [ODD]);
        let rows = Array::from_slice(device, &[1u32], &[1]);
        assert_eq!(i32s(&x.take(&rows, 0)), [-ODD, 3]);
    });
}

#[test]
fn an_integer_out_of_range_is_rejected() {
    let device = Device::cpu();
    let x = Array::from_slice(&device, &[1, 2], &[2]);
    for (wrong, says) in [
        (Array::full(&device, DType::U8, &[1], 256), "u8 cannot represent 256"),
        (Array::full(&device, DType::U32, &[1], -1), "u32 cannot represent -1"),
        (&x + 3_000_000_000u32, "i32 cannot represent 3000000000"),
        (x.lt(i64::MIN), "i32 cannot represent -9223372036854775808"),
    ] {
        let Err(Error::Invalid { what, at, .. }) = wrong.eval() else {
            panic!("{wrong:?} is not an invalid array")
        };
        assert_eq!(what, says);
        assert!(at.file().ends_with("integers.rs"));
    }
    // A float promotes the integers to f32.
    assert_eq!((&x + 3e9).to_vec::<f32>().expect("floats"), [3e9, 3e9]);
}
