//! What the tests of this crate share.

use refrain_engine::Device;
use refrain_vulkan::{Choice, OpenOptions, Options, Vulkan};

/// The first Vulkan device; a software one will do (Debian: apt install mesa-vulkan-drivers).
pub fn vulkan() -> Device {
    let vulkan = Vulkan::load(Options::default()).expect("the tests need a Vulkan driver");
    let index = vulkan.choose(&Choice::Auto).expect("a usable device");
    Device::vulkan(vulkan.open(index, &OpenOptions::default()).expect("opens"))
}
