//! Errors of invalid operations say what is wrong and where.

mod common;

use common::vulkan;
use refrain::fast::{self, Mask};
use refrain::{Array, DType, Device, Error, Function, concatenate, eval};
use refrain_lm::{AttentionParams, BatchTokens, causal_conv, expert_matmul, gated_delta, paged_attention};
use refrain_vulkan::DeviceInfo;

/// The null device, which records commands and computes nothing.
fn null() -> Device {
    Device::vulkan(refrain_vulkan::Device::null(DeviceInfo::mock("card")))
}

/// Fails unless evaluation returns an [`Error::Invalid`] of operation `op`, with all of `parts` in its message, located
/// at line `line` of this file.
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
fn errors_name_the_operation_the_shapes_and_the_callers_line() {
    let device = Device::cpu();
    let x = Array::zeros(&device, DType::F32, &[2, 3]);
    let i = Array::zeros(&device, DType::I32, &[4]);
    let four = Array::zeros(&device, DType::F32, &[4, 4]);
    let batch = BatchTokens {
        positions: &i,
        sequences: &Array::zeros(&device, DType::U32, &[4]),
        pages: &x,
    };
    #[rustfmt::skip]
    let mistakes: Vec<(Array, u32, &str, &[&str])> = vec![
        (&x + &i, line!(), "add", &["[2, 3]", "[4]"]),
        (x.maximum(&i), line!(), "maximum", &["[2, 3]", "[4]"]),
        (x.select(&i, &x), line!(), "select", &["[2, 3]", "[4]"]),
        (x.bit_and(&x), line!(), "bit_and", &["f32", "integers"]),
        (x.matmul(&x), line!(), "matmul", &["[2, 3]", "inner dimensions differ: 3 and 2"]),
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
        (concatenate(&[], 0), line!(), "concatenate", &["no arrays to concatenate"]),
        (expert_matmul(&x, &i, &x, 1), line!(), "expert_matmul", &["x f32[2, 3]", "experts i32[4]"]),
        (causal_conv(&x, &x, batch, &x).0, line!(), "causal_conv", &["f32[2, 3]", "i32[4]"]),
        (gated_delta([&x, &x, &x], [&x, &x], batch, &x).1, line!(), "gated_delta", &["f32[2, 3]"]),
        (causal_conv(&four, &four, batch, &Array::zeros(&device, DType::F32, &[1, 3, 4])).1, line!(), "causal_conv", &["only a whole state"]),
        (fast::rms_norm(&x, Some(&i), 1e-5), line!(), "rms_norm", &["i32[4]", "f32[2, 3]"]),
        (fast::scaled_dot_product_attention(&x, &x, &x, 1.0, Mask::None), line!(), "scaled_dot_product_attention", &["[2, 3]"]),
        (Array::from_slice(&device, &[1.0f32], &[2]), line!(), "from_bytes", &["4 bytes", "[2]"]),
        (Array::zeros(&device, DType::F32, &[usize::MAX, 2]), line!(), "full", &["exceeds the address space"]),
    ];
    for (array, line, op, parts) in &mistakes {
        assert_invalid(array, op, parts, *line);
    }
}

