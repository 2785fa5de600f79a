//! What kernels are told of a Vulkan device, and what it is told of them; benchmarks use this too.

use refrain_kernels::{Kernel, Traits};
use refrain_vulkan::{Device, Feature};

/// What the device can do.
pub fn traits(device: &Device) -> Traits {
    let (info, features) = (device.info(), device.features());
    Traits {
        vendor: info.vendor_id,
        subgroup_size: info.limits.subgroup_size,
        subgroup_required: false,
        subgroup_arithmetic: features.contains(Feature::SubgroupArithmetic),
        storage16: features.contains(Feature::Storage16),
        storage8: features.contains(Feature::Storage8),
        integer_dot: features.contains(Feature::IntegerDot),
        subnormal_halves: true,
        tickets: true,
        max_invocations: info.limits.max_workgroup_invocations,
        shared_bytes: info.limits.shared_memory_bytes,
    }
}

/// A kernel as the runtime compiles it.
pub fn translated(kernel: &Kernel, push_bytes: usize) -> refrain_vulkan::Kernel {
    refrain_vulkan::Kernel {
        name: kernel.name.clone(),
        source: kernel.source.clone(),
        defines: Vec::new(),
        constants: kernel.constants.clone(),
        push_bytes: push_bytes as u32,
        subgroup_size: None,
    }
}
