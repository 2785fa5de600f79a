//! What the library submits to a device, seen by the null device, which records everything and computes nothing.

mod common;

use std::sync::Arc;

use common::decoder::{Decoder, Extents};
use refrain::{Array, Counters, DType, Device, Flushes, Function, MemoryClass, eval};
use refrain_kernels::CallOrder;
use refrain_lm::{AttentionParams, BatchTokens, expert_matmul, paged_attention};
use refrain_vulkan::{DeviceInfo, DeviceKind, NullEvent, Queue, RecordedCommand};

fn null() -> (Device, Arc<refrain_vulkan::Device>) {
    let recorder = refrain_vulkan::Device::null(DeviceInfo::mock("card"));
    (Device::vulkan(recorder.clone()), recorder)
}

fn ones(device: &Device, shape: &[usize]) -> Array {
    let fill = &mut |_: u64, piece: &mut [u8]| piece.fill(1);
    Array::weight(device, DType::F32, shape, fill).expect("memory for a weight")
}

/// The counters and events caused by `act`.
fn caused(recorder: &refrain_vulkan::Device, act: impl FnOnce()) -> (Counters, Vec<NullEvent>) {
    let (before, events) = (recorder.counters(), recorder.recorded().len());
    act();
    (recorder.counters() - before, recorder.recorded().split_off(events))
}

const SMALL: Extents = Extents {
    layers: 2,
    hidden: 64,
    heads: 4,
    kv_heads: 2,
    head_dim: 32,
    inner: 128,
    vocabulary: 96,
};

fn arguments() -> Vec<(&'static str, Vec<u8>)> {
    let word = |value: u32| value.to_le_bytes().to_vec();
    let pages = (0..4u32).flat_map(u32::to_le_bytes).collect();
    vec![
        ("tokens", word(5)),
        ("positions", word(0)),
        ("sequences", word(0)),
        ("slots", word(0)),
        ("pages", pages),
    ]
}

fn call(step: &Function) {
    let arguments = arguments();
    let arguments: Vec<(&str, &[u8])> = arguments.iter().map(|(name, bytes)| (*name, &bytes[..])).collect();
    step.call_bytes(&arguments).expect("the call is submitted");
}

#[test]
fn an_evaluation_of_several_arrays_is_one_submit() {
    let (device, recorder) = null();
    let x = ones(&device, &[8, 8]);
    let outputs = [x.softmax(), x.matmul(&x) + 1.0, x.sum(&[0])];
    let (counters, events) = caused(&recorder, || eval(&outputs.iter().collect::<Vec<_>>()).unwrap());
    let dispatches = counters.dispatches;
    assert_eq!(
        (
            counters.submits,
            counters.transfer_submits,
            counters.copies,
            counters.waits
        ),
        (1, 0, 0, 0)
    );
    assert_eq!(dispatches, 4, "softmax, matmul, add, sum");
    let submits: Vec<&NullEvent> = events
        .iter()
        .filter(|e| matches!(e, NullEvent::Submit { .. }))
        .collect();
    assert_eq!(submits.len(), 1);
    let (counters, _) = caused(&recorder, || eval(&outputs.iter().collect::<Vec<_>>()).unwrap());
    assert_eq!(counters.submits, 0, "evaluated arrays are not computed again");
}

#[test]
fn submits_are_counted_by_reason() {
    let (device, _) = null();
    let x = ones(&device, &[4]);
    (&x + 1.0).eval().unwrap();
    (&x + 2.0).to_bytes().unwrap();
    let sums: Vec<Array> = (0..4097).map(|_| x.sum(&[0])).collect();
    eval(&sums.iter().collect::<Vec<_>>()).unwrap();
    assert_eq!(
        device.flushes(),
        Flushes {
            requested: 2,
            read_back: 1,
            size_cap: 1
        }
    );
}

/// A device without memory.
fn hollow(kind: DeviceKind) -> Device {
    let info = DeviceInfo {
        kind,
        ..DeviceInfo::mock("card")
    };
    Device::vulkan(refrain_vulkan::Device::null_without_contents(info))
}

/// Number of submits of a call.
fn submits_of(function: &Function, arguments: &[(&str, &[u8])]) -> u64 {
    let recorder = function.device().as_vulkan().expect("a null device");
    let before = recorder.counters();
    function.call_bytes(arguments).unwrap();
    (recorder.counters() - before).submits
}