#[test]
fn the_first_error_is_passed_on() {
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
fn elements_are_read_only_as_their_dtype() {
    let x = Array::ones(&Device::cpu(), DType::I32, &[2]);
    let (error, line) = (x.to_vec::<f32>().unwrap_err(), line!());
    let Error::Invalid { op: "to_vec", what, at } = error else {
        panic!("{error}")
    };
    assert_eq!((what.as_str(), at.line()), ("the elements are i32, not f32", line));
    let bytes = Array::from_bytes(&Device::cpu(), &[0, 7], DType::Bool, &[2]);
    assert!(
        bytes
            .to_vec::<bool>()
            .unwrap_err()
            .to_string()
            .contains("not valid bool")
    );
}

#[test]
fn arrays_of_different_devices_are_not_combined() {
    let (a, b) = (Device::cpu(), Device::cpu());
    let [x, y] = [&a, &b].map(|device| Array::ones(device, DType::F32, &[2]));
    assert_eq!((&x * &y).to_vec::<f32>().unwrap(), [1.0, 1.0], "the CPU is one device");
    let y = Array::ones(&null(), DType::F32, &[2]);
    assert_invalid(&(&x * &y), "mul", &["CPU executor", "card", "to_device"], line!());
    assert!(
        eval(&[&x, &y])
            .unwrap_err()
            .to_string()
            .contains("evaluate them separately")
    );
    let moved = y.to_device(&a).expect("a copy");
    assert_eq!(
        (&x + &moved).to_vec::<f32>().unwrap(),
        [1.0, 1.0],
        "the null device reads as zeros"
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
    assert!(
        f.call_bytes(&[])
            .unwrap_err()
            .to_string()
            .contains("argument x is missing")
    );
    assert!(
        f.call_bytes(&[("x", &two[..4])])
            .unwrap_err()
            .to_string()
            .contains("4 bytes, not the 8")
    );
    f.call_bytes(&[("x", two), ("unused", &[])]).unwrap();
    assert_eq!(
        (f.read::<f32>(0).unwrap(), f.read_range::<f32>(1, 1, 1).unwrap()),
        (vec![2.0, 3.0], vec![2.0])
    );
    assert!(f.read::<f32>(2).is_err() && f.read::<i32>(0).is_err());
    assert!(f.read_range::<f32>(0, 1, 2).is_err() && f.read_range::<f32>(0, usize::MAX, 2).is_err());
    assert!(Function::trace(&[]).is_err());
    let empty = Array::input(&device, "nothing", DType::F32, &[0]);
    let f = Function::trace(&[&empty, &(&empty + 1.0)]).unwrap();
    f.call_bytes(&[("nothing", &[])]).unwrap();
    assert!(f.read::<f32>(0).unwrap().is_empty());
}

#[test]
fn programs_of_any_length_are_computed_and_dropped_without_overflow() {
    let device = Device::cpu();
    let grown = (0..50_000).fold(Array::zeros(&device, DType::F32, &[2]), |x, _| x + 1.0);
    let dropped = grown.sqrt();
    assert_eq!(grown.to_vec::<f32>().unwrap(), [50_000.0; 2]);
    drop(dropped);
    let unused = (0..50_000).fold(Array::zeros(&device, DType::F32, &[2]), |x, _| x.softmax());
    drop(unused);
}

#[test]
fn concurrent_calls_keep_their_arguments() {
    for device in [&Device::cpu(), vulkan()] {
        let state = Array::state(device, DType::F32, &[64]).unwrap();
        let x = Array::input(device, "x", DType::F32, &[1]);
        let slot = Array::input(device, "slot", DType::I32, &[1]);
        let f = Function::trace(&[&state.write_rows(&(&x * 2.0), &slot)]).unwrap();
        let call = |slot: i32| {
            let x = slot as f32;
            f.call_bytes(&[("x", bytemuck::bytes_of(&x)), ("slot", bytemuck::bytes_of(&slot))])
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
fn only_a_whole_state_is_updated_in_place() {
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
        // A view of the whole state in its own order counts as the state.
        let whole = evaluated && part.count() == 8;
        assert_eq!(part.write_rows(&row, &slot).error().is_none(), whole, "{part:?}");
    }
    let flat = state
        .reshape(&[8, 1])
        .write_rows(&row.reshape(&[2, 1]), &Array::arange(state.device(), DType::I32, 2));
    assert_eq!(flat.to_vec::<f32>().unwrap()[..3], [1.0, 1.0, 0.0]);
}

#[test]
fn a_function_rejects_an_output_of_an_outdated_state_version() {
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
fn unsupported_operations_are_reported_with_dtype_and_device() {
    let device = null();
    let q = Array::zeros(&device, DType::F16, &[1, 2, 3]);
    let rows = Array::zeros(&device, DType::F32, &[4, 1, 3]);
    let index = |dtype, shape: &[usize]| Array::zeros(&device, dtype, shape);
    let (positions, sequences, pages) = (
        index(DType::I32, &[1]),
        index(DType::U32, &[1]),
        index(DType::U32, &[1, 1]),
    );
    let tokens = BatchTokens {
        positions: &positions,
        sequences: &sequences,
        pages: &pages,
    };
    let params = AttentionParams {
        scale: 1.0,
        page_size: 4,
        window: None,
        decode: false,
        blocks: [None; 2],
    };
    let error = paged_attention(&q, &rows, &rows, tokens, params).eval().unwrap_err();
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
fn arrays_larger_than_memory_are_rejected() {
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
