//! Command lists.

use super::*;

#[test]
fn a_kernel_reads_and_writes_buffers_by_address() {
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
    assert_silent(&vulkan);
}

#[test]
fn a_list_recorded_once_runs_many_times_at_once_and_each_run_completes_by_itself() {
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
    assert_eq!(since.record_cpu_ns, 0, "nothing is translated again");
    for (made, submission) in first.iter().chain(&second).enumerate() {
        device.wait(submission).unwrap();
        let mut sum = [0; 4];
        device.peek(&total, 0, &mut sum).unwrap();
        // Later runs may be done too by then.
        assert!(u32::from_le_bytes(sum) > made as u32, "{sum:?} after run {made}");
    }
    let mut sum = [0; 4];
    device.read(&total, 0, &mut sum).unwrap();
    assert_eq!(u32::from_le_bytes(sum), 8);
    drop((recording, total, one, device));
    assert_silent(&vulkan);
}

#[test]
fn indirect_counts_and_copies_follow_a_full_barrier() {
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
    assert_silent(&vulkan);
}

#[test]
fn timestamps_name_the_regions_of_a_list() {
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
    assert!(device.timings(&submission).is_empty(), "taken once");
    drop((control, device));
    assert_silent(&vulkan);
}

#[test]
fn threads_share_a_device() {
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
    assert_silent(&vulkan);
}
