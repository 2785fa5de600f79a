//! Conversion of a Vulkan device's properties to [`Traits`], and of kernels to pipelines. Benchmarks use this too.

use refrain_kernels::fragments::{self, MatrixCores};
use refrain_kernels::{Architecture, KernelSource, MemoryKind, Traits};
use refrain_vulkan::{Access, Command, CommandList, Device, Feature, MemoryClass, ShaderSource};

/// Returns the device's traits.
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
        exact_halves: true,
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

/// Returns the device's matrix cores, of the first working shape.
fn matrix_cores(device: &Device, traits: &Traits) -> Option<MatrixCores> {
    let shapes = device.f16_matrix_shapes();
    fragments::detect(traits, &shapes, true, |shape| Some(probed(device, traits, shape)))
}

/// Runs the probe of a shape and returns its output.
fn probed(device: &Device, traits: &Traits, shape: [u32; 3]) -> Vec<u32> {
    let call = fragments::probe(traits, shape);
    let mut words = vec![0; fragments::probe_words(traits, shape)];
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
    let buffer = device.allocate(MemoryClass::Scratch, bytes.len() as u64);
    let buffer = buffer.expect("memory");
    let mut list = CommandList::new("fragments");
    list.commands.push(Command::Dispatch {
        pipeline: device
            .pipeline(&translated(&call.kernel, 8))
            .expect("the probe compiles"),
        groups: call.groups,
        push: buffer.address().to_le_bytes().to_vec(),
    });
    list.uses = vec![(buffer.clone(), Access::Write)];
    device.submit(list).expect("the probe runs");
    device.read(&buffer, 0, bytes).expect("the probe's output");
    words
}

/// Converts a kernel as the runtime does.
pub fn translated(kernel: &KernelSource, push_bytes: usize) -> refrain_vulkan::Kernel {
    refrain_vulkan::Kernel {
        name: kernel.name.to_string(),
        source: ShaderSource::with_hash(kernel.source().clone(), kernel.identity()),
        defines: Vec::new(),
        constants: kernel.constants.to_vec(),
        push_bytes: push_bytes as u32,
        subgroup_size: None,
        full_subgroups: kernel.full_subgroups,
    }
}
