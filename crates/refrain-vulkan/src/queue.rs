//! The queues of a device.

/// One of the two queues of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Queue {
    /// Runs kernels. Also runs copies if the device has no transfer queue.
    Compute,
    /// Runs only copies, concurrently with kernels.
    Transfer,
}

impl Queue {
    pub(crate) const ALL: [Self; 2] = [Self::Compute, Self::Transfer];

    pub(crate) fn other(self) -> Self {
        match self {
            Self::Compute => Self::Transfer,
            Self::Transfer => Self::Compute,
        }
    }
}