#[test]
fn long_prompts_are_split_into_submits_of_bounded_work() {
    let submits = |kind, tokens: usize| {
        let device = hollow(kind);
        let mut x = Array::input(&device, "x", DType::F32, &[tokens, 4096]);
        for _ in 0..8 {
            x = x.matmul(&ones(&device, &[4096, 4096]));
        }
        let function = Function::trace(&[&x]).unwrap();
        assert_eq!(function.plan().dispatches(), 8);
        submits_of(&function, &[("x", &vec![0; 4 * tokens * 4096])])
    };
    // Two products of 512 rows with 2²⁴ weights are the maximum work of one submit on a slow device.
    let slow = [1, 256, 512, 2048].map(|tokens| submits(DeviceKind::Integrated, tokens));
    assert_eq!(slow, [1, 2, 4, 8]);
    assert_eq!(submits(DeviceKind::Discrete, 2048), 1);
}

#[test]
fn attention_over_a_long_context_gets_its_own_submit() {
    let submits = |pages: usize| {
        let device = hollow(DeviceKind::Integrated);
        let state = || Array::state(&device, DType::F16, &[pages * 256, 8, 128]).unwrap();
        let (keys, values) = (state(), state());
        let input = |name: &str, dtype, shape: &[usize]| Array::input(&device, name, dtype, shape);
        let tokens = BatchTokens {
            positions: &input("positions", DType::I32, &[128]),
            sequences: &input("sequences", DType::U32, &[128]),
            pages: &input("pages", DType::U32, &[1, pages]),
        };
        let params = AttentionParams {
            scale: 0.1,
            page_size: 256,
            window: None,
            decode: false,
            blocks: [None; 2],
        };
        let mut x = input("x", DType::F32, &[128, 32, 128]);
        for _ in 0..4 {
            x = paged_attention(&x, &keys, &values, tokens, params);
        }
        let function = Function::trace(&[&x]).unwrap();
        let words = |n: usize| vec![0; 4 * n];
        submits_of(
            &function,
            &[
                ("x", &words(128 * 32 * 128)),
                ("positions", &words(128)),
                ("sequences", &words(128)),
                ("pages", &words(pages)),
            ],
        )
    };
    assert_eq!((submits(4), submits(64)), (1, 4));
}

fn slow() -> (Device, Arc<refrain_vulkan::Device>) {
    let info = DeviceInfo {
        kind: DeviceKind::Integrated,
        ..DeviceInfo::mock("apu")
    };
    let recorder = refrain_vulkan::Device::null_without_contents(info);
    (Device::vulkan(recorder.clone()), recorder)
}

/// Eight products of a prompt of 2048 tokens, each its own submit on a slow device. Returns the function, a state
/// written before them and one written after them, and the call's arguments.
fn long_prompt(device: &Device) -> (Function, [Array; 2], Vec<u8>) {
    let input = Array::input(device, "x", DType::F32, &[2048, 4096]);
    let states = [0, 1].map(|_| Array::state(device, DType::F32, &[2048, 4096]).unwrap());
    let rows = Array::arange(device, DType::I32, 2048);
    let first = states[0].write_rows(&input, &rows);
    let mut x = input;
    for _ in 0..8 {
        x = x.matmul(&ones(device, &[4096, 4096]));
    }
    let last = states[1].write_rows(&x, &rows);
    let function = Function::trace(&[&first, &last]).unwrap();
    (function, states, vec![0; 4 * 2048 * 4096])
}

#[test]
fn a_long_prompt_limits_its_submits_in_flight() {
    let (device, recorder) = slow();
    let (function, _, bytes) = long_prompt(&device);
    let (counters, events) = caused(&recorder, || function.call_bytes(&[("x", &bytes)]).unwrap());
    assert!(counters.submits >= 8, "{counters:?}");
    let submits = (0..)
        .zip(&events)
        .filter(|(_, event)| matches!(event, NullEvent::Submit { .. }));
    let third = submits.map(|(index, _)| index).nth(2).expect("eight of them");
    let waits = |event: &NullEvent| matches!(event, NullEvent::Wait { .. });
    let first_wait = events.iter().position(waits).expect("it waits for its own lists");
    assert!(
        first_wait < third,
        "two lists are enough to keep the device busy: {events:?}"
    );
}

