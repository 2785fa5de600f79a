//! Errors of the runtime, written for the user.

use std::time::Duration;

use crate::class::MemoryClass;

/// Any error of the runtime. The message says what is wrong and what to do.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// No Vulkan loader library could be opened.
    #[error(
        "no Vulkan loader found ({reason}); install it (Debian: apt install libvulkan1, and a driver such as mesa-vulkan-drivers)"
    )]
    NoLoader {
        /// Message of the dynamic linker.
        reason: String,
    },
    /// The loader is older than Vulkan 1.3.
    #[error(
        "the Vulkan loader supports only version {found}; version 1.3 or newer is needed, update it (Debian: libvulkan1)"
    )]
    OldLoader {
        /// The version found, such as `1.2`.
        found: String,
    },
    /// Validation was requested, but its layer is not installed.
    #[error("the Vulkan validation layer is not installed (Debian: apt install vulkan-validationlayers)")]
    NoValidationLayer,
    /// No driver provides a device.
    #[error("no working Vulkan driver found; install one (Debian: apt install mesa-vulkan-drivers)")]
    NoDevice,
    /// No device is usable.
    #[error("no usable Vulkan device: {reasons}; update the driver")]
    NoUsableDevice {
        /// Each device with the reason why it is unusable.
        reasons: String,
    },
    /// The requested device does not exist.
    #[error("no device matches {requested:?}; available devices: {known}, cpu")]
    UnknownDevice {
        /// The device that the user requested.
        requested: String,
        /// The available devices.
        known: String,
    },
    /// The requested device lacks something that the runtime needs.
    #[error("device {name} cannot be used: it lacks {reason}; update its driver or choose another device")]
    UnusableDevice {
        /// The device's name.
        name: String,
        /// What it lacks.
        reason: String,
    },
    /// No memory of the required kind is left.
    #[error("out of memory: cannot allocate {requested_text} of {class} memory, {free_text} free in {heap}; {hint}",
        requested_text = human_bytes(*requested), free_text = human_bytes(*free))]
    OutOfMemory {
        /// Bytes requested.
        requested: u64,
        /// Bytes free in the heap, as reported by the driver.
        free: u64,
        /// Description of the heap.
        heap: String,
        /// Memory class of the allocation.
        class: MemoryClass,
        /// Suggestion for the user.
        hint: String,
    },
    /// The buffer exceeds the maximum size that the driver allows.
    #[error("a tensor of {} exceeds the maximum buffer size of this driver ({}); use a more strongly quantised checkpoint, a smaller context, or another device", human_bytes(*requested), human_bytes(*limit))]
    BufferTooLarge {
        /// Bytes requested.
        requested: u64,
        /// The limit of the driver in bytes.
        limit: u64,
    },
    /// A byte range is not within its buffer.
    #[error("byte range {offset}..{} is outside a buffer of {size} bytes", offset.saturating_add(*bytes))]
    OutOfRange {
        /// First byte of the range.
        offset: u64,
        /// Length of the range.
        bytes: u64,
        /// Size of the buffer.
        size: u64,
    },
    /// Host access to memory that is not host-visible.
    #[error("{class} memory is not host-visible; upload to it instead")]
    NotHostVisible {
        /// The class of the buffer.
        class: MemoryClass,
    },
    /// A shader does not compile.
    #[error("shader {kernel} does not compile:\n{log}")]
    Shader {
        /// The kernel's name.
        kernel: String,
        /// Log of the compiler.
        log: String,
    },
    /// A kernel or command exceeds a limit of the device.
    #[error("{message}")]
    Limit {
        /// What exceeds which limit.
        message: String,
    },
    /// The device was lost, for example by a driver reset.
    #[error(
        "the device was lost while running {during}; the usual cause is a driver reset or a submission that took too long; see the system log"
    )]
    DeviceLost {
        /// Command lists in flight, with their regions.
        during: String,
    },
    /// The device completed no work for a long time.
    #[error(
        "the device has completed no work for {} s while running {during}; it hangs or is far too slow for this model: close other programs that use it, update its driver, or choose another device",
        stall_timeout.as_secs_f32()
    )]
    Stalled {
        /// Command lists in flight, with their regions.
        during: String,
        /// How long the device went without completing a list.
        stall_timeout: Duration,
    },
    /// A wait for a submission that was never made on this device.
    #[error("submission {value} was never made on this device; its last submission is {last}")]
    NeverSubmitted {
        /// Number of the submission.
        value: u64,
        /// Number of the last submission.
        last: u64,
    },
    /// A host write to memory that the device may still be using.
    #[error("{buffer} cannot be written by the host while a submission uses it; wait for that submission first")]
    InUse {
        /// Description of the buffer.
        buffer: String,
    },
    /// A Vulkan call failed unexpectedly.
    #[error("the driver failed in {call}: {code}")]
    Driver {
        /// Name of the call.
        call: &'static str,
        /// The result code.
        code: String,
    },
}

impl Error {
    /// Whether device or host memory ran out.
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Error::OutOfMemory { .. } | Error::BufferTooLarge { .. } => true,
            Error::Driver { code, .. } => ["OUT_OF_HOST_MEMORY", "OUT_OF_DEVICE_MEMORY", "out of memory"]
                .iter()
                .any(|known| code.contains(known)),
            _ => false,
        }
    }
}

/// Formats a size in bytes: `512 B`, `1.5 KiB`, `3.2 GiB`.
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{bytes} B")
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detects_out_of_memory_codes() {
        let driver = |code: &str| Error::Driver {
            call: "vkQueueSubmit2",
            code: code.to_owned(),
        };
        assert!(driver("ERROR_OUT_OF_HOST_MEMORY").is_out_of_memory());
        assert!(driver("ERROR_OUT_OF_DEVICE_MEMORY").is_out_of_memory());
        assert!(crate::backend::Failure::OutOfMemory.into_error().is_out_of_memory());
        assert!(!driver("ERROR_UNKNOWN").is_out_of_memory());
    }

    #[test]
    fn formats_bytes_with_binary_units() {
        assert_eq!(human_bytes(0), "0 B");
        assert_eq!(human_bytes(1023), "1023 B");
        assert_eq!(human_bytes(1536), "1.5 KiB");
        assert_eq!(human_bytes(3 << 30), "3.0 GiB");
    }

    #[test]
    fn out_of_memory_names_the_amounts_and_a_remedy() {
        let text = Error::OutOfMemory {
            requested: 9 << 30,
            free: 8 << 30,
            heap: "heap 0 (device-local, 8.0 GiB)".into(),
            class: MemoryClass::Weight,
            hint: "use a smaller model".into(),
        }
        .to_string();
        for part in ["9.0 GiB", "weight", "8.0 GiB free", "heap 0", "use a smaller model"] {
            assert!(text.contains(part), "{part:?} is missing in {text:?}");
        }
    }
}
