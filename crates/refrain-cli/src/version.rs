//! The output of `refrain --version`.

use refrain_vulkan::{GLSL_COMPILER, Vulkan};

use crate::device::ProbedDevices;

/// The version alone, for `-V`.
pub(crate) const SHORT: &str = env!("CARGO_PKG_VERSION");

/// The Git commit of the build; empty if the sources came without a repository.
pub(crate) const COMMIT: &str = env!("REFRAIN_COMMIT");

/// The version, build information, and the Vulkan devices found. Loads Vulkan.
pub(crate) fn long() -> String {
    let mut lines = vec![SHORT.to_owned()];
    let mut line = |name: &str, value: &str| lines.push(format!("{name:<9} {value}"));
    if !COMMIT.is_empty() {
        line("commit", COMMIT);
    }
    line("target", concat!(env!("REFRAIN_TARGET"), ", ", env!("REFRAIN_PROFILE")));
    line("compiler", env!("REFRAIN_RUSTC"));
    line("shaders", GLSL_COMPILER);
    match Vulkan::loader_version() {
        Ok(version) => line("Vulkan", &format!("loader {version}")),
        Err(_) => line("Vulkan", "no loader"),
    }
    for device in ProbedDevices::new().devices() {
        let driver = format!("{} {}", device.driver_name, device.driver_info);
        line("device", &format!("{}, driver {driver}", device.name));
    }
    lines.join("\n")
}
