use std::cell::RefCell;
use std::hash::Hash;

use refrain_kernels::OperandSpec;
use refrain_kernels::projection::{self, Projection};

use crate::Device;
use crate::device::Backend;
use crate::signature::{FastMap, Signature};

/// Caches whether a device supports each kind of product. Layers are alike, and a check takes time.
pub(super) struct SupportCache<'d> {
    device: &'d Device,
    results: RefCell<FastMap<Signature, bool>>,
}

impl<'d> SupportCache<'d> {
    pub(super) fn new(device: &'d Device) -> SupportCache<'d> {
        SupportCache {
            device,
            results: RefCell::default(),
        }
    }

    pub(super) fn device(&self) -> &'d Device {
        self.device
    }

    /// Whether the projection kernels support the operands in their layouts.
    pub(super) fn supports(&self, projection: &Projection, operands: Vec<OperandSpec>) -> bool {
        let mut kind = Signature::default();
        (projection, &operands).hash(&mut kind);
        let mut results = self.results.borrow_mut();
        *results.entry(kind).or_insert_with(|| {
            let operands: Vec<&OperandSpec> = operands.iter().collect();
            let checked = match self.device.backend() {
                Backend::Vulkan { traits, .. } => projection::check(traits, projection, &operands),
                Backend::Cpu => projection::check_operands(projection, &operands),
            };
            checked.is_ok()
        })
    }
}
