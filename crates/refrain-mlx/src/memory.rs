//! How much memory the device that computes has allocated. The CPU executor counts none.

use crate::device::compute_device;

/// Bytes allocated now.
pub fn active() -> u64 {
    counted(|counters| counters.total_bytes())
}

/// Maximum of [`active`].
pub fn peak() -> u64 {
    counted(|counters| counters.peak_allocated)
}

/// Frees memory that is kept for programs that are evaluated again and again.
pub fn clear_cache() {
    compute_device().clear_cache();
}

fn counted(of: impl Fn(&refrain::Counters) -> u64) -> u64 {
    compute_device().as_vulkan().map_or(0, |device| of(&device.counters()))
}
