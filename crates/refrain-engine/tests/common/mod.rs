//! What the tests of this crate share.

use refrain_engine::Device;
use refrain_vulkan::{Choice, OpenOptions, Options, Vulkan};

/// A Vulkan device under core and synchronization validation, with `REFRAIN_GPU_ASSISTED` set also
/// checking accesses through addresses. `REFRAIN_NO_VALIDATION` is for machines without the layer.
pub struct Gpu {
    pub device: Device,
    vulkan: Vulkan,
}

impl Gpu {
    /// The first Vulkan device; a software one will do (Debian: apt install mesa-vulkan-drivers).
    pub fn open() -> Gpu {
        let options = Options {
            validation: std::env::var_os("REFRAIN_NO_VALIDATION").is_none(),
            gpu_assisted: std::env::var_os("REFRAIN_GPU_ASSISTED").is_some(),
        };
        let vulkan = Vulkan::load(options).expect("the tests need a Vulkan driver and the validation layers");
        let index = vulkan.choose(&Choice::Auto).expect("a usable device");
        let device = vulkan.open(index, &OpenOptions::default()).expect("opens");
        Gpu { device: Device::vulkan(device), vulkan }
    }

    /// Fails if the validation layers said anything.
    pub fn assert_silent(&self) {
        assert_eq!(self.vulkan.validation_messages(), Vec::<String>::new());
    }
}
