//! The examples run, on the CPU executor and on the Vulkan device; each checks what it prints.

mod common;

#[path = "../examples/arrays.rs"]
#[allow(dead_code, reason = "`main` is for the command line")]
mod arrays;
#[path = "../examples/custom_model.rs"]
#[allow(dead_code, reason = "`main` is for the command line")]
mod custom_model;
#[path = "../examples/network.rs"]
mod network;
#[path = "../examples/own_operation.rs"]
#[allow(dead_code, reason = "`main` is for the command line")]
mod own_operation;

use common::{plain, vulkan};
use refrain::Device;

#[test]
fn the_arrays_example_computes_what_it_says() {
    arrays::run(&Device::cpu()).unwrap();
    arrays::run(vulkan()).unwrap();
}

#[test]
fn the_network_knows_exclusive_or_and_the_devices_agree() {
    let probabilities = network::run(&Device::cpu()).unwrap();
    let different: Vec<f32> = probabilities.chunks(2).map(|pair| pair[1]).collect();
    assert!(different[1] > 0.99 && different[2] > 0.99, "{different:?}");
    assert!(different[0] < 0.01 && different[3] < 0.01, "{different:?}");
    network::main().unwrap();
}

#[test]
fn the_recurrent_model_agrees_with_plain_rust() {
    custom_model::run(&Device::cpu()).unwrap();
    custom_model::run(vulkan()).unwrap();
}

#[test]
fn an_operation_from_a_file_of_its_own_computes_on_every_executor() {
    own_operation::run(&Device::cpu()).unwrap();
    own_operation::run(vulkan()).unwrap();
    own_operation::run(plain()).unwrap();
}
