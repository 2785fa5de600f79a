//! The runtime's decisions, seen by a null device: no driver needed.

use std::sync::Arc;

use refrain_vulkan::{
    Access, Buffer, Command, CommandList, Device, DeviceInfo, DeviceKind, Error, Feature, Kernel, MemoryClass,
    Pipeline, Queue, Recorded, RecordedCommand,
};

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

fn card() -> Arc<Device> {
    Device::null(DeviceInfo::made_up("card"))
}

fn card_without_transfer_queue() -> Arc<Device> {
    let mut info = DeviceInfo::made_up("card");
    info.features.remove(Feature::TransferQueue);
    Device::null(info)
}

fn kernel() -> Kernel {
    Kernel {
        name: "nothing".to_owned(),
        source: "#version 460\nlayout(local_size_x = 1) in;\nvoid main() {}\n".into(),
        defines: Vec::new(),
        constants: Vec::new(),
        push_bytes: 8,
        subgroup_size: None,
    }
}

fn dispatch(pipeline: &Pipeline) -> Command {
    Command::Dispatch {
        pipeline: pipeline.clone(),
        groups: [1, 1, 1],
        push: vec![0; 8],
    }
}

fn list(device: &Device, name: &str, uses: &[(&Buffer, Access)]) -> CommandList {
    CommandList {
        name: name.to_owned(),
        commands: vec![dispatch(&device.pipeline(&kernel()).unwrap())],
        uses: uses
            .iter()
            .map(|(buffer, access)| ((*buffer).clone(), *access))
            .collect(),
    }
}

fn upload(device: &Device, buffer: &Buffer, bytes: u64) {
    device.upload(buffer, 0, bytes, &mut |_, part| part.fill(1)).unwrap();
}

/// What happens on the device while `action` runs.
fn during(device: &Device, action: impl FnOnce()) -> Vec<Recorded> {
    let before = device.recorded().len();
    action();
    device.recorded().split_off(before)
}

fn waits(events: &[Recorded]) -> Vec<(Queue, u64)> {
    let wait = |event: &Recorded| match event {
        Recorded::Wait { queue, value } => Some((*queue, *value)),
        _ => None,
    };
    events.iter().filter_map(wait).collect()
}

/// Queue, list name and what it waits for, of each submission.
fn submits(events: &[Recorded]) -> Vec<(Queue, &str, &[(Queue, u64)])> {
    let mut found = Vec::new();
    for event in events {
        if let Recorded::Submit { queue, list, waits, .. } = event {
            found.push((*queue, list.as_str(), &waits[..]));
        }
    }
    found
}

