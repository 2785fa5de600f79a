use std::cell::RefCell;
use std::hash::Hash;

use refrain_kernels::OperandSpec;
use refrain_kernels::projection::{self, Projection};

use crate::Device;
use crate::device::Backend;
use crate::signature::{FastMap, Signature};

/// A device, asked once whether it computes each kind of product: layers are alike, and an answer takes time.
pub(super) struct AskedDevice<'d> {
    device: &'d Device,
    answers: RefCell<FastMap<Signature, bool>>,
}

impl<'d> AskedDevice<'d> {
    pub(super) fn new(device: &'d Device) -> AskedDevice<'d> {
        AskedDevice {
            device,
            answers: RefCell::default(),
        }
    }

    pub(super) fn device(&self) -> &'d Device {
        self.device
    }

    /// Whether the kernels of a projection take the operands as they lie.
    pub(super) fn computes(&self, projection: &Projection, operands: Vec<OperandSpec>) -> bool {
        let mut kind = Signature::default();
        (projection, &operands).hash(&mut kind);
        let mut answers = self.answers.borrow_mut();
        *answers.entry(kind).or_insert_with(|| {
            let operands: Vec<&OperandSpec> = operands.iter().collect();
            let checked = match self.device.backend() {
                Backend::Vulkan { traits, .. } => projection::check(traits, projection, &operands),
                Backend::Cpu => projection::check_operands(projection, &operands),
            };
            checked.is_ok()
        })
    }
}
