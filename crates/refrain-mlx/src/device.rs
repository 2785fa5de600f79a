//! The device that computes, and the labels that programs give to it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use refrain::Device;

/// A kind of device, as MLX names it. Here it is a label: all values are computed by one device
/// ([`set_compute_device`]).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DeviceKind {
    /// `mlx.core.cpu`.
    Cpu,
    /// `mlx.core.gpu`.
    Gpu,
}

static COMPUTE: RwLock<Option<Device>> = RwLock::new(None);
static DEFAULT_IS_GPU: AtomicBool = AtomicBool::new(false);

/// The device that computes: the CPU executor, unless [`set_compute_device`] chose another one.
pub fn compute_device() -> Device {
    if let Some(device) = &*COMPUTE.read().unwrap_or_else(PoisonError::into_inner) {
        return device.clone();
    }
    let mut device = COMPUTE.write().unwrap_or_else(PoisonError::into_inner);
    device.get_or_insert_with(Device::cpu).clone()
}

/// Chooses the device that computes. Values that were made on another device cannot be combined with new ones, so
/// choose before any value is made. Its kind becomes the default device.
pub fn set_compute_device(device: Device) {
    DEFAULT_IS_GPU.store(!device.is_cpu(), Ordering::Relaxed);
    *COMPUTE.write().unwrap_or_else(PoisonError::into_inner) = Some(device);
}

/// The label of the default device.
pub fn default_device() -> DeviceKind {
    if DEFAULT_IS_GPU.load(Ordering::Relaxed) {
        DeviceKind::Gpu
    } else {
        DeviceKind::Cpu
    }
}

/// Sets the label of the default device. Where values are computed stays.
pub fn set_default_device(kind: DeviceKind) {
    DEFAULT_IS_GPU.store(kind == DeviceKind::Gpu, Ordering::Relaxed);
}