#[test]
fn a_full_discrete_card_refuses_and_names_the_shortfall() {
    let device = card();
    let weight = device.allocate(MemoryClass::Weight, 3 * GIB).unwrap();
    let state = device.allocate(MemoryClass::State, 3 * GIB).unwrap();
    let error = device.allocate(MemoryClass::Weight, 3 * GIB).unwrap_err();
    let Error::OutOfMemory { asked, free, class, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!((*asked, *free, *class), (3 * GIB, 2 * GIB, MemoryClass::Weight));
    let text = error.to_string();
    for part in [
        "3.0 GiB",
        "2.0 GiB free",
        "device-local, 8.0 GiB",
        "smaller",
        "--device",
    ] {
        assert!(text.contains(part), "{part:?} is missing in {text:?}");
    }
    // 32 GiB of host memory stand empty, but for the staging ring.
    for event in device.recorded() {
        if let Recorded::Allocate { class, memory_type, .. } = event {
            let local = device.info().memory_types[memory_type].device_local;
            assert!(local || class == MemoryClass::Staging, "{class} in host memory");
        }
    }
    drop((weight, state));
    assert!(
        device.allocate(MemoryClass::Weight, 3 * GIB).is_ok(),
        "memory came back"
    );
}

#[test]
fn a_budget_smaller_than_the_heap_counts_on_a_card() {
    let mut info = DeviceInfo::made_up("card");
    info.heaps[0].budget = Some(GIB);
    let error = Device::null(info).allocate(MemoryClass::State, 2 * GIB).unwrap_err();
    assert!(error.to_string().contains("1.0 GiB free"), "{error}");
}

#[test]
fn an_integrated_gpu_may_use_its_host_heap() {
    let mut info = DeviceInfo::made_up("apu");
    info.kind = DeviceKind::Integrated;
    info.heaps[0].size = GIB;
    let device = Device::null(info);
    assert!(device.allocate(MemoryClass::Weight, 3 * GIB).is_ok());
}

#[test]
fn small_buffers_share_blocks_and_a_large_one_gets_its_own() {
    let device = card();
    let before = device.counters();
    let small: Vec<_> = (0..300u64)
        .map(|i| device.allocate(MemoryClass::Weight, 100_000 + i).unwrap())
        .collect();
    assert!((device.counters() - before).allocations <= 3);
    let mut ranges: Vec<_> = small.iter().map(|b| (b.address(), b.bytes())).collect();
    ranges.sort_unstable();
    assert!(
        ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0),
        "they overlap"
    );
    assert!(ranges.iter().all(|(address, _)| address % 256 == 0));

    let with_small = device.counters();
    let large = device.allocate(MemoryClass::Weight, GIB).unwrap();
    let with_large = device.counters();
    assert_eq!(
        with_large.bytes(MemoryClass::Weight),
        with_small.bytes(MemoryClass::Weight) + GIB
    );
    drop(large);
    assert_eq!(
        device.counters().bytes(MemoryClass::Weight),
        with_small.bytes(MemoryClass::Weight)
    );
    assert_eq!(device.counters().peak_allocated, with_large.peak_allocated);
}

#[test]
fn a_buffer_beyond_the_drivers_limit_is_refused() {
    let error = card().allocate(MemoryClass::Weight, 5 * GIB).unwrap_err();
    assert!(matches!(error, Error::BufferTooLarge { .. }), "{error}");
    assert!(error.to_string().contains("5.0 GiB"), "{error}");
}

#[test]
fn a_dropped_buffer_is_reused_only_after_its_last_use() {
    let device = card();
    let keeper = device.allocate(MemoryClass::Scratch, 256).unwrap();
    let used = device.allocate(MemoryClass::Scratch, 1000).unwrap();
    let address = used.address();
    let submission = device.submit(list(&device, "use", &[(&used, Access::Read)])).unwrap();
    drop(used);
    let other = device.allocate(MemoryClass::Scratch, 1000).unwrap();
    assert_ne!(other.address(), address, "still in use");
    device.wait(&submission).unwrap();
    let again = device.allocate(MemoryClass::Scratch, 1000).unwrap();
    assert_eq!(again.address(), address);
    drop(keeper);
}

#[test]
fn short_memory_waits_for_buffers_that_are_dropped_but_in_use() {
    let device = card();
    let used = device.allocate(MemoryClass::State, 3 * GIB).unwrap();
    let more = device.allocate(MemoryClass::State, 3 * GIB).unwrap();
    device.submit(list(&device, "use", &[(&used, Access::Write)])).unwrap();
    drop(used);
    let events = during(&device, || drop(device.allocate(MemoryClass::State, 3 * GIB).unwrap()));
    assert_eq!(waits(&events), [(Queue::Compute, 1)]);
    drop(more);
}

#[test]
fn reading_a_weight_waits_for_no_kernel() {
    let device = card();
    let weight = device.allocate(MemoryClass::Weight, 1000).unwrap();
    let state = device.allocate(MemoryClass::State, 1000).unwrap();
    upload(&device, &weight, 1000);
    let uses = [(&weight, Access::Read), (&state, Access::Write)];
    device.submit(list(&device, "decode", &uses)).unwrap();
    let events = during(&device, || device.read(&weight, 0, &mut [0; 100]).unwrap());
    assert_eq!(submits(&events), [(Queue::Transfer, "read back", &[][..])]);
    assert!(
        waits(&events).iter().all(|(queue, _)| *queue == Queue::Transfer),
        "{events:?}"
    );
}

