//! Memory allocation by class: what fits, what is rejected, and when memory is reused.

use super::*;

#[test]
fn out_of_memory_on_a_discrete_card_names_the_amounts() {
    let device = card();
    let weight = device.allocate(MemoryClass::Weight, 3 * GIB).unwrap();
    let state = device.allocate(MemoryClass::State, 3 * GIB).unwrap();
    let error = device.allocate(MemoryClass::Weight, 3 * GIB).unwrap_err();
    let Error::OutOfMemory {
        requested, free, class, ..
    } = &error
    else {
        panic!("{error}")
    };
    assert_eq!((*requested, *free, *class), (3 * GIB, 2 * GIB, MemoryClass::Weight));
    let text = error.to_string();
    for part in [
        "3.0 GiB",
        "2.0 GiB free",
        "device-local, 8.0 GiB",
        "smaller",
        "another device",
    ] {
        assert!(text.contains(part), "{part:?} is missing in {text:?}");
    }
    // The 32 GiB of host memory hold only reports and the staging ring.
    for event in device.recorded() {
        if let NullEvent::Allocate { class, memory_type, .. } = event {
            let local = device.info().memory_types[memory_type].device_local;
            assert!(
                local || matches!(class, MemoryClass::Report | MemoryClass::Staging),
                "{class} in host memory"
            );
        }
    }
    drop((weight, state));
    assert!(
        device.allocate(MemoryClass::Weight, 3 * GIB).is_ok(),
        "memory was not freed"
    );
}

#[test]
fn respects_the_heap_budget_on_a_card() {
    let mut info = DeviceInfo::mock("card");
    info.heaps[0].budget = Some(GIB);
    let error = Device::null(info).allocate(MemoryClass::State, 2 * GIB).unwrap_err();
    assert!(error.to_string().contains("1.0 GiB free"), "{error}");
}

#[test]
fn respects_the_heap_budget_on_all_device_kinds() {
    for kind in [
        DeviceKind::Integrated,
        DeviceKind::Virtual,
        DeviceKind::Other,
        DeviceKind::Software,
    ] {
        let mut info = DeviceInfo::mock("shared");
        info.kind = kind;
        for heap in &mut info.heaps {
            heap.budget = Some(GIB);
        }
        let device = Device::null(info);
        let error = device.allocate(MemoryClass::State, 2 * GIB).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { .. }), "{kind}: {error}");
        device.allocate(MemoryClass::State, GIB / 2).unwrap();
    }
}

#[test]
fn free_bytes_sums_all_heaps_of_a_class() {
    let card = card();
    let free = (8 * GIB + 256 * MIB, 32 * GIB - 32 * MIB);
    assert_eq!(
        card.free_bytes(MemoryClass::Weight),
        free.0,
        "weights use device memory only"
    );
    assert_eq!(card.free_bytes(MemoryClass::Staging), 32 * GIB - 32 * MIB + 256 * MIB);
    assert_eq!(card.info().device_memory(), 8 * GIB + 256 * MIB);

    // A carve-out of half a GiB, as on Windows: the rest is host memory, limited by the budget.
    let mut info = DeviceInfo::mock("apu");
    info.kind = DeviceKind::Integrated;
    info.heaps[0].size = GIB / 2;
    info.heaps[1].budget = Some(16 * GIB);
    assert_eq!(info.device_memory(), 32 * GIB + 768 * MIB);
    let apu = Device::null(info);
    assert_eq!(apu.free_bytes(MemoryClass::Weight), 16 * GIB + 768 * MIB - 32 * MIB);
    let held = apu.allocate(MemoryClass::Weight, 3 * GIB).unwrap();
    assert_eq!(apu.free_bytes(MemoryClass::Weight), 13 * GIB + 768 * MIB - 32 * MIB);
    drop(held);
}

#[test]
fn allocation_reads_the_timeline_once() {
    let counter_reads = std::sync::Arc::default();
    let options = NullOptions {
        counter_reads: std::sync::Arc::clone(&counter_reads),
        ..NullOptions::default()
    };
    let device = Device::null_with(DeviceInfo::mock("card"), options);
    let buffers: Vec<_> = (0..1000)
        .map(|_| device.allocate(MemoryClass::Scratch, 256).unwrap())
        .collect();
    {
        let uses: Vec<_> = buffers.iter().map(|buffer| (buffer, Access::Read)).collect();
        device.submit(list(&device, "use", &uses)).unwrap();
    }
    drop(buffers);
    let before = counter_reads.load(std::sync::atomic::Ordering::Relaxed);
    let _other = device.allocate(MemoryClass::Scratch, 256).unwrap();
    assert_eq!(counter_reads.load(std::sync::atomic::Ordering::Relaxed) - before, 1);
}

#[test]
fn integrated_gpus_use_host_heaps() {
    let mut info = DeviceInfo::mock("apu");
    info.kind = DeviceKind::Integrated;
    info.heaps[0].size = GIB;
    let device = Device::null(info);
    assert!(device.allocate(MemoryClass::Weight, 3 * GIB).is_ok());
}

#[test]
fn small_buffers_share_blocks_and_large_ones_are_dedicated() {
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
fn kept_scratch_memory_serves_the_next_large_buffers() {
    let options = NullOptions {
        keep_scratch: true,
        ..NullOptions::default()
    };
    let device = Device::null_with(DeviceInfo::mock("card"), options);
    let allocate = |bytes| device.allocate(MemoryClass::Scratch, bytes).unwrap();
    let large = allocate(GIB / 4);
    let address = large.address();
    drop(large);
    // A small buffer takes memory of its own.
    let small = allocate(1000);
    let before = device.counters().allocations;
    let large = allocate(GIB / 4 - 1000);
    assert_eq!((large.address(), device.counters().allocations), (address, before));
    // A sixteenth of the 8 GiB is kept.
    let others = [allocate(GIB / 4), allocate(GIB / 4)];
    let held = device.counters().bytes(MemoryClass::Scratch);
    drop(large);
    drop(others);
    assert_eq!(device.counters().bytes(MemoryClass::Scratch), held - GIB / 4);
    // Other buffers get it.
    let weights = [2 * GIB; 3].map(|bytes| device.allocate(MemoryClass::Weight, bytes).unwrap());
    assert!(device.allocate(MemoryClass::Weight, GIB + GIB / 4 * 3).is_ok());
    drop((small, weights));
}

#[test]
fn rejects_buffers_above_the_driver_limit() {
    let error = card().allocate(MemoryClass::Weight, 5 * GIB).unwrap_err();
    assert!(matches!(error, Error::BufferTooLarge { .. }), "{error}");
    assert!(error.to_string().contains("5.0 GiB"), "{error}");
}

#[test]
fn reuses_memory_only_after_its_last_use() {
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
fn allocation_waits_for_dropped_buffers_in_use() {
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
fn host_writes_are_limited_to_control_memory() {
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
