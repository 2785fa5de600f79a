//! Calls with the memory of their operands.

use refrain_kernels::{Call, OperandSpec, Push};
use refrain_vulkan::{Buffer, Device, MemoryClass};

use crate::driver::translated;

/// Calls, and the placement of their operands: in a copy of the large memory, or in the small one.
pub struct RecordedCalls {
    pub calls: Vec<Call>,
    /// For each operand, whether it is in the large memory, and its offset.
    pub offsets: Vec<(bool, u64)>,
    pub small_bytes: usize,
}

impl RecordedCalls {
    pub fn new(calls: Vec<Call>, operands: &[(bool, OperandSpec)]) -> RecordedCalls {
        let mut next = [0, 0];
        let offsets = operands.iter().map(|(large, operand)| {
            let end = &mut next[usize::from(*large)];
            let at = *end as u64;
            *end = (*end + operand.layout.end() * operand.dtype.size()).next_multiple_of(256);
            (*large, at)
        });
        RecordedCalls {
            offsets: offsets.collect(),
            calls,
            small_bytes: next[0].max(256),
        }
    }

    pub fn kernels(&self) -> impl Iterator<Item = refrain_vulkan::Kernel> + '_ {
        let bytes = |call: &Call| call.push.iter().map(|p| p.size() as usize).sum();
        self.calls.iter().map(move |call| translated(&call.kernel, bytes(call)))
    }

    /// Push constants, with large operands at `large` and the others at `small`.
    pub fn push(&self, call: &Call, large: u64, small: u64, record: &mut dyn FnMut(&[u32]) -> u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        for member in &call.push {
            match member {
                Push::Address { operand, bytes: offset } => {
                    let (is_large, at) = self.offsets[*operand];
                    let base = if is_large { large } else { small };
                    bytes.extend((base + at + offset).to_le_bytes());
                }
                Push::Record(words) => bytes.extend(record(words).to_le_bytes()),
                Push::U32(value) => bytes.extend(value.to_le_bytes()),
                Push::F32(value) => bytes.extend(value.to_le_bytes()),
            }
        }
        bytes
    }
}

pub fn upload(device: &Device, bytes: &[u8]) -> Buffer {
    let length = bytes.len().next_multiple_of(4) as u64;
    let buffer = device.allocate(MemoryClass::Scratch, length).expect("memory");
    let fill = &mut |offset: u64, part: &mut [u8]| {
        let from = offset as usize;
        let end = (from + part.len()).min(bytes.len());
        part[..end - from].copy_from_slice(&bytes[from..end]);
    };
    device.upload(&buffer, 0, length, fill).expect("an upload");
    buffer
}
