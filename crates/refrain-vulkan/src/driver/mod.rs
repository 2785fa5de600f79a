//! The backend of real drivers, and [`Vulkan`]: loading, selecting and opening devices.

mod compile;
mod execute;
mod failure;
mod features;
mod gpu;
mod instance;
mod newer_headers;
mod polling;
mod probe;
mod record;
mod statistics;
mod submit;

use std::sync::Arc;

use crate::Compiler;
use crate::choice::{DeviceChoice, choose};
use crate::device::Device;
use crate::error::Error;
use crate::info::DeviceInfo;
use crate::options::OpenOptions;

/// Options of [`Vulkan::load`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether to enable the Khronos validation layer with synchronization validation.
    pub validation: bool,
    /// Whether to instrument shaders too, which finds out-of-bounds accesses. Needs `validation`. Slow.
    pub gpu_assisted: bool,
}

/// The newest version of Vulkan that a loader supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LoaderVersion {
    /// Such as 1.
    pub major: u32,
    /// Such as 3.
    pub minor: u32,
    /// Such as 239: the version of the headers it was built with.
    pub patch: u32,
}

impl std::fmt::Display for LoaderVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// The Vulkan loader and the devices of its drivers.
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
    /// Fails if there is no loader or no driver, or the requested validation layer is not installed. Drivers without a
    /// device are no error: the list is empty.
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

    /// Returns the version of the installed Vulkan loader.
    ///
    /// # Errors
    /// Fails if there is no loader or its call fails.
    pub fn loader_version() -> Result<LoaderVersion, Error> {
        instance::version(&instance::entry()?)
    }

    /// All devices, usable or not, in the order of the loader.
    pub fn devices(&self) -> &[DeviceInfo] {
        &self.devices
    }

    /// Returns the index of the device that `choice` selects.
    ///
    /// # Errors
    /// Fails if no device matches or the matching one is unusable.
    pub fn choose(&self, choice: &DeviceChoice) -> Result<usize, Error> {
        choose(&self.devices, choice)
    }

    /// Opens a device.
    ///
    /// # Errors
    /// Fails if there is no device at that index, it is unusable, or its driver fails.
    pub fn open(&self, index: usize, options: &OpenOptions) -> Result<Arc<Device>, Error> {
        let index = self.choose(&DeviceChoice::Index(index))?;
        let probed = &self.probed[index];
        let gpu = gpu::Gpu::open(self.instance.clone(), probed, options)?;
        let features = gpu.features;
        Device::new(Arc::new(gpu), probed.info.clone(), features, options.clone())
    }

    /// Opens only the shader compiler of a device, which needs no device memory.
    ///
    /// # Errors
    /// As [`Vulkan::open`].
    pub fn compiler(&self, index: usize, options: &OpenOptions) -> Result<Compiler, Error> {
        let mut devices = self.devices.clone();
        for device in &mut devices {
            device.missing.retain(|what| what != probe::COMPILER_ONLY);
        }
        let index = choose(&devices, &DeviceChoice::Index(index))?;
        let probed = &self.probed[index];
        let gpu = gpu::Gpu::open_compiler(self.instance.clone(), probed, options)?;
        let features = gpu.features;
        Ok(Compiler::new(Arc::new(gpu), probed.info.clone(), features, options))
    }

    /// Returns the messages of the validation layer so far; empty without [`Options::validation`].
    pub fn validation_messages(&self) -> Vec<String> {
        self.instance.messages()
    }
}