#[test]
fn a_read_waits_for_the_value_of_its_own_buffer_alone() {
    let device = card();
    let [early, late] = [0; 2].map(|_| device.allocate(MemoryClass::State, 1000).unwrap());
    let [inbox, ring] = [0; 2].map(|_| device.allocate(MemoryClass::Control, 1000).unwrap());
    device
        .submit(list(&device, "first", &[(&early, Access::Write)]))
        .unwrap();
    device
        .submit(list(&device, "second", &[(&ring, Access::Write)]))
        .unwrap();
    device
        .submit(list(&device, "third", &[(&late, Access::Write)]))
        .unwrap();

    let events = during(&device, || device.read(&inbox, 0, &mut [0; 4]).unwrap());
    assert_eq!(events, [], "never written by the device");
    let events = during(&device, || device.read(&early, 0, &mut [0; 4]).unwrap());
    assert_eq!(
        submits(&events),
        [(Queue::Transfer, "read back", &[(Queue::Compute, 1)][..])]
    );
    let events = during(&device, || device.read(&ring, 0, &mut [0; 4]).unwrap());
    assert_eq!(
        events,
        [Recorded::Wait {
            queue: Queue::Compute,
            value: 2
        }]
    );
    let events = during(&device, || device.read(&ring, 0, &mut [0; 4]).unwrap());
    assert_eq!(events, [], "known to be done");
}

#[test]
fn a_list_waits_for_the_uploads_that_it_uses() {
    let device = card();
    let [used, other] = [0; 2].map(|_| device.allocate(MemoryClass::Weight, 1000).unwrap());
    upload(&device, &used, 1000);
    upload(&device, &other, 1000);
    let uses = [(&used, Access::Read)];
    let events = during(&device, || {
        device.submit(list(&device, "decode", &uses)).unwrap();
    });
    assert_eq!(
        submits(&events),
        [(Queue::Compute, "decode", &[(Queue::Transfer, 1)][..])]
    );
    // And an upload waits for the kernels that still read what it overwrites.
    let events = during(&device, || upload(&device, &used, 1000));
    assert_eq!(
        submits(&events),
        [(Queue::Transfer, "upload", &[(Queue::Compute, 1)][..])]
    );
}

#[test]
fn without_a_transfer_queue_copies_go_through_the_compute_queue() {
    let device = card_without_transfer_queue();
    let weight = device.allocate(MemoryClass::Weight, 1000).unwrap();
    let events = during(&device, || {
        upload(&device, &weight, 1000);
        device
            .submit(list(&device, "decode", &[(&weight, Access::Read)]))
            .unwrap();
        device.read(&weight, 0, &mut [0; 10]).unwrap();
    });
    let names = submits(&events);
    assert_eq!(
        names.iter().map(|(_, name, _)| *name).collect::<Vec<_>>(),
        ["upload", "decode", "read back"]
    );
    assert!(
        names
            .iter()
            .all(|(queue, _, waits)| *queue == Queue::Compute && waits.is_empty())
    );
}

