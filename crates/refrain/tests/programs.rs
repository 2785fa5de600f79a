//! The program cache: structurally equal programs are lowered once, whatever memory they use.

use refrain::{Array, DType, Device, Function, LowerOptions, ProgramCounts, Replay, Tape, eval};
use refrain_vulkan::DeviceInfo;

fn null() -> Device {
    Device::vulkan(refrain_vulkan::Device::null(DeviceInfo::mock("card")))
}

/// Numbers of programs that `act` lowers and finds in the cache.
fn counted(device: &Device, act: impl FnOnce()) -> [u64; 2] {
    let before = device.program_counts();
    act();
    let ProgramCounts { lowerings, hits, .. } = device.program_counts();
    [lowerings - before.lowerings, hits - before.hits]
}

fn numbers(device: &Device, first: f32) -> Array {
    let numbers: Vec<f32> = (0..6).map(|i| first + i as f32).collect();
    Array::from_slice(device, &numbers, &[2, 3])
}

#[test]
fn an_evaluation_of_the_same_structure_lowers_nothing() {
    for device in [Device::cpu(), null()] {
        let weight = Array::weight(&device, DType::F32, &[3, 2], &mut |_, piece| piece.fill(0)).expect("memory");
        let layer = |x: &Array| (x.matmul(&weight) + 1.0).softmax();
        let first = || {
            layer(&numbers(&device, 0.0)).eval().expect("computes");
        };
        assert_eq!(counted(&device, first), [1, 0]);
        let again = || {
            for first in [1.0, 2.0] {
                layer(&numbers(&device, first)).eval().expect("computes");
            }
        };
        assert_eq!(counted(&device, again), [0, 2], "with other memory on {device:?}");
        let traced = || drop(Function::trace(&[&layer(&numbers(&device, 3.0))]).expect("lowers"));
        assert_eq!(counted(&device, traced), [0, 1], "for a function on {device:?}");
    }
}

#[test]
fn programs_that_differ_in_shape_number_order_or_sharing_are_lowered_separately() {
    let device = Device::cpu();
    let [x, y] = [0.0, 10.0].map(|first| numbers(&device, first));
    let state = Array::state(&device, DType::F32, &[2, 3]).expect("memory");
    let programs: [(Array, Vec<f32>); 9] = [
        (&x + &y, vec![10.0, 12.0, 14.0, 16.0, 18.0, 20.0]),
        (&x + &x, vec![0.0, 2.0, 4.0, 6.0, 8.0, 10.0]),
        (&x - &y, vec![-10.0; 6]),
        (&x + 2.0, vec![2.0, 3.0, 4.0, 5.0, 6.0, 7.0]),
        (&x + 3.0, vec![3.0, 4.0, 5.0, 6.0, 7.0, 8.0]),
        (&x + &state, vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]),
        (&x + &x.slice(1, 0, 1), vec![0.0, 1.0, 2.0, 6.0, 7.0, 8.0]),
        (
            x.reshape(&[6]) + &y.reshape(&[6]),
            vec![10.0, 12.0, 14.0, 16.0, 18.0, 20.0],
        ),
        (
            (&x + &y).astype(DType::F16).astype(DType::F32),
            vec![10.0, 12.0, 14.0, 16.0, 18.0, 20.0],
        ),
    ];
    let all = || {
        for (array, expected) in &programs {
            assert_eq!(array.to_vec::<f32>().expect("computes"), *expected);
        }
    };
    assert_eq!(counted(&device, all), [programs.len() as u64, 0]);
    let swapped = &y + &x;
    assert_eq!(counted(&device, || swapped.eval().expect("computes")), [0, 1]);
}

