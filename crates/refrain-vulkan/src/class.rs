//! Memory classes: what buffers are for.

use std::fmt;

/// Purpose of a buffer. It decides the memory type and who may access it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MemoryClass {
    /// Model weights: device-local, uploaded once, then only read by kernels.
    Weight,
    /// Data kept from token to token (KV pages, recurrent state): device-local.
    State,
    /// Temporaries of one evaluation: device-local.
    Scratch,
    /// Small values that the host writes directly: host-visible, and device-local if the device offers both.
    Control,
    /// A few words that the device repeatedly reports to the host: host-visible and cached. A host read across the bus
    /// takes microseconds; a device write does not stall the device.
    Report,
    /// Staging buffers for transfers to and from device-local memory: host-visible and cached.
    Staging,
}

impl MemoryClass {
    /// Every class.
    pub const ALL: [Self; 6] = [
        Self::Weight,
        Self::State,
        Self::Scratch,
        Self::Control,
        Self::Report,
        Self::Staging,
    ];

    /// Whether the host maps memory of this class.
    pub fn mapped(self) -> bool {
        matches!(self, Self::Control | Self::Report | Self::Staging)
    }

    /// Whether kernels update the content in place.
    pub fn is_state(self) -> bool {
        matches!(self, Self::State | Self::Report)
    }

    /// Index into tables ordered as [`MemoryClass::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for MemoryClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Weight => "weight",
            Self::State => "state",
            Self::Scratch => "scratch",
            Self::Control => "control",
            Self::Report => "report",
            Self::Staging => "staging",
        })
    }
}
