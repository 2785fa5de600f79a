//! Checks that the validation layer reports errors.

use super::*;

#[test]
fn gpu_assisted_validation_reports_out_of_bounds_access() {
    let vulkan = load(true);
    let device = open(&vulkan, &OpenOptions::default());
    assert_eq!(add_twice(&device, &add_kernel(), 100), expected(100));
    assert_no_validation_messages(&vulkan);
    // An address beyond the only control block.
    let control = device.allocate(MemoryClass::Control, 64).unwrap();
    let beyond = control.address() + (1 << 19);
    let submission = device
        .submit(CommandList {
            name: "beyond".to_owned(),
            commands: vec![Command::Dispatch {
                pipeline: device.pipeline(&add_kernel()).unwrap(),
                groups: [1, 1, 1],
                push: push(&[beyond, beyond, control.address()], 1),
            }],
            uses: vec![(control, Access::Write)],
        })
        .unwrap();
    device.wait(&submission).unwrap();
    let messages = vulkan.validation_messages();
    assert!(
        messages.iter().any(|text| text.contains("out of bounds")),
        "{messages:?}"
    );
}

#[test]
fn validation_layer_reports_invalid_pipelines() {
    // Without this check, the absence of messages elsewhere would prove nothing.
    let vulkan = load(false);
    let device = open(&vulkan, &OpenOptions::default());
    let long = Kernel {
        constants: vec![(0, 1 << 20)],
        ..add_kernel()
    };
    let result = device.pipeline(&long);
    let messages = vulkan.validation_messages();
    assert!(
        !messages.is_empty(),
        "a workgroup of a million invocations passed: {result:?}"
    );
}