#[test]
fn cached_programs_update_states_and_reject_stale_versions_like_new_ones() {
    let device = Device::cpu();
    let state = Array::state(&device, DType::F32, &[2, 1]).expect("memory");
    let rows = Array::arange(&device, DType::I32, 2);
    let mut current = state.clone();
    for round in 1..=4 {
        let next = current.write_rows(&(&current + 1.0), &rows);
        let (seen, twice) = (&next * 2.0, &current * 1.0);
        let evaluated = counted(&device, || eval(&[&seen]).expect("computes"));
        assert_eq!(evaluated, if round == 1 { [1, 0] } else { [0, 1] });
        assert_eq!(seen.to_vec::<f32>().expect("reads"), [2.0 * round as f32; 2]);
        assert_eq!(next.to_vec::<f32>().expect("reads"), [round as f32; 2]);
        let stale = twice.eval().expect_err("an old version");
        assert!(stale.to_string().contains("version"), "{stale}");
        current = next;
    }
}

#[test]
fn the_least_recently_used_program_is_evicted() {
    let device = Device::cpu();
    let of = |n: usize| {
        let x = Array::from_slice(&device, &vec![1.0f32; n], &[n]);
        (&x + &x).eval().expect("computes");
    };
    let filled = counted(&device, || (1..=256).for_each(of));
    assert_eq!(filled, [256, 0]);
    assert_eq!(counted(&device, || of(1)), [0, 1]);
    assert_eq!(counted(&device, || of(257)), [1, 0], "replaces the program for 2");
    assert_eq!(counted(&device, || of(1)), [0, 1]);
    assert_eq!(counted(&device, || of(2)), [1, 0]);
}

#[test]
fn functions_of_one_structure_share_a_program_but_no_memory() {
    let device = Device::cpu();
    let trace = || {
        let total = Array::state(&device, DType::F32, &[1, 2]).expect("memory");
        let x = Array::input(&device, "x", DType::F32, &[1, 2]);
        let first = Array::zeros(&device, DType::I32, &[1]);
        let step = Function::trace(&[&total.write_rows(&(&total + &x), &first)]).expect("lowers");
        (step, total)
    };
    let (one, first) = trace();
    let mut other = None;
    assert_eq!(counted(&device, || other = Some(trace())), [0, 1]);
    let (two, second) = other.expect("traced");
    for (step, x) in [(&one, [1.0f32, 2.0]), (&two, [10.0, 20.0]), (&one, [3.0, 4.0])] {
        let x = Array::from_slice(&device, &x, &[1, 2]);
        step.call(&[("x", &x)]).expect("computes");
    }
    assert_eq!(first.to_vec::<f32>().expect("reads"), [4.0, 6.0]);
    assert_eq!(second.to_vec::<f32>().expect("reads"), [10.0, 20.0]);
    let kept = LowerOptions {
        keep: true,
        ..LowerOptions::default()
    };
    let lowered_otherwise = || drop(Function::trace_with(&[&(&first + 1.0)], kept).expect("lowers"));
    assert_eq!(counted(&device, lowered_otherwise), [1, 0]);
    let as_usual = || drop(Function::trace(&[&(&first + 1.0)]).expect("lowers"));
    assert_eq!(counted(&device, as_usual), [1, 0], "lowered with other options");
}

/// A function that returns x · 2 + y and the new version of the returned state.
fn step(device: &Device) -> (Function, Array) {
    let state = Array::state(device, DType::F32, &[2, 3]).expect("memory");
    let [x, y] = ["x", "y"].map(|name| Array::input(device, name, DType::F32, &[2, 3]));
    let rows = Array::arange(device, DType::I32, 2);
    let sum = &x * 2.0 + &y;
    let step = Function::trace(&[&sum, &state.write_rows(&sum, &rows)]).expect("lowers");
    (step, state)
}

