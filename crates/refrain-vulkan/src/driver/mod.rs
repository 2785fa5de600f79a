//! What lies below the seam on a real driver, and the way in: loading, choosing, opening.

mod compile;
mod features;
mod gpu;
mod instance;
mod newer;
mod probe;
mod record;
mod statistics;
mod submit;

use std::sync::Arc;

use crate::Compiler;
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

/// The newest version of Vulkan that a loader supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LoaderVersion {
    /// Such as 1.
    pub major: u32,
    /// Such as 3.
    pub minor: u32,
    /// Such as 239: the version of the headers that it was built with.
    pub patch: u32,
}

impl std::fmt::Display for LoaderVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// The Vulkan loader and the devices that its drivers offer.
pub struct Vulkan {
    probed: Vec<probe::Probed>,
    devices: Vec<DeviceInfo>,
    instance: Arc<instance::Instance>,
}

impl std::fmt::Debug for Vulkan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.devices.iter().map(|device| &device.name))
            .finish()
    }
}

impl Vulkan {
    /// Loads Vulkan and probes every device.
    ///
    /// # Errors
    /// If there is no loader or no driver, or validation was asked for and its layer is not
    /// installed. Drivers without any device are no error here: the list is empty.
    pub fn load(options: Options) -> Result<Self, Error> {
        let instance = Arc::new(instance::Instance::load(options)?);
        let probed = probe::devices(&instance)?;
        let devices = probed.iter().map(|device| device.info.clone()).collect();
        Ok(Self {
            probed,
            devices,
            instance,
        })
    }

    /// The version of the Vulkan loader that is installed.
    ///
    /// # Errors
    /// If there is none, or it fails.
    pub fn loader_version() -> Result<LoaderVersion, Error> {
        instance::version(&instance::entry()?)
    }

    /// Every device, usable or not, in the loader's order.
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
    /// If there is none at that index, it cannot be used, or its driver fails.
    pub fn open(&self, index: usize, options: &OpenOptions) -> Result<Arc<Device>, Error> {
        let index = self.choose(&Choice::Index(index))?;
        let probed = &self.probed[index];
        let gpu = gpu::Gpu::open(self.instance.clone(), probed, options)?;
        let features = gpu.features;
        Device::new(Arc::new(gpu), probed.info.clone(), features, options.clone())
    }

    /// Opens a device's compiler alone, which needs none of its memory.
    ///
    /// # Errors
    /// As [`Vulkan::open`].
    pub fn compiler(&self, index: usize, options: &OpenOptions) -> Result<Compiler, Error> {
        let mut devices = self.devices.clone();
        for device in &mut devices {
            device.missing.retain(|what| what != probe::NO_MEMORY);
        }
        let index = choose(&devices, &Choice::Index(index))?;
        let probed = &self.probed[index];
        let gpu = gpu::Gpu::open_compiler(self.instance.clone(), probed, options)?;
        let features = gpu.features;
        Ok(Compiler::new(Arc::new(gpu), probed.info.clone(), features, options))
    }

    /// What the validation layer said so far; empty without [`Options::validation`].
    pub fn validation_messages(&self) -> Vec<String> {
        self.instance.messages()
    }
}
