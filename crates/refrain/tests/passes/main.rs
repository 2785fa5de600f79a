//! The results of each pass for small programs, and invariants of plans.

mod canonicalise;
mod check;
mod choose;
#[path = "../common/mod.rs"]
mod common;
mod fuse;
mod hazards;
mod order;
mod overwrite;
mod place;
mod random;
mod regions;
mod rewrites;
mod schedule;
mod write_through;

use std::sync::Arc;

use refrain::graph::Graph;
use refrain::passes;
use refrain::plan::Plan;
use refrain::{Array, DType, Device};
use refrain_vulkan::{DeviceInfo, FeatureSet};

/// The null device without optional features, so that kernel names are short.
fn null() -> Device {
    let mut info = DeviceInfo::mock("card");
    info.features = FeatureSet::EMPTY;
    Device::vulkan(Arc::clone(&refrain_vulkan::Device::null(info)))
}

fn array(device: &Device, shape: &[usize]) -> Array {
    Array::weight(device, DType::F32, shape, &mut |_, piece| piece.fill(0)).expect("memory")
}

fn traced(outputs: &[&Array]) -> Graph {
    Graph::trace(outputs).expect("a program without mistakes")
}

fn canonical(outputs: &[&Array]) -> Graph {
    passes::canonicalise(traced(outputs))
}

fn fused(outputs: &[&Array]) -> Graph {
    passes::fuse(passes::overwrite(canonical(outputs)))
}

fn planned(outputs: &[&Array]) -> Plan {
    passes::plan(outputs).expect("a program that the device computes")
}
