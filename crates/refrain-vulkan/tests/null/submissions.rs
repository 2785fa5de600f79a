//! Submissions of command lists: cost, limits, and device loss.

use super::*;

#[test]
fn steady_state_decode_allocates_nothing() {
    let device = card();
    let state = device.allocate(MemoryClass::State, 1000).unwrap();
    let control = device.allocate(MemoryClass::Control, 1000).unwrap();
    let token = || {
        device.write_control(&control, 0, &[1; 4]).unwrap();
        let uses = [(&state, Access::Write), (&control, Access::Write)];
        device.submit(list(&device, "token", &uses)).unwrap();
        device.read(&control, 0, &mut [0; 4]).unwrap();
    };
    token();
    let before = device.counters();
    (0..10).for_each(|_| token());
    let since = device.counters() - before;
    assert_eq!(
        (since.allocations, since.bytes_staged, since.pipelines_compiled),
        (0, 0, 0)
    );
    assert_eq!((since.submits, since.batches, since.dispatches), (10, 10, 10));
    // One barrier orders a list after earlier ones, one makes writes visible to the host.
    assert_eq!((since.barriers, since.waits), (20, 10));
}

#[test]
fn recordings_are_submitted_in_one_call() {
    let device = card();
    let state = device.allocate(MemoryClass::State, 1000).unwrap();
    let recording = device
        .record(list(&device, "step", &[(&state, Access::Write)]))
        .unwrap();
    let before = device.counters();
    let submissions = device.submit_recorded(&[&recording; 8]).unwrap();
    let since = device.counters() - before;
    assert_eq!((since.submits, since.batches, since.dispatches), (1, 8, 8));
    let values: Vec<u64> = submissions.iter().map(|s| s.value).collect();
    assert_eq!(values, (values[0]..values[0] + 8).collect::<Vec<u64>>());
    device.wait(&submissions[2]).unwrap();
    assert!(device.is_done(&submissions[2]).unwrap());
}

/// A list of 600 dispatches that write `state`.
fn long_list(device: &Arc<Device>, state: &Buffer) -> CommandList {
    let mut long = list(device, "prompt", &[(state, Access::Write)]);
    long.commands = long.commands.iter().cycle().take(600).cloned().collect();
    long
}

#[test]
fn a_long_list_is_submitted_in_two_parts() {
    let device = card();
    let state = device.allocate(MemoryClass::State, 1000).unwrap();
    let before = device.counters();
    let submission = device.submit(long_list(&device, &state)).unwrap();
    let since = device.counters() - before;
    assert_eq!((since.submits, since.batches, since.dispatches), (2, 2, 600));
    device.wait_for_all().unwrap();
    assert!(device.is_known_done(&submission));
    // What is recorded once for many runs is one part.
    let recording = device.record(long_list(&device, &state)).unwrap();
    let before = device.counters();
    device.submit_recorded(&[&recording]).unwrap();
    assert_eq!((device.counters() - before).submits, 1);
}

#[test]
fn half_of_a_long_list_is_never_all_that_runs() {
    let device = failing(&[Fault::SubmitFails(2)]);
    let state = device.allocate(MemoryClass::State, 1000).unwrap();
    let error = device.submit(long_list(&device, &state)).unwrap_err();
    assert!(matches!(error, Error::DeviceLost { .. }), "{error}");
    let later = device.submit(list(&device, "step", &[(&state, Access::Write)]));
    assert_eq!(later.unwrap_err().to_string(), error.to_string());
}

#[test]
fn rejects_commands_that_exceed_limits() {
    let device = card();
    let pipeline = device.pipeline(&kernel()).unwrap();
    let buffer = device.allocate(MemoryClass::Scratch, 100).unwrap();
    let dispatch = |groups, push| Command::Dispatch {
        pipeline: pipeline.clone(),
        groups,
        push,
    };
    let copy = |src_offset, bytes| Command::Copy {
        src: buffer.clone(),
        src_offset,
        dst: buffer.clone(),
        dst_offset: 0,
        bytes,
    };
    let counts = Command::DispatchIndirect {
        pipeline: pipeline.clone(),
        counts: buffer.clone(),
        offset: 92,
        push: vec![],
    };
    for bad in [
        dispatch([65536, 1, 1], vec![0; 8]),
        dispatch([1, 1, 1], vec![0; 12]),
        dispatch([1, 1, 1], vec![0; 3]),
        copy(60, 41),
        counts,
    ] {
        let described = format!("{bad:?}");
        let commands = vec![bad];
        let error = device.submit(CommandList {
            commands,
            ..CommandList::new("bad")
        });
        let error = error.expect_err(&described);
        assert!(
            matches!(error, Error::Limit { .. } | Error::OutOfRange { .. }),
            "{error}"
        );
    }
    assert_eq!(device.counters().submits, 0);
    let wide = Kernel {
        push_bytes: 132,
        ..kernel()
    };
    assert!(device.pipeline(&wide).unwrap_err().to_string().contains("132 bytes"));
}

#[test]
fn device_loss_names_lists_and_regions_in_flight() {
    let device = failing(&[Fault::LostAt(2)]);
    let state = device.allocate(MemoryClass::State, 1000).unwrap();
    let uses = [(&state, Access::Write)];
    let first = device.submit(list(&device, "prefill", &uses)).unwrap();
    device.wait(&first).unwrap();
    let mut second = list(&device, "decode 17", &uses);
    second.commands.insert(
        0,
        Command::Timestamp {
            region: "layer 3".to_owned(),
        },
    );
    let second = device.submit(second).unwrap();
    let error = device.wait(&second).unwrap_err();
    assert!(matches!(error, Error::DeviceLost { .. }));
    let text = error.to_string();
    assert!(text.contains("decode 17") && text.contains("layer 3"), "{text}");
    assert!(!text.contains("prefill"), "{text}");
    // From then on, every call fails with the same error and none blocks.
    for error in [
        device.submit(list(&device, "decode 18", &uses)).unwrap_err(),
        device.read(&state, 0, &mut [0; 4]).unwrap_err(),
        device.wait(&first).unwrap_err(),
    ] {
        assert_eq!(error.to_string(), text);
    }
    assert_eq!(device.is_done(&second).unwrap_err().to_string(), text);
    assert!(device.is_lost());
    drop((state, device));
}

#[test]
fn polling_completes_work() {
    let device = card();
    let submission = device.submit(list(&device, "work", &[])).unwrap();
    assert!(device.is_done(&submission).unwrap());
    let events = during(&device, || device.wait(&submission).unwrap());
    assert_eq!(waits(&events), []);
}

#[test]
fn compiles_equal_kernels_once() {
    let device = card();
    let same_name = Kernel {
        source: "#version 460\nvoid main() {}\n".into(),
        ..kernel()
    };
    let other = Kernel {
        constants: vec![(0, 2)],
        ..kernel()
    };
    let other_name = Kernel {
        name: "another".to_owned(),
        ..kernel()
    };
    device
        .prepare(&[kernel(), other.clone(), other_name, same_name], &|_, _| {})
        .unwrap();
    device.pipeline(&other).unwrap();
    let counters = device.counters();
    assert_eq!(counters.pipelines_compiled, 3);
    let made = device
        .recorded()
        .into_iter()
        .filter(|e| matches!(e, NullEvent::Pipeline { .. }));
    assert_eq!(made.count(), 3);
}
