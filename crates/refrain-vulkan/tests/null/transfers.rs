//! Uploads and reads: dependencies, and use of the staging ring.

use super::*;

#[test]
fn reading_a_weight_does_not_wait_for_kernels() {
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
fn reads_wait_only_for_writers_of_the_buffer() {
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
        .submit(list(
            &device,
            "third",
            &[(&late, Access::Write), (&inbox, Access::Read)],
        ))
        .unwrap();

    let events = during(&device, || device.read(&inbox, 0, &mut [0; 4]).unwrap());
    assert_eq!(events, [], "kernels only read this buffer");
    let events = during(&device, || device.read(&early, 0, &mut [0; 4]).unwrap());
    assert_eq!(
        submits(&events),
        [(Queue::Transfer, "read back", &[(Queue::Compute, 1)][..])]
    );
    let events = during(&device, || device.read(&ring, 0, &mut [0; 4]).unwrap());
    assert_eq!(
        events,
        [NullEvent::Wait {
            queue: Queue::Compute,
            value: 2
        }]
    );
    let events = during(&device, || device.read(&ring, 0, &mut [0; 4]).unwrap());
    assert_eq!(events, [], "already known to be done");
}

#[test]
fn lists_wait_for_uploads_to_their_buffers() {
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
    // Later lists need no further wait.
    let events = during(&device, || {
        device.submit(list(&device, "decode", &uses)).unwrap();
    });
    assert_eq!(submits(&events), [(Queue::Compute, "decode", &[][..])]);
    // An upload waits for kernels that still read the bytes it overwrites.
    let events = during(&device, || upload(&device, &used, 1000));
    assert_eq!(
        submits(&events),
        [(Queue::Transfer, "upload", &[(Queue::Compute, 2)][..])]
    );
}

#[test]
fn copies_use_the_compute_queue_without_a_transfer_queue() {
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
fn uploads_allocate_nothing_beyond_the_staging_ring() {
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
    // Four slots are filled without a wait; each later copy waits for the one four before it.
    let expected: Vec<_> = (1..=9).map(|value| (Queue::Transfer, value)).collect();
    assert_eq!(waits(&events), expected);
    let targets: Vec<u64> = copies(&events).iter().map(|(_, dst, _)| *dst).collect();
    assert_eq!(targets[0], weight.address() + 256);
    assert_eq!(targets[12], weight.address() + 256 + 96 * MIB);
}

#[test]
fn lists_wait_on_the_device_for_uploads_known_to_the_host() {
    let device = card();
    let weight = device.allocate(MemoryClass::Weight, 1000).unwrap();
    upload(&device, &weight, 1000);
    // Copies run in order, so after this read the upload is known to be done.
    device.read(&weight, 0, &mut [0; 4]).unwrap();
    let events = during(&device, || {
        device
            .submit(list(&device, "decode", &[(&weight, Access::Read)]))
            .unwrap();
    });
    assert_eq!(
        submits(&events),
        [(Queue::Compute, "decode", &[(Queue::Transfer, 1)][..])]
    );
}

#[test]
fn uploads_to_control_memory_are_host_visible() {
    let device = card();
    let control = device.allocate(MemoryClass::Control, 1000).unwrap();
    let events = during(&device, || upload(&device, &control, 1000));
    assert!(
        matches!(events[..], [NullEvent::Submit { host_reads: true, .. }]),
        "{events:?}"
    );
    let events = during(&device, || device.read(&control, 0, &mut [0; 4]).unwrap());
    assert_eq!(
        events,
        [NullEvent::Wait {
            queue: Queue::Transfer,
            value: 1
        }]
    );
}

#[test]
fn a_device_without_contents_ignores_uploads() {
    let device = Device::null_without_contents(DeviceInfo::mock("card"));
    let buffer = device.allocate(MemoryClass::Weight, GIB).unwrap();
    let fill = &mut |_: u64, _: &mut [u8]| panic!("must not be called");
    device.upload(&buffer, 0, GIB, fill).unwrap();
    assert!(
        device.upload(&buffer, 1, GIB, fill).is_err(),
        "the range is still checked"
    );
    assert_eq!(device.counters().copies, 0);
}
