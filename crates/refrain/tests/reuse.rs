//! Reuse of kernels, commands and memory, seen by the null device, which records everything and computes nothing.

use std::sync::Arc;

use refrain::{Array, DType, Device, Function, eval};
use refrain_vulkan::{Counters, DeviceInfo, NullEvent, Queue, RecordedCommand};

fn null() -> (Device, Arc<refrain_vulkan::Device>) {
    let recorder = refrain_vulkan::Device::null(DeviceInfo::mock("card"));
    (Device::vulkan(recorder.clone()), recorder)
}

/// The counters and events caused by `act`.
fn caused(recorder: &refrain_vulkan::Device, act: impl FnOnce()) -> (Counters, Vec<NullEvent>) {
    let (before, events) = (recorder.counters(), recorder.recorded().len());
    act();
    (recorder.counters() - before, recorder.recorded().split_off(events))
}

/// The commands of each submit to the compute queue, with the timeline value at its end.
fn submitted(events: &[NullEvent]) -> Vec<(&[RecordedCommand], u64)> {
    let submit = |event| match event {
        &NullEvent::Submit {
            queue: Queue::Compute,
            ref commands,
            value,
            ..
        } => Some((&commands[..], value)),
        _ => None,
    };
    events.iter().filter_map(submit).collect()
}

/// The timeline values that the host waits for.
fn waits(events: &[NullEvent]) -> Vec<(Queue, u64)> {
    let wait = |event: &NullEvent| match event {
        NullEvent::Wait { queue, value } => Some((*queue, *value)),
        _ => None,
    };
    events.iter().filter_map(wait).collect()
}

/// One program of every kind over two matrices `[m, k]` and `[k, n]`, where `a` may have any layout.
fn program(a: &Array, b: &Array) -> Vec<Array> {
    vec![
        (a * 2.0 + 1.0).tanh(),
        a.softmax(),
        a.sum(&[-1]),
        a.argmax(),
        refrain::concatenate(&[a, a], 0),
        a.contiguous().matmul(b),
    ]
}

#[test]
fn kernels_are_compiled_once_for_all_sizes_and_strides() {
    let (device, recorder) = null();
    let matrix = |m: usize, n: usize| Array::zeros(&device, DType::F32, &[m, n]).exp();
    // Contiguous, sliced and transposed operands. Rows of 65 to 128 elements use the same number of invocations.
    let compute = |m: usize, k: usize, n: usize| {
        let (a, wide, tall, b) = (matrix(m, k), matrix(m, k + 9), matrix(k, m), matrix(k, n));
        eval(&[&a, &wide, &tall, &b]).expect("operands");
        for a in [a, wide.slice(1, 3, 3 + k), tall.transpose()] {
            eval(&program(&a, &b).iter().collect::<Vec<_>>()).expect("results");
        }
    };
    compute(64, 96, 32);
    let (counters, events) = caused(&recorder, || {
        for (m, k, n) in [(65, 96, 32), (128, 128, 64), (97, 71, 33)] {
            compute(m, k, n);
        }
    });
    assert!(counters.dispatches > 60, "{} dispatches", counters.dispatches);
    let made = events.iter().find(|event| matches!(event, NullEvent::Pipeline { .. }));
    assert_eq!(made, None, "other sizes need no other kernels");
}

#[test]
fn every_call_submits_the_same_commands() {
    let (device, recorder) = null();
    let x = Array::input(&device, "x", DType::F32, &[4, 8]);
    let state = Array::state(&device, DType::F32, &[16, 8]).expect("a small state");
    let slots = Array::input(&device, "slots", DType::I32, &[4]);
    let updated = state.write_rows(&x.softmax(), &slots);
    let step = Function::trace(&[&(&updated * 2.0).sum(&[0])]).expect("a function");
    let (_, events) = caused(&recorder, || {
        for call in 0..3u8 {
            let arguments: [(&str, &[u8]); 2] = [("x", &[call; 128]), ("slots", &[0; 16])];
            step.call_bytes(&arguments).expect("a call");
        }
    });
    let submits = submitted(&events);
    assert_eq!(submits.len(), 3);
    assert!(!submits[0].0.is_empty());
    assert!(
        submits.iter().all(|(commands, _)| *commands == submits[0].0),
        "{submits:?}"
    );
}

#[test]
fn a_call_waits_only_until_the_previous_call_has_read_its_arguments() {
    let (device, recorder) = null();
    let x = Array::input(&device, "x", DType::F32, &[8]);
    let step = Function::trace(&[&(&x * 2.0)]).expect("a function");
    let call = || step.call_bytes(&[("x", &[0; 32])]).expect("a call");
    let (_, events) = caused(&recorder, call);
    assert_eq!(waits(&events), [], "there is no previous call");
    let (_, first) = submitted(&events)[0];
    let other = Array::zeros(&device, DType::F32, &[8]).exp();
    other.eval().expect("another submit");
    let (_, events) = caused(&recorder, call);
    assert_eq!(waits(&events), [(Queue::Compute, first)]);

    let constant = Function::trace(&[&other.exp()]).expect("a function without arguments");
    let (_, events) = caused(&recorder, || {
        (0..3).for_each(|_| constant.call_bytes(&[]).expect("a call"))
    });
    assert_eq!((waits(&events), submitted(&events).len()), (vec![], 3));
}

#[test]
fn only_the_requested_range_is_read_back() {
    let (device, recorder) = null();
    let x = Array::input(&device, "x", DType::F32, &[1000]);
    let step = Function::trace(&[&(&x * 2.0)]).expect("a function");
    step.call_bytes(&[("x", &[0; 4000])]).expect("a call");
    let (counters, _) = caused(&recorder, || {
        assert_eq!(step.read_range::<f32>(0, 990, 5).expect("five elements").len(), 5);
    });
    assert_eq!((counters.bytes_staged, counters.transfer_submits), (20, 1));
}

#[test]
fn nothing_is_submitted_if_there_is_nothing_to_compute() {
    let (device, recorder) = null();
    let x = Array::from_slice(&device, &[1.0f32; 12], &[3, 4]);
    let empty = x.slice(0, 1, 1);
    let (counters, _) = caused(&recorder, || {
        eval(&[&x, &x.transpose(), &x.slice(1, 1, 3), &x.reshape(&[2, 6])]).expect("views");
        eval(&[&empty, &empty.exp(), &empty.matmul(&x.transpose())]).expect("empty results");
        assert!(empty.exp().to_vec::<f32>().expect("no elements").is_empty());
        eval(&[]).expect("nothing at all");
    });
    assert_eq!((counters.submits, counters.dispatches), (0, 0));
}
