//! Public operations with random arguments, valid or not.

mod common;

use common::{Random, vulkan};
use refrain::fast::{self, Mask};
use refrain::{Array, DType, Device, QuantFormat, Quantised, concatenate, passes};
use refrain_lm::{AttentionParams, BatchTokens, RopeParams, paged_attention, rope};
use refrain_vulkan::DeviceInfo;

/// The null device, which records commands and computes nothing.
fn null() -> Device {
    Device::vulkan(refrain_vulkan::Device::null(DeviceInfo::mock("card")))
}

/// One random operation with random arguments, valid or not.
fn random_operation(random: &mut Random, device: &Device, arrays: &[Array]) -> Array {
    let mut any = || arrays[random.below(arrays.len())].clone();
    let (x, y, z) = (any(), any(), any());
    let axis = random.pick(&[-2, -1, -1, 0, 0, 1, 1, 2, 5, -9, isize::MIN, isize::MAX]);
    let n = |random: &mut Random| random.pick(&[0, 1, 1, 2, 2, 3, 4, 6, 64, usize::MAX, 1 << 40]);
    let sizes: Vec<usize> = (0..random.below(4)).map(|_| n(random)).collect();
    let dtype = random.pick(&DType::ALL);
    let (a, b, c) = (n(random), n(random), n(random));
    match random.below(36) {
        0 => x.matmul(&y),
        1 => &x + &y,
        2 => x.bit_xor(&y).shift_left(&z),
        3 => x.pow(&y) % &z,
        4 => x.reshape(&sizes.iter().map(|&n| n as isize).collect::<Vec<_>>()),
        5 => x.reshape(&[-1, a as isize]),
        6 => x.permute(&sizes.iter().map(|&n| n as isize - 1).collect::<Vec<_>>()),
        7 => x.swap_axes(axis, 0),
        8 => x.slice(axis, a, b),
        9 => x.slice_by(axis, a.min(2), x.dim(axis), c),
        10 => x.split::<3>(axis)[2].clone(),
        11 => x.broadcast_to(&sizes),
        12 => x.expand_dims(axis).squeeze(),
        13 => x.sum(&[axis]),
        14 => x.mean(&[axis, 0]),
        15 => x.max(&[axis]).minimum(x.min(&[0])),
        16 => x.prod(&[axis]).logical_not(),
        17 => x.any(&[axis, axis]).bit_and(x.all(&[])),
        18 => x.argmax(),
        19 => x.top_k(a),
        20 => x.softmax(),
        21 => x.take(&y, axis),
        22 => x.take_along(&y),
        23 => x.write_rows(&y, &z.astype(DType::I32)),
        24 => concatenate(&[&x, &y, &z], axis),
        25 => fast::rms_norm(&x, random.one_in(2).then_some(&y), f32::NAN),
        26 => rope(
            &x,
            &y,
            &z,
            RopeParams {
                dims: a,
                interleaved: random.one_in(2),
                scale: 1.0,
            },
        ),
        27 => fast::scaled_dot_product_attention(
            &x,
            &y,
            &z,
            0.1,
            random.pick(&[Mask::None, Mask::Causal, Mask::Array(&y)]),
        ),
        28 => {
            let tokens = BatchTokens {
                positions: &y,
                sequences: &z,
                pages: &arrays[random.below(arrays.len())],
            };
            let params = AttentionParams {
                scale: 1.0,
                page_size: a as u32,
                window: random.pick(&[None, Some(0), Some(3)]),
                decode: false,
                blocks: [None; 2],
            };
            paged_attention(&x, &y, &y, tokens, params)
        }
        29 => random_quantised(random, x, y, z),
        30 => x.astype(dtype),
        31 => x.select(&y, &z),
        32 => Array::full(device, dtype, &sizes, random.pick(&[0.0, -1.0, 1e20, f32::NAN])),
        33 => Array::arange(device, dtype, a.min(1 << 41)),
        34 => (-&x).silu().floor() - random.pick(&[0.5, -3.0, 1e12, f32::NAN]),
        _ => x.transpose().contiguous().abs().sign(),
    }
}

/// A product with, or rows of, a quantised matrix whose planes may not fit its format.
fn random_quantised(random: &mut Random, x: Array, y: Array, z: Array) -> Array {
    let format = random.pick(&[
        QuantFormat::Q4_0,
        QuantFormat::mlx(8, 32),
        QuantFormat::mlx(0, 0),
        QuantFormat::mlx(7, 3),
    ]);
    let biases = random.one_in(2).then_some(z);
    let matrix = Quantised {
        format,
        quants: x,
        scales: y.clone(),
        biases,
    };
    if random.one_in(2) {
        matrix.matmul(&y)
    } else {
        matrix.take(&y)
    }
}

/// Arrays of many ranks and dtypes, including operands of attention and of quantisation, a state, a placeholder, an
/// array of another device and an invalid array.
fn material(random: &mut Random, device: &Device) -> Vec<Array> {
    let mut arrays: Vec<Array> = DType::ALL
        .iter()
        .zip([&[2, 3][..], &[3], &[], &[2], &[3, 4], &[2, 0, 3], &[1, 2, 2, 2]])
        .map(|(&dtype, shape)| random.dense(device, dtype, shape))
        .collect();
    arrays.extend([
        random.dense(device, DType::F32, &[2, 2, 4]),
        random.dense(device, DType::F16, &[3, 1, 4]),
        random.dense(device, DType::U32, &[2, 2]),
        random.dense(device, DType::F16, &[2, 1]),
        Array::state(device, DType::F32, &[2, 3]).expect("a small state"),
        Array::input(device, "x", DType::F32, &[2, 3]),
        Array::ones(&Device::cpu(), DType::F32, &[3]),
        Array::zeros(device, DType::F32, &[2]).sum(&[7]),
    ]);
    arrays
}

/// Random operations return an error or elements, on every device and in plans.
#[test]
fn no_arguments_make_a_public_operation_panic() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let (cpu, null) = (Device::cpu(), null());
    let mut outcomes = [0, 0];
    for seed in 0..600 {
        let device = if seed % 20 == 0 {
            vulkan()
        } else {
            [&cpu, &null][seed as usize % 2]
        };
        let mut random = Random::new(seed);
        let mut arrays = material(&mut random, device);
        for _ in 0..25 {
            let x = random_operation(&mut random, device, &arrays);
            // Skips arrays of gigabytes, which are valid but take too long.
            if x.count() > 100_000 && x.error().is_none() {
                continue;
            }
            let result = match device.as_vulkan() {
                Some(_) if seed % 20 != 0 => passes::plan(&[&x]).map(|_| ()),
                _ => x.to_bytes().map(|_| ()),
            };
            outcomes[usize::from(result.is_ok())] += 1;
            if let Err(error) = &result {
                assert!(error.to_string().len() > 10, "{error}");
            }
            if x.error().is_none() {
                arrays.push(x);
            }
        }
    }
    assert!(outcomes.iter().all(|&n| n > 2000), "both happen: {outcomes:?}");
}
