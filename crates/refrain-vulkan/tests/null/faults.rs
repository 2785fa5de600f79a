//! Device faults: every one results in an error in finite time, and a new device can be opened afterwards.

use std::time::Instant;

use super::*;

/// Returns a device with `fault`, and the second of two submitted lists.
fn device_with_fault(fault: Fault) -> (Arc<Device>, Buffer, refrain_vulkan::Submission) {
    let device = failing(&[fault]);
    let buffer = device.allocate(MemoryClass::Report, 1000).unwrap();
    let uses = [(&buffer, Access::Write)];
    device.submit(list(&device, "first", &uses)).unwrap();
    let second = device.submit(list(&device, "second", &uses)).unwrap();
    (device, buffer, second)
}

fn assert_lost(device: &Device, error: &Error) {
    let Error::DeviceLost { during } = error else {
        panic!("{error}")
    };
    assert!(during.contains("second"), "{during}");
    assert!(device.is_lost());
    let later = device.submit(list(device, "later", &[])).unwrap_err();
    assert_eq!(
        later.to_string(),
        error.to_string(),
        "all later calls fail with the same error"
    );
    assert!(device.allocate(MemoryClass::Weight, 8).is_err());
}

#[test]
fn an_impossible_timeline_value_means_device_loss() {
    let check = |action: &dyn Fn(&Device, &Buffer, &refrain_vulkan::Submission) -> Result<(), Error>| {
        let (device, buffer, second) = device_with_fault(Fault::CounterJumpsAt(2));
        assert_lost(&device, &action(&device, &buffer, &second).unwrap_err());
    };
    check(&|device, _, second| device.wait(second));
    check(&|device, _, second| device.is_done(second).map(drop));
    check(&|device, buffer, _| device.read(buffer, 0, &mut [0; 4]));
}

#[test]
fn reads_fail_after_a_silent_loss() {
    let (device, buffer, second) = device_with_fault(Fault::SilentFrom(2));
    device.wait(&second).unwrap();
    assert!(!device.is_lost(), "nothing reports the loss yet");
    let error = device.read(&buffer, 0, &mut [0; 4]).unwrap_err();
    assert!(matches!(error, Error::DeviceLost { .. }), "{error}");
    assert!(device.is_lost() && device.check_status().is_err());

    // The same through the staging ring.
    let device = failing(&[Fault::SilentFrom(1)]);
    let state = device.allocate(MemoryClass::State, 1000).unwrap();
    device
        .submit(list(&device, "work", &[(&state, Access::Write)]))
        .unwrap();
    assert!(device.read(&state, 0, &mut [0; 4]).is_err());
}

#[test]
fn mark_lost_fails_all_later_calls() {
    let (device, ..) = device_with_fault(Fault::SubmitFails(99));
    let error = device.mark_lost();
    assert_lost(&device, &error);
}

#[test]
fn a_hanging_list_times_out_and_closing_does_not_block() {
    let (device, buffer, second) = device_with_fault(Fault::HangsAt(2));
    let start = Instant::now();
    let error = device.wait(&second).unwrap_err();
    let Error::Stalled { during, stall_timeout } = &error else {
        panic!("{error}")
    };
    assert!(during.contains("second") && !during.contains("first"), "{during}");
    assert_eq!(*stall_timeout, STALL_TIMEOUT);
    assert!(
        (STALL_TIMEOUT..10 * STALL_TIMEOUT).contains(&start.elapsed()),
        "{:?}",
        start.elapsed()
    );
    assert!(!device.is_lost() && !device.is_done(&second).unwrap());
    let error = device.write_control(&buffer, 0, &[0; 4]).unwrap_err();
    assert!(matches!(error, Error::InUse { .. }), "{error}");

    let start = Instant::now();
    drop(device);
    drop(buffer);
    assert!(start.elapsed() < STALL_TIMEOUT / 2, "{:?}", start.elapsed());
}

#[test]
fn closing_a_hanging_device_terminates() {
    let (device, buffer, _) = device_with_fault(Fault::HangsAt(1));
    let start = Instant::now();
    drop((device, buffer));
    assert!(start.elapsed() < 10 * STALL_TIMEOUT, "{:?}", start.elapsed());
}

#[test]
fn waiting_for_an_unknown_submission_fails() {
    let device = card();
    let error = device.wait(&refrain_vulkan::Submission { value: 7 }).unwrap_err();
    assert!(matches!(error, Error::NeverSubmitted { value: 7, last: 0 }), "{error}");
}

