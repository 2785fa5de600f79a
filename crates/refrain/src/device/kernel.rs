//! Kernels in the form that the Vulkan runtime compiles.

use refrain_kernels::{KernelSource, Traits};
use refrain_vulkan::ShaderSource;

/// A kernel text with the settings under which the Vulkan runtime compiles it.
pub(crate) fn vulkan_kernel(traits: &Traits, kernel: &KernelSource, push_bytes: u32) -> refrain_vulkan::Kernel {
    refrain_vulkan::Kernel {
        name: kernel.name.to_string(),
        source: ShaderSource::with_hash(kernel.source().clone(), kernel.identity()),
        defines: vec![],
        constants: kernel.constants.to_vec(),
        push_bytes,
        subgroup_size: traits.subgroup_required.then_some(traits.subgroup_size),
        full_subgroups: kernel.full_subgroups,
    }
}
