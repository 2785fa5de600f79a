//! Devices that fail: every way of it is an error in finite time, and another can be opened afterwards.

use std::time::Instant;

use super::*;

/// A device with work under way in which `fault` happens, and the second of its two lists.
fn at_work(fault: Fault) -> (Arc<Device>, Buffer, refrain_vulkan::Submission) {
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
        "from then on everything fails alike"
    );
    assert!(device.allocate(MemoryClass::Weight, 8).is_err());
}

#[test]
fn a_counter_beyond_the_last_submission_is_a_loss() {
    let ask = |ask: &dyn Fn(&Device, &Buffer, &refrain_vulkan::Submission) -> Result<(), Error>| {
        let (device, buffer, second) = at_work(Fault::JumpsAt(2));
        assert_lost(&device, &ask(&device, &buffer, &second).unwrap_err());
    };
    ask(&|device, _, second| device.wait(second));
    ask(&|device, _, second| device.is_done(second).map(drop));
    ask(&|device, buffer, _| device.read(buffer, 0, &mut [0; 4]));
}

#[test]
fn bytes_that_a_silently_lost_device_did_not_write_are_never_read() {
    let (device, buffer, second) = at_work(Fault::SilentFrom(2));
    device.wait(&second).unwrap();
    assert!(!device.is_lost(), "nothing tells");
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
fn a_caller_who_finds_out_about_a_loss_ends_everything() {
    let (device, ..) = at_work(Fault::SubmitFails(99));
    let error = device.note_loss();
    assert_lost(&device, &error);
}

#[test]
fn a_list_that_never_ends_is_named_after_a_while_and_closing_does_not_wait() {
    let (device, buffer, second) = at_work(Fault::StuckAt(2));
    let start = Instant::now();
    let error = device.wait(&second).unwrap_err();
    let Error::Stalled { during, patience } = &error else {
        panic!("{error}")
    };
    assert!(during.contains("second") && !during.contains("first"), "{during}");
    assert_eq!(*patience, PATIENCE);
    assert!(
        (PATIENCE..10 * PATIENCE).contains(&start.elapsed()),
        "{:?}",
        start.elapsed()
    );
    assert!(!device.is_lost() && !device.is_done(&second).unwrap());
    let error = device.write_control(&buffer, 0, &[0; 4]).unwrap_err();
    assert!(matches!(error, Error::InUse { .. }), "{error}");

    let start = Instant::now();
    drop(device);
    drop(buffer);
    assert!(start.elapsed() < PATIENCE / 2, "{:?}", start.elapsed());
}

#[test]
fn a_device_that_stands_still_is_closed_in_finite_time() {
    let (device, buffer, _) = at_work(Fault::StuckAt(1));
    let start = Instant::now();
    drop((device, buffer));
    assert!(start.elapsed() < 10 * PATIENCE, "{:?}", start.elapsed());
}

#[test]
fn what_was_never_submitted_is_not_waited_for() {
    let device = card();
    let error = device.wait(&refrain_vulkan::Submission { value: 7 }).unwrap_err();
    assert!(matches!(error, Error::NeverSubmitted { value: 7, last: 0 }), "{error}");
}

#[test]
fn memory_in_use_is_not_reused_while_the_counter_cannot_be_read() {
    let device = failing(&[Fault::CounterFailsFrom(1)]);
    let keeper = device.allocate(MemoryClass::Scratch, 256).unwrap();
    let used = device.allocate(MemoryClass::Scratch, 1000).unwrap();
    let address = used.address();
    let submission = device.submit(list(&device, "use", &[(&used, Access::Read)])).unwrap();
    drop(used);
    let other = device.allocate(MemoryClass::Scratch, 1000).unwrap();
    assert_ne!(other.address(), address, "still in use for all that is known");
    let error = device.wait(&submission).unwrap_err();
    assert!(matches!(error, Error::Driver { .. }), "{error}");
    assert!(!device.is_lost());
    drop(keeper);
}

#[test]
fn a_submit_that_fails_changes_nothing() {
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
fn an_allocation_that_fails_is_an_error_and_the_next_may_succeed() {
    // The first is the staging ring; a block is tried in two memory types and two sizes.
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
fn runs_of_one_list_are_named_once() {
    let device = failing(&[Fault::LostAt(1)]);
    let recording = device.record(list(&device, "step", &[])).unwrap();
    let runs = device.submit_recorded(&[&recording; 32]).unwrap();
    let text = device.wait(&runs[0]).unwrap_err().to_string();
    assert_eq!(text.matches("step").count(), 1, "{text}");
    assert!(text.contains("\"step\" (32 times)"), "{text}");
}

#[test]
fn others_allocate_while_one_waits_for_memory_in_use() {
    let device = failing(&[Fault::StuckAt(1)]);
    let used = device.allocate(MemoryClass::State, 3 * GIB).unwrap();
    let more = device.allocate(MemoryClass::State, 3 * GIB).unwrap();
    let small = device.allocate(MemoryClass::State, 8).unwrap();
    device.submit(list(&device, "use", &[(&used, Access::Write)])).unwrap();
    drop(used);
    std::thread::scope(|scope| {
        let short = scope.spawn(|| device.allocate(MemoryClass::State, 3 * GIB));
        std::thread::sleep(PATIENCE / 10);
        let start = Instant::now();
        device.allocate(MemoryClass::State, 8).unwrap();
        assert!(start.elapsed() < PATIENCE / 2, "{:?}", start.elapsed());
        let error = short.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Stalled { .. }), "{error}");
    });
    drop((more, small));
}

#[test]
fn uploads_go_on_while_readers_wait_for_kernels() {
    let device = failing(&[Fault::StuckAt(1)]);
    let states: Vec<_> = (0..4)
        .map(|_| device.allocate(MemoryClass::State, 1000).unwrap())
        .collect();
    let weight = device.allocate(MemoryClass::Weight, 1000).unwrap();
    let uses: Vec<_> = states.iter().map(|state| (state, Access::Write)).collect();
    device.submit(list(&device, "slow", &uses)).unwrap();
    std::thread::scope(|scope| {
        let read = |state| device.read(state, 0, &mut [0; 4]);
        let readers: Vec<_> = states.iter().map(|state| scope.spawn(move || read(state))).collect();
        std::thread::sleep(PATIENCE / 10);
        let start = Instant::now();
        upload(&device, &weight, 1000);
        assert!(start.elapsed() < PATIENCE / 2, "{:?}", start.elapsed());
        for reader in readers {
            let error = reader.join().unwrap().unwrap_err();
            assert!(matches!(error, Error::Stalled { .. }), "{error}");
        }
    });
}

#[test]
fn a_device_is_opened_again_after_a_loss() {
    let (device, buffer, second) = at_work(Fault::LostAt(2));
    assert!(device.wait(&second).is_err());
    drop((device, buffer));
    let device = card();
    let state = device.allocate(MemoryClass::State, 1000).unwrap();
    device
        .submit(list(&device, "work", &[(&state, Access::Write)]))
        .unwrap();
    device.read(&state, 0, &mut [0; 4]).unwrap();
}