#[test]
fn memory_is_not_reused_if_the_timeline_is_unreadable() {
    let device = failing(&[Fault::CounterFailsFrom(1)]);
    let keeper = device.allocate(MemoryClass::Scratch, 256).unwrap();
    let used = device.allocate(MemoryClass::Scratch, 1000).unwrap();
    let address = used.address();
    let submission = device.submit(list(&device, "use", &[(&used, Access::Read)])).unwrap();
    drop(used);
    let other = device.allocate(MemoryClass::Scratch, 1000).unwrap();
    assert_ne!(other.address(), address, "must be assumed to be in use");
    let error = device.wait(&submission).unwrap_err();
    assert!(matches!(error, Error::Driver { .. }), "{error}");
    assert!(!device.is_lost());
    drop(keeper);
}

#[test]
fn a_failed_submit_has_no_effect() {
    let device = failing(&[Fault::SubmitFails(2)]);
    let state = device.allocate(MemoryClass::State, 1000).unwrap();
    let uses = [(&state, Access::Write)];
    let first = device.submit(list(&device, "first", &uses)).unwrap();
    let recording = device.record(list(&device, "again", &uses)).unwrap();
    assert!(device.submit_recorded(&[&recording; 3]).is_err());
    let values: Vec<u64> = device
        .submit_recorded(&[&recording; 3])
        .unwrap()
        .iter()
        .map(|s| s.value)
        .collect();
    assert_eq!(values, [2, 3, 4].map(|more| first.value - 1 + more));
    device.read(&state, 0, &mut [0; 4]).unwrap();
}

#[test]
fn allocation_succeeds_after_a_failed_one() {
    // Allocation 1 is the staging ring. A block is tried in two memory types and two sizes.
    let device = failing(&[2, 3, 4, 5].map(Fault::AllocationFails));
    let error = device.allocate(MemoryClass::Weight, 1000).unwrap_err();
    assert!(
        matches!(
            &error,
            Error::Driver {
                call: "vkAllocateMemory",
                ..
            }
        ),
        "{error}"
    );
    device.allocate(MemoryClass::Weight, 1000).unwrap();
}

#[test]
fn errors_count_repeated_submissions_of_a_list() {
    let device = failing(&[Fault::LostAt(1)]);
    let recording = device.record(list(&device, "step", &[])).unwrap();
    let runs = device.submit_recorded(&[&recording; 32]).unwrap();
    let text = device.wait(&runs[0]).unwrap_err().to_string();
    assert_eq!(text.matches("step").count(), 1, "{text}");
    assert!(text.contains("\"step\" (32 times)"), "{text}");
}

#[test]
fn allocations_do_not_block_each_other() {
    let device = failing(&[Fault::HangsAt(1)]);
    let used = device.allocate(MemoryClass::State, 3 * GIB).unwrap();
    let more = device.allocate(MemoryClass::State, 3 * GIB).unwrap();
    let small = device.allocate(MemoryClass::State, 8).unwrap();
    device.submit(list(&device, "use", &[(&used, Access::Write)])).unwrap();
    drop(used);
    std::thread::scope(|scope| {
        let short = scope.spawn(|| device.allocate(MemoryClass::State, 3 * GIB));
        std::thread::sleep(STALL_TIMEOUT / 10);
        let start = Instant::now();
        device.allocate(MemoryClass::State, 8).unwrap();
        assert!(start.elapsed() < STALL_TIMEOUT / 2, "{:?}", start.elapsed());
        let error = short.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Stalled { .. }), "{error}");
    });
    drop((more, small));
}

#[test]
fn uploads_proceed_while_readers_wait() {
    let device = failing(&[Fault::HangsAt(1)]);
    let states: Vec<_> = (0..4)
        .map(|_| device.allocate(MemoryClass::State, 1000).unwrap())
        .collect();
    let weight = device.allocate(MemoryClass::Weight, 1000).unwrap();
    let uses: Vec<_> = states.iter().map(|state| (state, Access::Write)).collect();
    device.submit(list(&device, "slow", &uses)).unwrap();
    std::thread::scope(|scope| {
        let read = |state| device.read(state, 0, &mut [0; 4]);
        let readers: Vec<_> = states.iter().map(|state| scope.spawn(move || read(state))).collect();
        std::thread::sleep(STALL_TIMEOUT / 10);
        let start = Instant::now();
        upload(&device, &weight, 1000);
        assert!(start.elapsed() < STALL_TIMEOUT / 2, "{:?}", start.elapsed());
        for reader in readers {
            let error = reader.join().unwrap().unwrap_err();
            assert!(matches!(error, Error::Stalled { .. }), "{error}");
        }
    });
}

#[test]
fn a_new_device_works_after_a_loss() {
    let (device, buffer, second) = device_with_fault(Fault::LostAt(2));
    assert!(device.wait(&second).is_err());
    drop((device, buffer));
    let device = card();
    let state = device.allocate(MemoryClass::State, 1000).unwrap();
    device
        .submit(list(&device, "work", &[(&state, Access::Write)]))
        .unwrap();
    device.read(&state, 0, &mut [0; 4]).unwrap();
}
