//! Detects the matrix cores of an opened device.

use refrain_kernels::Traits;
use refrain_kernels::fragments::{self, MatrixCores};
use refrain_vulkan::{Access, Command, CommandList, Device, Feature, MemoryClass};

use super::kernel::vulkan_kernel;
use crate::Error;

/// The device's matrix cores: the first shape that works, and their element order if the probe finds one that kernels
/// know. `None` if the probe fails; whatever is wrong with the device is reported when it computes something.
pub(super) fn detect(device: &Device, traits: &Traits) -> Option<MatrixCores> {
    let may_use_layout = device.features().contains(Feature::FragmentOrder);
    let shapes = device.f16_matrix_shapes();
    fragments::detect(traits, &shapes, may_use_layout, |shape| {
        probe(device, traits, shape).ok()
    })
}

/// The output of [`fragments::probe`].
fn probe(device: &Device, traits: &Traits, shape: [u32; 3]) -> Result<Vec<u32>, Error> {
    let call = fragments::probe(traits, shape);
    let mut words = vec![0; fragments::probe_words(traits, shape)];
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
    let held = device.allocate(MemoryClass::Scratch, bytes.len() as u64)?;
    let push = held.address().to_le_bytes().to_vec();
    let pipeline = device.pipeline(&vulkan_kernel(traits, &call.kernel, push.len() as u32))?;
    let mut list = CommandList::new("order of fragments");
    list.commands.push(Command::Dispatch {
        pipeline,
        groups: call.groups,
        push,
    });
    list.uses = vec![(held.clone(), Access::Write)];
    device.submit(list)?;
    device.read(&held, 0, bytes)?;
    Ok(words)
}
