//! The executors of each device.

use super::eager::Eager;
use super::executor::Executor;
use super::reference::Reference;
use super::replay::Replay;
use crate::Device;
use crate::device::Backend;

static ON_CPU: &[&dyn Executor] = &[&Reference];
/// Replay is the default because it wins on most devices.
static ON_VULKAN: &[&dyn Executor] = &[&Replay, &Eager];

impl Device {
    /// The executors that run tapes on this device, the default first.
    pub fn executors(&self) -> &'static [&'static dyn Executor] {
        match self.backend() {
            Backend::Cpu => ON_CPU,
            Backend::Vulkan { .. } => ON_VULKAN,
        }
    }

    /// The executor with this name, if it supports this device.
    pub fn executor(&self, name: &str) -> Option<&'static dyn Executor> {
        self.executors()
            .iter()
            .find(|executor| executor.name() == name)
            .copied()
    }

    /// The executor for array evaluation and function calls, whose programs run once.
    pub fn evaluator(&self) -> &'static dyn Executor {
        match self.backend() {
            Backend::Cpu => &Reference,
            Backend::Vulkan { .. } => &Eager,
        }
    }
}
