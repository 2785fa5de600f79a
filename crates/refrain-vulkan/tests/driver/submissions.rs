//! Submissions of command lists.

use super::*;

#[test]
fn kernels_access_buffers_by_address() {
    let vulkan = vulkan();
    let device = open(&vulkan, &OpenOptions::default());
    for n in [1, 63, 64, 65, 100_000] {
        assert_eq!(add_twice(&device, &add_kernel(), n), expected(n), "{n} words");
    }
    let counters = device.counters();
    assert_eq!((counters.dispatches, counters.pipelines_compiled), (10, 1));
    assert_eq!(counters.submits, 5 + counters.transfer_submits);
    assert_eq!(counters.transfer_submits, 15, "two uploads and a read-back each");
    assert!(counters.record_cpu_ns > 0);
    drop(device);
    assert_no_validation_messages(&vulkan);
}

#[test]
fn overlapping_submissions_of_a_recording_complete_separately() {
    let vulkan = vulkan();
    let device = open(&vulkan, &OpenOptions::default());
    let total = device.allocate(MemoryClass::Control, 256).unwrap();
    let one = device.allocate(MemoryClass::State, 256).unwrap();
    device.write_control(&total, 0, &[0; 256]).unwrap();
    upload(&device, &one, &bytes(&[1]));
    let (at, step) = (total.address(), one.address());
    let recording = device
        .record(CommandList {
            name: "count".to_owned(),
            commands: vec![Command::Dispatch {
                pipeline: device.pipeline(&add_kernel()).unwrap(),
                groups: [1, 1, 1],
                push: push(&[at, step, at], 1),
            }],
            uses: vec![(total.clone(), Access::Write), (one.clone(), Access::Read)],
        })
        .unwrap();
    let before = device.counters();
    let first = device.submit_recorded(&[&recording; 5]).unwrap();
    let second = device.submit_recorded(&[&recording; 3]).unwrap();
    let since = device.counters() - before;
    assert_eq!((since.submits, since.batches, since.dispatches), (2, 8, 8));
    assert_eq!(since.record_cpu_ns, 0, "nothing is recorded again");
    for (index, submission) in first.iter().chain(&second).enumerate() {
        device.wait(submission).unwrap();
        let mut sum = [0; 4];
        device.peek(&total, 0, &mut sum).unwrap();
        // Later runs may have completed too.
        assert!(u32::from_le_bytes(sum) > index as u32, "{sum:?} after run {index}");
    }
    let mut sum = [0; 4];
    device.read(&total, 0, &mut sum).unwrap();
    assert_eq!(u32::from_le_bytes(sum), 8);
    drop((recording, total, one, device));
    assert_no_validation_messages(&vulkan);
}

#[test]
fn full_barrier_orders_copies_before_indirect_dispatch() {
    let vulkan = vulkan();
    let device = open(&vulkan, &OpenOptions::default());
    let [source, counts, result] = [0; 3].map(|_| device.allocate(MemoryClass::Scratch, 256).unwrap());
    upload(&device, &source, &bytes(&[2, 1, 1, 5]));
    let copy = |src_offset, dst: &refrain_vulkan::Buffer, bytes| Command::Copy {
        src: source.clone(),
        src_offset,
        dst: dst.clone(),
        dst_offset: 0,
        bytes,
    };
    let five = source.address() + 12;
    device
        .submit(CommandList {
            name: "indirect".to_owned(),
            commands: vec![
                copy(0, &counts, 12),
                copy(0, &result, 0),
                Command::FullBarrier,
                Command::DispatchIndirect {
                    pipeline: device.pipeline(&add_kernel()).unwrap(),
                    counts: counts.clone(),
                    offset: 0,
                    push: push(&[five, five, result.address()], 1),
                },
            ],
            uses: vec![
                (source.clone(), Access::Read),
                (counts.clone(), Access::Write),
                (result.clone(), Access::Write),
            ],
        })
        .unwrap();
    let mut sum = [0; 4];
    device.read(&result, 0, &mut sum).unwrap();
    assert_eq!(u32::from_le_bytes(sum), 10);
    drop((source, counts, result, device));
    assert_no_validation_messages(&vulkan);
}

#[test]
fn timings_contain_every_region() {
    let vulkan = vulkan();
    let device = open(
        &vulkan,
        &OpenOptions {
            timestamps: true,
            ..OpenOptions::default()
        },
    );
    let control = device.allocate(MemoryClass::Control, 1024).unwrap();
    let region = |name: &str| Command::Timestamp {
        region: name.to_owned(),
    };
    let at = control.address();
    let work = Command::Dispatch {
        pipeline: device.pipeline(&add_kernel()).unwrap(),
        groups: [1, 1, 1],
        push: push(&[at, at, at], 64),
    };
    let list = CommandList {
        name: "timed".to_owned(),
        commands: vec![region("head"), work.clone(), region("tail"), work],
        uses: vec![(control.clone(), Access::Write)],
    };
    let submission = device.submit(list).unwrap();
    device.wait(&submission).unwrap();
    let timings = device.timings(&submission);
    let names: Vec<_> = timings.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["head", "tail"]);
    assert!(timings.iter().all(|(_, us)| (0.0..1e6).contains(us)), "{timings:?}");
    assert!(device.timings(&submission).is_empty(), "timings can be read only once");
    drop((control, device));
    assert_no_validation_messages(&vulkan);
}

#[test]
fn several_threads_use_one_device() {
    let vulkan = vulkan();
    let device = open(&vulkan, &OpenOptions::default());
    std::thread::scope(|scope| {
        for n in [100, 1000, 5000] {
            let device = &device;
            scope.spawn(move || {
                for _ in 0..10 {
                    assert_eq!(add_twice(device, &add_kernel(), n), expected(n));
                }
            });
        }
    });
    drop(device);
    assert_no_validation_messages(&vulkan);
}
