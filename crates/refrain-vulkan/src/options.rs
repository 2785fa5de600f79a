//! Options to open a device.

use std::path::PathBuf;
use std::time::Duration;

use crate::feature::FeatureSet;
use crate::info::DeviceKind;

/// How long a device may run without completing a list before it counts as hanging.
const STALL_TIMEOUT: Duration = Duration::from_secs(120);
const SOFTWARE_STALL_TIMEOUT: Duration = Duration::from_secs(1200);

/// Options of [`crate::Vulkan::open`].
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// Features that are not used even if the device has them.
    pub disabled: FeatureSet,
    /// Directory of the cache of compiled shaders and pipelines; no cache if `None`.
    pub cache_dir: Option<PathBuf>,
    /// Whether to time the regions of command lists on the device.
    pub timestamps: bool,
    /// Whether to collect compiler statistics of each kernel ([`crate::Pipeline::statistics`]), if the driver supports them.
    pub statistics: bool,
    /// Whether to run kernels on a queue family without graphics, if the device has one. By default the first family
    /// with compute is used, which usually has graphics too. Which one is faster differs between devices.
    pub compute_only_queue: bool,
    /// Whether to keep scratch memory for the next buffers after its buffers are dropped, up to a sixteenth of the
    /// device's memory. It is freed when other buffers need it. A driver takes 20 ms or more to allocate what a prompt
    /// needs.
    pub keep_scratch: bool,
    /// How long the device may run without completing a command list before it counts as hanging. `None` means two
    /// minutes, or twenty for a driver that computes on the CPU.
    pub stall_timeout: Option<Duration>,
}

impl OpenOptions {
    /// Returns the stall timeout for a kind of device.
    pub(crate) fn stall_timeout_for(&self, kind: DeviceKind) -> Duration {
        let default = match kind {
            DeviceKind::Software => SOFTWARE_STALL_TIMEOUT,
            _ => STALL_TIMEOUT,
        };
        self.stall_timeout.unwrap_or(default)
    }
}
