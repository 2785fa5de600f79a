//! Mistakes give errors that say what is wrong and where; nothing panics.

mod common;

use common::{Random, vulkan};
use refrain::fast::{self, Mask, Tokens};
use refrain::{
    Array, AttentionParams, DType, Device, Error, Function, QuantFormat, Quantised, RopeParams, concatenate, eval,
    passes,
};
use refrain_vulkan::DeviceInfo;

/// A device that records what it is asked and computes nothing.
fn null() -> Device {
    Device::vulkan(refrain_vulkan::Device::null(DeviceInfo::made_up("card")))
}

/// Fails unless evaluating gives an [`Error::Invalid`] of operation `op`, with all of `parts` in its
/// message, that points to line `line` of this file.
#[track_caller]
fn assert_invalid(array: &Array, op: &str, parts: &[&str], line: u32) {
    let error = array.eval().expect_err("a mistake");
    let Error::Invalid { op: found, at, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(*found, op, "{error}");
    assert_eq!((at.file(), at.line()), (file!(), line), "{error}");
    let message = error.to_string();
    assert!(parts.iter().all(|part| message.contains(part)), "{message}");
}

#[test]
fn mistakes_name_the_operation_the_shapes_and_the_callers_line() {
    let device = Device::cpu();
    let x = Array::zeros(&device, DType::F32, &[2, 3]);
    let i = Array::zeros(&device, DType::I32, &[4]);
    #[rustfmt::skip]
    let mistakes: Vec<(Array, u32, &str, &[&str])> = vec![
        (&x + &i, line!(), "add", &["[2, 3]", "[4]"]),
        (x.maximum(&i), line!(), "maximum", &["[2, 3]", "[4]"]),
        (x.select(&i, &x), line!(), "select", &["[2, 3]", "[4]"]),
        (x.bit_and(&x), line!(), "bit_and", &["f32", "integers"]),
        (x.matmul(&x), line!(), "matmul", &["[2, 3]", "3 columns meet 2 rows"]),
        (i.matmul(&i), line!(), "matmul", &["i32[4]"]),
        (x.reshape(&[-1, 4]), line!(), "reshape", &["[2, 3]", "[-1, 4]"]),
        (x.permute(&[0, 0]), line!(), "permute", &["[0, 0]", "[2, 3]"]),
        (x.slice(1, 2, 5), line!(), "slice", &["2..5", "[2, 3]"]),
        (x.slice(7, 0, 1), line!(), "slice", &["axis 7", "[2, 3]"]),
        (x.broadcast_to(&[2]), line!(), "broadcast_to", &["[2, 3]", "[2]"]),
        (x.expand_dims(9), line!(), "expand_dims", &["9", "[2, 3]"]),
        (x.split::<2>(-1)[1].clone(), line!(), "split", &["[2, 3]", "2 pieces"]),
        (x.sum(&[2]), line!(), "sum", &["[2]", "[2, 3]"]),
        (x.slice(0, 0, 0).max(&[0]), line!(), "max", &["[0, 3]"]),
        (x.top_k(4), line!(), "top_k", &["4", "[2, 3]"]),
        (i.softmax(), line!(), "softmax", &["i32[4]"]),
        (x.take(&x, 0), line!(), "take", &["f32[2, 3]"]),
        (x.take_along(&i), line!(), "take_along", &["i32[4]", "[2, 3]"]),
        (x.write_rows(&x, &i), line!(), "write_rows", &["[2, 3]", "[4]"]),
        (x.write_rows(&x.slice(0, 0, 1), &i.slice(0, 0, 1)), line!(), "write_rows", &["state"]),
        (concatenate(&[&x, &i], 0), line!(), "concatenate", &["[4]", "[2, 3]"]),
        (concatenate(&[], 0), line!(), "concatenate", &["nothing to join"]),
        (fast::rms_norm(&x, Some(&i), 1e-5), line!(), "rms_norm", &["i32[4]", "f32[2, 3]"]),
        (fast::scaled_dot_product_attention(&x, &x, &x, 1.0, Mask::None), line!(), "scaled_dot_product_attention", &["[2, 3]"]),
        (Array::from_slice(&device, &[1.0f32], &[2]), line!(), "from_bytes", &["4 bytes", "[2]"]),
        (Array::zeros(&device, DType::F32, &[usize::MAX, 2]), line!(), "full", &["more than memory"]),
    ];
    for (array, line, op, parts) in &mistakes {
        assert_invalid(array, op, parts, *line);
    }
}

#[test]
fn the_first_mistake_is_handed_on() {
    let device = Device::cpu();
    let x = Array::zeros(&device, DType::F32, &[2, 3]);
    let (wrong, line) = (x.sum(&[5]), line!());
    let i = Array::zeros(&device, DType::I32, &[2]);
    let later = [
        x.matmul(&wrong),
        wrong.matmul(&x),
        fast::rms_norm(&x, Some(&wrong), 0.0),
        concatenate(&[&x, &wrong], 0),
        x.take(&wrong, 0),
        (&x + &wrong).silu().reshape(&[7]).split::<3>(2)[0].clone(),
        Array::state(&device, DType::F32, &[2, 3])
            .unwrap()
            .write_rows(&wrong, &i),
    ];
    for array in &later {
        assert_invalid(array, "sum", &["[5]"], line);
    }
    assert!(wrong.error().is_some() && wrong.to_vec::<f32>().is_err());
    assert!(Function::trace(&[&wrong]).is_err());
}

#[test]
fn elements_are_read_as_what_they_are() {
    let x = Array::ones(&Device::cpu(), DType::I32, &[2]);
    let (error, line) = (x.to_vec::<f32>().unwrap_err(), line!());
    let Error::Invalid { op: "to_vec", what, at } = error else {
        panic!("{error}")
    };
    assert_eq!((what.as_str(), at.line()), ("the elements are i32, not f32", line));
    let bytes = Array::from_bytes(&Device::cpu(), &[0, 7], DType::Bool, &[2]);
    assert!(bytes.to_vec::<bool>().unwrap_err().to_string().contains("no bool"));
}

#[test]
fn devices_do_not_meet_unasked() {
    let (a, b) = (Device::cpu(), Device::cpu());
    let [x, y] = [&a, &b].map(|device| Array::ones(device, DType::F32, &[2]));
    assert_eq!((&x * &y).to_vec::<f32>().unwrap(), [1.0, 1.0], "the CPU is one device");
    let y = Array::ones(&null(), DType::F32, &[2]);
    assert_invalid(&(&x * &y), "mul", &["CPU executor", "card", "to_device"], line!());
    assert!(eval(&[&x, &y]).unwrap_err().to_string().contains("evaluate them apart"));
    let moved = y.to_device(&a).expect("a copy");
    assert_eq!(
        (&x + &moved).to_vec::<f32>().unwrap(),
        [1.0, 1.0],
        "what computes nothing reads as zeros"
    );
}

#[test]
fn placeholders_have_values_only_within_functions() {
    let device = Device::cpu();
    let x = Array::input(&device, "x", DType::F32, &[2]);
    let error = (&x + 1.0).to_vec::<f32>().unwrap_err();
    assert!(matches!(&error, Error::UnboundInput { name } if name == "x"), "{error}");
    let f = Function::trace(&[&(&x + 1.0), &x]).unwrap();
    let two = bytemuck::cast_slice::<f32, u8>(&[1.0, 2.0]);
    assert!(f.read::<f32>(0).unwrap_err().to_string().contains("not called yet"));
    assert!(f.call(&[]).unwrap_err().to_string().contains("argument x is missing"));
    assert!(
        f.call(&[("x", &two[..4])])
            .unwrap_err()
            .to_string()
            .contains("4 bytes, not the 8")
    );
    f.call(&[("x", two), ("unused", &[])]).unwrap();
    assert_eq!(
        (f.read::<f32>(0).unwrap(), f.read_range::<f32>(1, 1, 1).unwrap()),
        (vec![2.0, 3.0], vec![2.0])
    );
    assert!(f.read::<f32>(2).is_err() && f.read::<i32>(0).is_err());
    assert!(f.read_range::<f32>(0, 1, 2).is_err() && f.read_range::<f32>(0, usize::MAX, 2).is_err());
    assert!(Function::trace(&[]).is_err());
    let empty = Array::input(&device, "nothing", DType::F32, &[0]);
    let f = Function::trace(&[&empty, &(&empty + 1.0)]).unwrap();
    f.call(&[("nothing", &[])]).unwrap();
    assert_eq!(f.read::<f32>(0).unwrap(), []);
}

#[test]
fn programs_of_any_length_are_computed_and_dropped() {
    let device = Device::cpu();
    let grown = (0..50_000).fold(Array::zeros(&device, DType::F32, &[2]), |x, _| x + 1.0);
    let dropped = grown.sqrt();
    assert_eq!(grown.to_vec::<f32>().unwrap(), [50_000.0; 2]);
    drop(dropped);
    let unused = (0..50_000).fold(Array::zeros(&device, DType::F32, &[2]), |x, _| x.softmax());
    drop(unused);
}

#[test]
fn calls_from_several_threads_keep_their_arguments_apart() {
    for device in [&Device::cpu(), vulkan()] {
        let state = Array::state(device, DType::F32, &[64]).unwrap();
        let x = Array::input(device, "x", DType::F32, &[1]);
        let slot = Array::input(device, "slot", DType::I32, &[1]);
        let f = Function::trace(&[&state.write_rows(&(&x * 2.0), &slot)]).unwrap();
        let call = |slot: i32| {
            let x = slot as f32;
            f.call(&[("x", bytemuck::bytes_of(&x)), ("slot", bytemuck::bytes_of(&slot))])
                .unwrap();
        };
        std::thread::scope(|scope| {
            (0..4).for_each(|t| drop(scope.spawn(move || (t * 16..(t + 1) * 16).for_each(call))))
        });
        let expected: Vec<f32> = (0..64).map(|slot| slot as f32 * 2.0).collect();
        assert_eq!(state.to_vec::<f32>().unwrap(), expected, "on {device:?}");
    }
}

#[test]
fn only_a_whole_state_is_written_in_place() {
    let state = Array::state(&Device::cpu(), DType::F32, &[4, 2]).unwrap();
    let (row, slot) = (
        Array::ones(state.device(), DType::F32, &[1, 2]),
        Array::zeros(state.device(), DType::I32, &[1]),
    );
    let part = state.slice(0, 2, 4);
    let seen = [part.clone(), state.permute(&[0, 1]), row.contiguous()];
    for (part, evaluated) in seen.iter().flat_map(|x| [(x, false), (x, true)]) {
        if evaluated {
            part.eval().unwrap();
        }
        // A whole view in the state's own order is the state.
        let whole = evaluated && part.count() == 8;
        assert_eq!(part.write_rows(&row, &slot).error().is_none(), whole, "{part:?}");
    }
    let flat = state
        .reshape(&[8, 1])
        .write_rows(&row.reshape(&[2, 1]), &Array::arange(state.device(), DType::I32, 2));
    assert_eq!(flat.to_vec::<f32>().unwrap()[..3], [1.0, 1.0, 0.0]);
}

#[test]
fn a_function_does_not_return_a_state_that_it_goes_on_to_change() {
    let state = Array::state(&Device::cpu(), DType::F32, &[2]).unwrap();
    let one = |v: i32| Array::full(state.device(), DType::I32, &[1], v as f32);
    let after = state.write_rows(&one(5).astype(DType::F32), &one(0));
    let error = Function::trace(&[&state.slice(0, 0, 1), &after])
        .err()
        .expect("a stale output");
    assert!(
        matches!(
            error,
            Error::StaleState {
                read: 0,
                current: 1,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn what_a_device_cannot_do_is_named_with_its_dtype() {
    let device = null();
    let q = Array::zeros(&device, DType::F16, &[1, 2, 3]);
    let rows = Array::zeros(&device, DType::F32, &[4, 1, 3]);
    let index = |dtype, shape: &[usize]| Array::zeros(&device, dtype, shape);
    let (positions, sequences, pages) = (
        index(DType::I32, &[1]),
        index(DType::U32, &[1]),
        index(DType::U32, &[1, 1]),
    );
    let tokens = Tokens {
        positions: &positions,
        sequences: &sequences,
        pages: &pages,
    };
    let params = AttentionParams {
        scale: 1.0,
        page_size: 4,
        window: None,
    };
    let error = fast::paged_attention(&q, &rows, &rows, tokens, params)
        .eval()
        .unwrap_err();
    let Error::Unsupported { op, dtype, device, why } = &error else {
        panic!("{error}")
    };
    assert_eq!(
        (op.as_str(), *dtype, device.as_str()),
        ("paged_attention", DType::F16, "card")
    );
    assert!(why.contains("heads of 3 values"), "{error}");
}

#[test]
fn views_larger_than_memory_are_refused_when_read() {
    let device = Device::cpu();
    let huge = Array::ones(&device, DType::F32, &[]).broadcast_to(&[1 << 50]);
    assert!(matches!(huge.sum(&[0]).eval(), Err(Error::HostMemory { .. })));
    assert!(matches!((&huge + 1.0).eval(), Err(Error::HostMemory { .. })));
    assert!(matches!(
        Array::state(&device, DType::F32, &[1 << 50]),
        Err(Error::HostMemory { .. })
    ));
    let huge = Array::ones(&null(), DType::F32, &[]).broadcast_to(&[1 << 50]);
    assert!(matches!(huge.sum(&[0]).eval(), Err(Error::Unsupported { .. })));
    assert!(matches!(
        Array::state(huge.device(), DType::F32, &[1 << 50]),
        Err(Error::Vulkan(_))
    ));
}

/// One random operation with random arguments, sensible or not.
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
        6 => x.permute(&sizes),
        7 => x.swap_axes(axis, 0),
        8 => x.slice(axis, a, b),
        9 => x.slice_by(axis, a.min(2), x.dim(axis), c),
        10 => x.split::<3>(axis)[2].clone(),
        11 => x.broadcast_to(&sizes),
        12 => x.expand_dims(a).squeeze(),
        13 => x.sum(&[axis]),
        14 => x.mean(&[axis, 0]),
        15 => x.max(&[axis]).minimum(&x.min(&[0])),
        16 => x.prod(&[axis]).logical_not(),
        17 => x.any(&[axis, axis]).bit_and(&x.all(&[])),
        18 => x.argmax(),
        19 => x.top_k(a),
        20 => x.softmax(),
        21 => x.take(&y, axis),
        22 => x.take_along(&y),
        23 => x.write_rows(&y, &z.astype(DType::I32)),
        24 => concatenate(&[&x, &y, &z], axis),
        25 => fast::rms_norm(&x, random.one_in(2).then_some(&y), f32::NAN),
        26 => fast::rope(
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
            let tokens = Tokens {
                positions: &y,
                sequences: &z,
                pages: &arrays[random.below(arrays.len())],
            };
            let params = AttentionParams {
                scale: 1.0,
                page_size: a as u32,
                window: random.pick(&[None, Some(0), Some(3)]),
            };
            fast::paged_attention(&x, &y, &y, tokens, params)
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

/// A product with, or rows of, a matrix whose planes may not fit its format.
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

/// Arrays of many ranks and dtypes: attention's and quantisation's operands among them, a state, a
/// placeholder, an array of another device, an invalid one.
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

/// What random operations give is an error or elements, on every device and in plans.
#[test]
fn no_argument_makes_a_public_operation_panic() {
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
            // Arrays of gigabytes are computed as asked, which takes too long here.
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