#[test]
fn a_read_waits_only_for_submits_that_use_its_buffer() {
    let (device, recorder) = slow();
    let (function, states, bytes) = long_prompt(&device);
    function.call_bytes(&[("x", &bytes)]).unwrap();
    let awaited = states.each_ref().map(|state| {
        let (_, events) = caused(&recorder, || state.read_state(0, &mut [0; 4]).unwrap());
        awaited(&events)
    });
    assert!(awaited[0] < awaited[1], "{awaited:?}");
}

/// Timeline values of the compute queue that events wait for, on the host or before a copy.
fn awaited(events: &[NullEvent]) -> Vec<u64> {
    let waits = events.iter().flat_map(|event| match event {
        NullEvent::Wait { queue, value } => vec![(*queue, *value)],
        NullEvent::Submit { waits, .. } => waits.clone(),
        _ => vec![],
    });
    waits
        .filter(|(queue, _)| *queue == Queue::Compute)
        .map(|(_, value)| value)
        .collect()
}

#[test]
fn reading_a_weight_does_not_wait_for_running_work() {
    let (device, recorder) = null();
    let x = ones(&device, &[64, 64]);
    let y = x.matmul(&x);
    y.eval().unwrap();
    let (_, events) = caused(&recorder, || drop(x.to_bytes().unwrap()));
    assert_eq!(awaited(&events), Vec::<u64>::new(), "{events:?}");
}

#[test]
fn reading_a_result_waits_only_for_its_own_submit() {
    let (device, recorder) = null();
    let x = ones(&device, &[64, 64]);
    let (first, second) = (x.matmul(&x), x.softmax());
    let (_, events) = caused(&recorder, || first.eval().unwrap());
    let submitted = events.iter().find_map(|event| match event {
        NullEvent::Submit {
            queue: Queue::Compute,
            value,
            ..
        } => Some(*value),
        _ => None,
    });
    second.eval().unwrap();
    let (_, events) = caused(&recorder, || drop(first.to_bytes().unwrap()));
    assert_eq!(
        awaited(&events),
        [submitted.expect("a submit")],
        "not for the submit after it: {events:?}"
    );
}

#[test]
fn a_decode_step_has_the_expected_dispatches_and_barriers() {
    let (device, recorder) = null();
    let step = Function::trace(&[&Decoder::new(&device, SMALL).step(1)]).unwrap();
    let (counters, events) = caused(&recorder, || call(&step));
    // Layer: norm | q, k, v | q norm, k norm, write v | rope q, rope k | write k | attention | o | add
    // | norm | gate, up | silu · | down | add, with a barrier at each bar. The embedding comes before the layers,
    // norm | head after them.
    let plan = step.plan();
    assert_eq!(plan.dispatches() as u64, counters.dispatches);
    assert_eq!(counters.dispatches, 2 * 5 + 2, "{plan}");
    assert_eq!(plan.barriers(), 2 * 5 + 1, "{plan}");
    let commands = events.iter().find_map(|event| match event {
        NullEvent::Submit { commands, .. } => Some(commands),
        _ => None,
    });
    let barriers = commands
        .expect("a submit")
        .iter()
        .filter(|c| **c == RecordedCommand::Barrier)
        .count();
    assert_eq!(barriers, plan.barriers(), "the recorded commands match the plan");
}

