//! Conversion of Vulkan result codes to failures.

use ash::vk;

use crate::backend::Failure;

/// Converts the result code of a failed call.
pub(super) fn failed(call: &'static str) -> impl Fn(vk::Result) -> Failure {
    move |code| match code {
        vk::Result::ERROR_DEVICE_LOST => Failure::Lost,
        code => Failure::Call(call, format!("{code:?}")),
    }
}

/// As [`failed`], for calls that allocate memory for buffers.
pub(super) fn failed_allocation(call: &'static str) -> impl Fn(vk::Result) -> Failure {
    move |code| match code {
        vk::Result::ERROR_OUT_OF_DEVICE_MEMORY | vk::Result::ERROR_OUT_OF_HOST_MEMORY => Failure::OutOfMemory,
        code => failed(call)(code),
    }
}
