//! Uploads to and reads from real devices.

use super::*;

#[test]
fn uploads_and_reads_round_trip_for_all_lengths() {
    let vulkan = vulkan();
    let device = open(&vulkan, &OpenOptions::default());
    let allocations = device.counters().allocations;
    let ring = 32 << 20;
    for length in [0usize, 1, 3, 255, 4097, 1_000_003, ring + 12_345] {
        let data: Vec<u8> = (0..length).map(|i| (i * 31 + i / 251) as u8).collect();
        let buffer = device.allocate(MemoryClass::Weight, length as u64).unwrap();
        assert_eq!(buffer.address() % 256, 0);
        upload(&device, &buffer, &data);
        let mut back = vec![0xaa; length];
        device.read(&buffer, 0, &mut back).unwrap();
        assert!(back == data, "{length} bytes differ");
        if length > 2 {
            let mut part = vec![0; length / 2];
            device.read(&buffer, 1, &mut part).unwrap();
            assert!(part == data[1..1 + length / 2]);
        }
        let error = device.read(&buffer, 1, &mut back).unwrap_err();
        assert!(matches!(error, Error::OutOfRange { .. }), "{error}");
    }
    let control = device.allocate(MemoryClass::Control, 8).unwrap();
    device.write_control(&control, 3, b"hello").unwrap();
    let mut back = [0; 5];
    device.read(&control, 3, &mut back).unwrap();
    assert_eq!(&back, b"hello");
    assert!(device.counters().allocations > allocations);
    drop((control, device));
    assert_no_validation_messages(&vulkan);
}

#[test]
fn host_reads_kernel_writes_to_control_memory() {
    let vulkan = vulkan();
    let device = open(&vulkan, &OpenOptions::default());
    let control = device.allocate(MemoryClass::Control, 12).unwrap();
    device.write_control(&control, 0, &bytes(&[40, 2, 0])).unwrap();
    let at = |word: u64| control.address() + 4 * word;
    let before = device.counters();
    let submission = device
        .submit(CommandList {
            name: "control".to_owned(),
            commands: vec![Command::Dispatch {
                pipeline: device.pipeline(&add_kernel()).unwrap(),
                groups: [1, 1, 1],
                push: push(&[at(0), at(1), at(2)], 1),
            }],
            uses: vec![(control.clone(), Access::Write)],
        })
        .unwrap();
    let mut sum = [0; 4];
    device.read(&control, 8, &mut sum).unwrap();
    assert_eq!(u32::from_le_bytes(sum), 42);
    assert!(device.is_done(&submission).unwrap());
    let since = device.counters() - before;
    assert_eq!(
        (since.copies, since.submits),
        (0, 1),
        "mapped memory is read without a copy"
    );
    drop((control, device));
    assert_no_validation_messages(&vulkan);
}

#[test]
fn buffers_and_pipelines_outlive_their_device() {
    let vulkan = vulkan();
    let device = open(&vulkan, &OpenOptions::default());
    let buffer = device.allocate(MemoryClass::Weight, 1000).unwrap();
    let pipeline = device.pipeline(&add_kernel()).unwrap();
    upload(&device, &buffer, &[1; 1000]);
    drop(device);
    assert_eq!((buffer.bytes(), pipeline.name()), (1000, "add"));
    drop((buffer, pipeline));
    assert_no_validation_messages(&vulkan);
}

#[test]
fn rejects_buffers_above_the_driver_limit() {
    let vulkan = vulkan();
    let device = open(&vulkan, &OpenOptions::default());
    let limit = device.info().limits.max_allocation_bytes;
    let error = device.allocate(MemoryClass::State, limit + 1).unwrap_err();
    assert!(matches!(error, Error::BufferTooLarge { .. }), "{error}");
    drop(device);
    assert_no_validation_messages(&vulkan);
}