#[test]
fn the_staging_ring_is_all_that_uploads_ever_need() {
    let device = card();
    let weight = device.allocate(MemoryClass::Weight, GIB).unwrap();
    let before = device.counters();
    let mut offsets = Vec::new();
    let events = during(&device, || {
        device
            .upload(&weight, 256, 100 * MIB, &mut |offset, part| {
                offsets.push((offset, part.len() as u64));
            })
            .unwrap();
    });
    let since = device.counters() - before;
    assert_eq!((since.allocations, since.bytes_staged), (0, 100 * MIB));
    assert_eq!((since.transfer_submits, since.submits, since.copies), (13, 13, 13));
    let mut end = 0;
    for (offset, bytes) in offsets {
        assert_eq!(offset, end, "slices come in order");
        end += bytes;
    }
    assert_eq!(end, 100 * MIB);
    // Four slots are filled before any wait; then each waits for the copy four back.
    let expected: Vec<_> = (1..=9).map(|value| (Queue::Transfer, value)).collect();
    assert_eq!(waits(&events), expected);
    let targets: Vec<u64> = copies(&events).iter().map(|(_, dst, _)| *dst).collect();
    assert_eq!(targets[0], weight.address() + 256);
    assert_eq!(targets[12], weight.address() + 256 + 96 * MIB);
}

fn copies(events: &[Recorded]) -> Vec<(u64, u64, u64)> {
    let commands = |event: &Recorded| match event {
        Recorded::Submit { commands, .. } => commands.clone(),
        _ => Vec::new(),
    };
    let copy = |command| match command {
        RecordedCommand::Copy { src, dst, bytes } => Some((src, dst, bytes)),
        _ => None,
    };
    events.iter().flat_map(commands).filter_map(copy).collect()
}

#[test]
fn a_token_allocates_nothing() {
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
    // One barrier orders a list after its predecessors, one lets the host read.
    assert_eq!((since.barriers, since.waits), (20, 10));
}

#[test]
fn the_host_writes_control_memory_only() {
    let device = card();
    let control = device.allocate(MemoryClass::Control, 8).unwrap();
    device.write_control(&control, 4, &[1, 2, 3, 4]).unwrap();
    let mut back = [0; 8];
    device.read(&control, 0, &mut back).unwrap();
    assert_eq!(back[4..], [1, 2, 3, 4]);
    let error = device.write_control(&control, 5, &[0; 4]).unwrap_err();
    assert!(
        matches!(
            error,
            Error::OutOfRange {
                offset: 5,
                bytes: 4,
                size: 8
            }
        ),
        "{error}"
    );
    let weight = device.allocate(MemoryClass::Weight, 8).unwrap();
    let error = device.write_control(&weight, 0, &[0]).unwrap_err();
    assert!(error.to_string().contains("upload"), "{error}");
    let error = device.upload(&weight, u64::MAX, 2, &mut |_, _| {}).unwrap_err();
    assert!(matches!(error, Error::OutOfRange { .. }), "{error}");
}

#[test]
fn commands_beyond_a_limit_are_refused_before_anything_runs() {
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
fn a_lost_device_names_the_list_and_the_regions_in_flight() {
    let device = Device::null_lost_at(DeviceInfo::made_up("card"), 2);
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
    // From then on, everything fails alike and nothing hangs.
    for error in [
        device.submit(list(&device, "decode 18", &uses)).unwrap_err(),
        device.read(&state, 0, &mut [0; 4]).unwrap_err(),
        device.wait(&first).unwrap_err(),
    ] {
        assert_eq!(error.to_string(), text);
    }
    assert!(!device.is_done(&second));
    drop((state, device));
}

#[test]
fn work_completes_when_it_is_polled() {
    let device = card();
    let submission = device.submit(list(&device, "work", &[])).unwrap();
    assert!(device.is_done(&submission));
    let events = during(&device, || device.wait(&submission).unwrap());
    assert_eq!(waits(&events), []);
}

#[test]
fn equal_kernels_are_compiled_once() {
    let device = card();
    let other = Kernel {
        constants: vec![(0, 2)],
        ..kernel()
    };
    device
        .prepare(&[kernel(), other.clone(), kernel()], &|_, _| {})
        .unwrap();
    device.pipeline(&other).unwrap();
    let counters = device.counters();
    assert_eq!(counters.pipelines_compiled, 2);
    let made = device
        .recorded()
        .into_iter()
        .filter(|e| matches!(e, Recorded::Pipeline { .. }));
    assert_eq!(made.count(), 2);
}
