//! The validation layer hears what it should.

use super::*;

#[test]
fn instrumented_shaders_tell_of_an_access_outside_every_buffer() {
    let vulkan = load(true);
    let device = open(&vulkan, &OpenOptions::default());
    assert_eq!(add_twice(&device, &add_kernel(), 100), expected(100));
    assert_silent(&vulkan);
    // Beyond the only control block.
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
fn the_validation_layer_listens() {
    // Without this, silence elsewhere would prove nothing.
    let vulkan = load(false);
    let device = open(&vulkan, &OpenOptions::default());
    let long = Kernel {
        constants: vec![(0, 1 << 20)],
        ..add_kernel()
    };
    let made = device.pipeline(&long);
    let messages = vulkan.validation_messages();
    assert!(!messages.is_empty(), "a workgroup of a million lanes passed: {made:?}");
}
