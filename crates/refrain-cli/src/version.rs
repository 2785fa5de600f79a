//! What `refrain --version` tells.

use refrain_vulkan::{GLSL_COMPILER, Vulkan};

use crate::device::ProbedDevices;

/// The version alone, for `-V`.
pub(crate) const SHORT: &str = env!("CARGO_PKG_VERSION");

/// The commit that was built; empty where sources came without their history.
pub(crate) const COMMIT: &str = env!("REFRAIN_COMMIT");

/// The version with what was built, by what, and what it finds here. Loads Vulkan.
pub(crate) fn long() -> String {
    let mut lines = vec![SHORT.to_owned()];
    let mut line = |name: &str, value: &str| lines.push(format!("{name:<9} {value}"));
    match COMMIT {
        "" => {}
        commit => line("commit", commit),
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
