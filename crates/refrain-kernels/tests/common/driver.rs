//! What kernels are told of a Vulkan device, and what it is told of them; benchmarks use this too.

use refrain_kernels::fragments::{self, MatrixCores};
use refrain_kernels::{Architecture, KernelText, MemoryKind, Traits};
use refrain_vulkan::{Access, Command, CommandList, Device, Feature, MemoryClass, ShaderText};

/// What the device can do.
pub fn traits(device: &Device) -> Traits {
    let (info, features) = (device.info(), device.features());
    let traits = Traits {
        vendor: info.vendor_id,
        architecture: Architecture::of(info.vendor_id, &info.name, info.limits.min_subgroup_size),
        compute_units: info.compute_units,
        memory: MemoryKind::Discrete,
        subgroup_size: info.limits.subgroup_size,
        subgroup_required: false,
        full_subgroups: features.contains(Feature::FullSubgroups)
            && info.limits.min_subgroup_size == info.limits.max_subgroup_size,
        subgroup_uniform_flow: features.contains(Feature::SubgroupUniformFlow),
        subgroup_arithmetic: features.contains(Feature::SubgroupArithmetic),
        subgroup_shuffle: features.contains(Feature::SubgroupShuffle),
        storage16: features.contains(Feature::Storage16),
        storage8: features.contains(Feature::Storage8),
        integer_dot: features.contains(Feature::IntegerDot),
        subnormal_halves: true,
        tickets: true,
        max_invocations: info.limits.max_workgroup_invocations,
        push_bytes: info.limits.max_push_constants.min(256),
        shared_bytes: info.limits.shared_memory_bytes,
        matrix_cores: None,
        tuning: None,
    };
    Traits {
        matrix_cores: matrix_cores(device, &traits),
        ..traits
    }
}

/// The device's matrix cores, of the first shape that works.
fn matrix_cores(device: &Device, traits: &Traits) -> Option<MatrixCores> {
    let shapes = device.matrix_shapes_of_halves();
    fragments::found(traits, &shapes, true, |shape| Some(probed(device, traits, shape)))
}

/// What the device answers to the probe of a shape.
fn probed(device: &Device, traits: &Traits, shape: [u32; 3]) -> Vec<u32> {
    let call = fragments::probe(traits, shape);
    let mut words = vec![0; fragments::probe_words(traits, shape)];
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
    let held = device.allocate(MemoryClass::Scratch, bytes.len() as u64);
    let held = held.expect("memory");
    let mut list = CommandList::new("fragments");
    list.commands.push(Command::Dispatch {
        pipeline: device
            .pipeline(&translated(&call.kernel, 8))
            .expect("the probe compiles"),
        groups: call.groups,
        push: held.address().to_le_bytes().to_vec(),
    });
    list.uses = vec![(held.clone(), Access::Write)];
    device.submit(list).expect("the probe runs");
    device.read(&held, 0, bytes).expect("the probe's answer");
    words
}

/// A kernel as the runtime compiles it.
pub fn translated(kernel: &KernelText, push_bytes: usize) -> refrain_vulkan::Kernel {
    refrain_vulkan::Kernel {
        name: kernel.name.to_string(),
        source: ShaderText::identified(kernel.source().clone(), kernel.identity()),
        defines: Vec::new(),
        constants: kernel.constants.to_vec(),
        push_bytes: push_bytes as u32,
        subgroup_size: None,
        full_subgroups: kernel.full_subgroups,
    }
}