/// Attention over a long context takes several dispatches, each of which reads what the one before it wrote.
#[test]
fn dependent_dispatches_of_one_step_have_barriers_between_them() {
    let (device, recorder) = null();
    let [keys, values] = [0, 1].map(|_| Array::state(&device, DType::F16, &[64 * 256, 2, 64]).unwrap());
    let input = |name, dtype, shape: &[usize]| Array::input(&device, name, dtype, shape);
    let (positions, sequences) = (
        input("positions", DType::I32, &[1]),
        input("sequences", DType::U32, &[1]),
    );
    let pages = input("pages", DType::U32, &[1, 64]);
    let tokens = BatchTokens {
        positions: &positions,
        sequences: &sequences,
        pages: &pages,
    };
    let params = AttentionParams {
        scale: 0.125,
        page_size: 256,
        window: None,
        decode: false,
        blocks: [None; 2],
    };
    let attn_out = paged_attention(&ones(&device, &[1, 4, 64]), &keys, &values, tokens, params);
    let step = Function::trace(&[&attn_out]).unwrap();
    let [only] = &step.plan().steps[..] else {
        panic!("{}", step.plan())
    };
    assert!(
        only.order == CallOrder::Sequential && only.workspace.is_some(),
        "{}",
        step.plan()
    );
    let words = |n: usize| vec![0; 4 * n];
    let (_, events) = caused(&recorder, || {
        step.call_bytes(&[
            ("positions", &words(1)),
            ("sequences", &words(1)),
            ("pages", &words(64)),
        ])
        .unwrap();
    });
    let kinds = events.iter().find_map(|event| match event {
        NullEvent::Submit { commands, .. } => Some(
            commands
                .iter()
                .map(|c| *c == RecordedCommand::Barrier)
                .collect::<Vec<_>>(),
        ),
        _ => None,
    });
    let expected: Vec<bool> = (0..2 * only.calls.len() - 1).map(|n| n % 2 == 1).collect();
    assert_eq!(kinds.expect("a submit"), expected);
    assert_eq!(step.plan().barriers(), only.calls.len() - 1);
}

#[test]
fn a_call_allocates_and_uploads_nothing() {
    let (device, recorder) = null();
    let step = Function::trace(&[&Decoder::new(&device, SMALL).step(1)]).unwrap();
    call(&step);
    for _ in 0..3 {
        let (counters, events) = caused(&recorder, || call(&step));
        assert_eq!(
            (
                counters.submits,
                counters.transfer_submits,
                counters.copies,
                counters.bytes_staged
            ),
            (1, 0, 0, 0)
        );
        assert_eq!(
            (
                counters.allocations,
                counters.pipelines_compiled,
                counters.glsl_compiled
            ),
            (0, 0, 0)
        );
        let moved = |e: &&NullEvent| {
            matches!(
                e,
                NullEvent::Allocate { .. } | NullEvent::Free { .. } | NullEvent::Pipeline { .. }
            )
        };
        assert_eq!(events.iter().find(moved), None);
    }
}

#[test]
fn tracing_uploads_nothing_and_memory_has_the_requested_class() {
    let (device, recorder) = null();
    let decoder = Decoder::new(&device, SMALL);
    let before = recorder.counters();
    let step = Function::trace(&[&decoder.step(1)]).unwrap();
    let counters = recorder.counters() - before;
    assert_eq!((counters.submits, counters.bytes_staged), (0, 0));
    call(&step);
    for class in [
        MemoryClass::Weight,
        MemoryClass::State,
        MemoryClass::Scratch,
        MemoryClass::Control,
    ] {
        assert!(recorder.counters().bytes(class) > 0, "{class}");
    }
    assert!(step.weight_bytes() > 0 && step.working_bytes() > 0);
}

#[test]
fn weight_bytes_count_only_what_a_step_reads() {
    let device = Device::cpu();
    let weight = |rows: usize| {
        let fill = &mut |_: u64, piece: &mut [u8]| piece.fill(0);
        Array::weight(&device, DType::F32, &[rows, 4], fill).unwrap()
    };
    let input = |name: &str, dtype, shape: &[usize]| Array::input(&device, name, dtype, shape);
    let looked_up = weight(100).take(&input("tokens", DType::U32, &[3]), 0);
    // Two tokens, each with two of ten experts.
    let experts = input("experts", DType::U32, &[2, 2]);
    let routed = expert_matmul(&input("x", DType::F32, &[2, 1, 4]), &experts, weight(60), 6);
    let product = input("y", DType::F32, &[5, 4]).matmul(&weight(7).transpose());
    let step = Function::trace(&[&looked_up, &routed, &product]).unwrap();
    assert_eq!(step.weight_bytes(), (3 + 2 * 2 * 6 + 7) * 16);
}

#[test]
fn dropping_an_array_frees_its_memory() {
    let (device, recorder) = null();
    let held = || {
        let x = ones(&device, &[64]);
        (&x + 1.0).eval().unwrap();
    };
    held();
    let (counters, _) = caused(&recorder, || (0..50).for_each(|_| held()));
    assert!(
        counters.allocations <= 4,
        "{} allocations for what was freed",
        counters.allocations
    );
}
