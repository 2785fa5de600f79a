//! Runs the examples on the CPU executor and on the Vulkan device; each checks its own output.

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
fn arrays_example_runs() {
    arrays::run(&Device::cpu()).unwrap();
    arrays::run(vulkan()).unwrap();
}

#[test]
fn network_example_computes_exclusive_or_on_every_device() {
    let probabilities = network::run(&Device::cpu()).unwrap();
    let different: Vec<f32> = probabilities.chunks(2).map(|pair| pair[1]).collect();
    assert!(different[1] > 0.99 && different[2] > 0.99, "{different:?}");
    assert!(different[0] < 0.01 && different[3] < 0.01, "{different:?}");
    network::main().unwrap();
}

#[test]
fn custom_model_example_matches_plain_rust() {
    custom_model::run(&Device::cpu()).unwrap();
    custom_model::run(vulkan()).unwrap();
}

#[test]
fn own_operation_example_runs_on_every_executor() {
    own_operation::run(&Device::cpu()).unwrap();
    own_operation::run(vulkan()).unwrap();
    own_operation::run(plain()).unwrap();
}
