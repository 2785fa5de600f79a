//! The matrix cores of an opened device.

use refrain_kernels::Traits;
use refrain_kernels::fragments::{self, FragmentOrder, MatrixCores};
use refrain_vulkan::{Access, Command, CommandList, Device, Feature, MemoryClass};

use crate::Error;
use crate::execute::translate;

/// The device's matrix cores, and their order if a probe finds one that kernels know. A device on which the probe
/// fails goes without: whatever is wrong with it will be said of what it is asked to compute.
pub(super) fn found(device: &Device, traits: &Traits) -> Option<MatrixCores> {
    let told = device.features().contains(Feature::FragmentOrder);
    let sizes = device.fragment_sizes();
    sizes.into_iter().find_map(|size| {
        let written = probe(device, traits, size).ok()?;
        let order = fragments::order(traits, size, &written)?;
        let order = if told { order } else { FragmentOrder::Hidden };
        Some(MatrixCores { size, order })
    })
}

/// What [`fragments::probe`] writes.
fn probe(device: &Device, traits: &Traits, size: u32) -> Result<Vec<u32>, Error> {
    let call = fragments::probe(traits, size);
    let mut words = vec![0; fragments::probe_words(traits)];
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
    let held = device.allocate(MemoryClass::Scratch, bytes.len() as u64)?;
    let push = held.address().to_le_bytes().to_vec();
    let pipeline = device.pipeline(&translate(traits, &call.kernel, push.len() as u32))?;
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
