//! Uploads and reads: what waits for what, and what the staging ring costs.

use super::*;

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
        .submit(list(
            &device,
            "third",
            &[(&late, Access::Write), (&inbox, Access::Read)],
        ))
        .unwrap();

    let events = during(&device, || device.read(&inbox, 0, &mut [0; 4]).unwrap());
    assert_eq!(events, [], "read by kernels, and never written");
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
    // Once is enough for the lists that follow.
    let events = during(&device, || {
        device.submit(list(&device, "decode", &uses)).unwrap();
    });
    assert_eq!(submits(&events), [(Queue::Compute, "decode", &[][..])]);
    // And an upload waits for the kernels that still read what it overwrites.
    let events = during(&device, || upload(&device, &used, 1000));
    assert_eq!(
        submits(&events),
        [(Queue::Transfer, "upload", &[(Queue::Compute, 2)][..])]
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

#[test]
fn a_list_waits_on_the_device_even_if_the_host_knows_the_upload_to_be_done() {
    let device = card();
    let weight = device.allocate(MemoryClass::Weight, 1000).unwrap();
    upload(&device, &weight, 1000);
    // Copies run in order, so this read tells that the upload is done.
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
fn an_upload_to_control_memory_is_made_visible_to_the_host() {
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
fn a_device_without_contents_is_not_given_any() {
    let device = Device::null_without_contents(DeviceInfo::made_up("card"));
    let buffer = device.allocate(MemoryClass::Weight, GIB).unwrap();
    let fill = &mut |_: u64, _: &mut [u8]| panic!("nothing is filled");
    device.upload(&buffer, 0, GIB, fill).unwrap();
    assert!(
        device.upload(&buffer, 1, GIB, fill).is_err(),
        "the range is still checked"
    );
    assert_eq!(device.counters().copies, 0);
}
