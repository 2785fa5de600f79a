//! Device loss and exhausted memory are reported as errors, and leave existing arrays intact.

use refrain::{Array, DType, Device, Error, Function, eval};
use refrain_vulkan::{DeviceInfo, Fault, Feature, NullOptions};

/// A device with one queue that is lost at submit number `submit`.
fn lost_at(submit: u64) -> Device {
    let mut info = DeviceInfo::mock("card");
    info.features.remove(Feature::TransferQueue);
    let options = NullOptions {
        faults: vec![Fault::LostAt(submit)],
        ..NullOptions::default()
    };
    Device::vulkan(refrain_vulkan::Device::null_with(info, options))
}

/// The message of an error of the device or its driver.
fn message(error: &Error) -> String {
    assert!(matches!(error, Error::Vulkan(_)), "{error:?}");
    error.to_string()
}

#[test]
fn a_lost_device_is_an_error_that_names_the_running_work() {
    let device = lost_at(3);
    let x = Array::zeros(&device, DType::F32, &[8]).exp();
    x.eval().expect("the first submit is well");
    x.to_vec::<f32>().expect("so is the second, which reads back");

    let y = x.exp();
    let error = y.to_vec::<f32>().expect_err("the third is lost");
    assert!(message(&error).contains("evaluation"), "{error}");
    let error = (&x + 1.0).to_vec::<f32>().expect_err("no more work is taken");
    message(&error);
}

#[test]
fn a_lost_device_fails_function_calls() {
    let device = lost_at(1);
    let x = Array::input(&device, "x", DType::F32, &[2]);
    let double = Function::trace(&[&(&x * 2.0)]).expect("tracing submits nothing");
    let arguments: [(&str, &[u8]); 1] = [("x", &[0; 8])];
    // The call may return before the loss is detected; reading and calling again must fail.
    let called = double.call_bytes(&arguments);
    let error = called.and_then(|()| double.read::<f32>(0).map(drop)).expect_err("lost");
    assert!(message(&error).contains("evaluation"), "{error}");
    message(&double.call_bytes(&arguments).expect_err("still lost"));
}

#[test]
fn exhausted_memory_is_an_error_and_freeing_arrays_helps() {
    let device = Device::vulkan(refrain_vulkan::Device::null(DeviceInfo::mock("card")));
    // 3 GiB each, on a card of 8 GiB.
    let large = || Array::zeros(&device, DType::F32, &[3 << 28]).contiguous();
    let (first, second, third) = (large(), large(), large());
    eval(&[&first]).expect("room for one");
    eval(&[&second]).expect("room for two");
    let error = third.eval().expect_err("no room for three");
    let text = message(&error);
    assert!(text.contains("3.0 GiB") && text.contains("heap 0"), "{text}");

    assert!(first.is_evaluated() && second.is_evaluated() && !third.is_evaluated());
    drop(first);
    third.eval().expect("room again");
}

#[test]
fn an_array_larger_than_the_largest_buffer_is_rejected() {
    let device = Device::vulkan(refrain_vulkan::Device::null(DeviceInfo::mock("card")));
    let weight = Array::weight(&device, DType::F32, &[2 << 30], &mut |_, _| {
        panic!("nothing is filled without memory")
    });
    let text = message(&weight.expect_err("8 GiB, where one buffer has at most 4"));
    assert!(text.contains("8.0 GiB") && text.contains("4.0 GiB"), "{text}");
}