#[test]
fn functions_take_and_return_device_arrays() {
    let device = Device::cpu();
    let (step, state) = step(&device);
    let x = numbers(&device, 0.0);
    let tall = Array::from_slice(&device, &[0f32, 3.0, 1.0, 4.0, 2.0, 5.0], &[3, 2]);
    let first = step.call(&[("x", &x), ("y", &(&x * 0.0)), ("unused", &tall)]);
    let first = first.expect("a lazy argument is computed");
    // Results of earlier calls keep their values; views and states are accepted as arguments.
    let second = step
        .call(&[("x", &tall.transpose()), ("y", &first[0])])
        .expect("computes");
    let third = step.call(&[("x", &second[0]), ("y", &state)]).expect("computes");
    let twice: Vec<f32> = (0..6).map(|i| 2.0 * i as f32).collect();
    let results = [&first, &second, &third].map(|outputs| outputs[0].to_vec::<f32>().expect("reads"));
    for (result, times) in results.iter().zip([1.0, 2.0, 6.0]) {
        let expected: Vec<f32> = twice.iter().map(|x| times * x).collect();
        assert_eq!(*result, expected);
    }
    assert_eq!(state.to_vec::<f32>().expect("reads"), results[2]);
    assert_eq!(third[1].to_vec::<f32>().expect("reads"), results[2]);
}

#[test]
fn calls_with_arrays_copy_nothing_through_the_host() {
    let device = null();
    let recorder = device.as_vulkan().expect("a null device").clone();
    let (step, _) = step(&device);
    let mut x = numbers(&device, 0.0);
    step.call(&[("x", &x), ("y", &x)]).expect("submitted");
    let before = recorder.counters();
    for _ in 0..4 {
        x = step.call(&[("x", &x), ("y", &x)]).expect("submitted").swap_remove(0);
    }
    let counters = recorder.counters() - before;
    assert_eq!((counters.submits, counters.bytes_staged, counters.waits), (4, 0, 0));
    assert_eq!((counters.allocations, counters.pipelines_compiled), (0, 0));
}

#[test]
fn arguments_that_do_not_fit_are_rejected_by_name() {
    let (device, other) = (Device::cpu(), null());
    let (step, _) = step(&device);
    let x = numbers(&device, 0.0);
    let refused = |x: &Array, expected: &str| {
        let y = numbers(&device, 0.0);
        let error = step.call(&[("x", x), ("y", &y)]).expect_err("it does not fit");
        assert!(error.to_string().contains(expected), "{error}");
    };
    refused(&x.transpose(), "argument x is f32[3, 2], not f32[2, 3]");
    refused(&x.astype(DType::F16), "argument x is f16[2, 3], not f32[2, 3]");
    refused(&numbers(&other, 0.0), "to_device");
    refused(&x.matmul(&x), "inner dimensions differ: 3 and 2");
    let missing = step.call(&[("x", &x)]).expect_err("y is missing");
    assert!(missing.to_string().contains("argument y is missing"), "{missing}");
}

#[test]
fn tapes_share_the_cached_program() {
    let device = null();
    let total = || {
        let total = Array::state(&device, DType::F32, &[1, 2]).expect("memory");
        let next = total.write_rows(&(&total + 1.0), &Array::zeros(&device, DType::I32, &[1]));
        Function::trace(&[&next]).expect("lowers").tape(&Replay)
    };
    let first = counted(&device, || drop(total().expect("a tape")));
    let mut tape: Option<Tape> = None;
    let again = counted(&device, || tape = Some(total().expect("a tape")));
    assert_eq!((first, again), ([1, 0], [0, 1]));
    tape.expect("made").play(&[], 3).expect("plays");
}

#[test]
fn programs_that_run_once_do_not_evict_those_that_repeat() {
    let device = Device::cpu();
    let of = |n: usize| {
        let x = Array::from_slice(&device, &vec![1.0f32; n], &[n]);
        (&x + &x).eval().expect("computes");
    };
    assert_eq!(counted(&device, || [1, 1, 2, 2].into_iter().for_each(of)), [2, 2]);
    assert_eq!(counted(&device, || (1000..1400).for_each(of)), [400, 0]);
    assert_eq!(counted(&device, || [1, 2].into_iter().for_each(of)), [0, 2]);
}
