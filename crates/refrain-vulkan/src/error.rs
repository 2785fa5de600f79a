//! What can go wrong, in the user's language.

use std::time::Duration;

use crate::class::MemoryClass;

/// Any failure of the runtime. The text says what is wrong and what to do.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// No Vulkan loader library could be opened.
    #[error(
        "no Vulkan loader found ({reason}); install it (Debian: apt install libvulkan1, and a driver such as mesa-vulkan-drivers), or run on the CPU"
    )]
    NoLoader {
        /// What the dynamic linker said.
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
    /// Validation was asked for, but its layer is not installed.
    #[error("the Vulkan validation layer is not installed (Debian: apt install vulkan-validationlayers)")]
    NoValidationLayer,
    /// No driver offers any device.
    #[error(
        "no Vulkan driver found that works; install one (Debian: apt install mesa-vulkan-drivers), or run on the CPU"
    )]
    NoDevice,
    /// No device could be used.
    #[error("no usable Vulkan device: {reasons}; update the driver, or run on the CPU")]
    NoUsableDevice {
        /// Each device with the reason for which it cannot be used.
        reasons: String,
    },
    /// The user's choice names nothing that exists.
    #[error("no device matches {asked:?}; there are: {known}, and cpu")]
    UnknownDevice {
        /// What the user gave.
        asked: String,
        /// The devices there are.
        known: String,
    },
    /// The user chose a device that lacks something the runtime needs.
    #[error("device {name} cannot be used: {reason}; update its driver or choose another device")]
    UnusableDevice {
        /// The device's name.
        name: String,
        /// What it lacks.
        reason: String,
    },
    /// Memory of the wanted kind is used up.
    #[error("out of memory: {asked_text} more of {class} memory asked, {free_text} free in {heap}; {hint}",
        asked_text = human_bytes(*asked), free_text = human_bytes(*free))]
    OutOfMemory {
        /// Bytes asked for.
        asked: u64,
        /// Bytes still free in the heap, as far as the driver tells.
        free: u64,
        /// The heap in words.
        heap: String,
        /// What the memory was for.
        class: MemoryClass,
        /// What to try.
        hint: String,
    },
    /// One buffer would be larger than the driver allows.
    #[error("a single tensor of {} is more than this driver allows in one buffer ({}); take a more strongly quantised checkpoint, a smaller context, or another device", human_bytes(*asked), human_bytes(*limit))]
    BufferTooLarge {
        /// Bytes asked for.
        asked: u64,
        /// The driver's limit in bytes.
        limit: u64,
    },
    /// A byte range does not lie within its buffer.
    #[error("bytes {offset}..{} lie outside a buffer of {size} bytes", offset.saturating_add(*bytes))]
    OutOfRange {
        /// First byte of the range.
        offset: u64,
        /// Length of the range.
        bytes: u64,
        /// Size of the buffer.
        size: u64,
    },
    /// Host access was asked of memory that the host does not see.
    #[error("{class} memory cannot be written by the host; upload to it instead")]
    NotHostVisible {
        /// The class of the buffer.
        class: MemoryClass,
    },
    /// A shader's text does not compile.
    #[error("shader {kernel} does not compile:\n{log}")]
    Shader {
        /// The kernel's name.
        kernel: String,
        /// The compiler's message.
        log: String,
    },
    /// A command cannot be recorded, because it exceeds a limit of the device.
    #[error("{what}")]
    Limit {
        /// What exceeds which limit.
        what: String,
    },
    /// The device stopped answering or was reset.
    #[error(
        "the device was lost while running {during}; a driver reset or too long a submit is the usual cause, the system log may say more"
    )]
    DeviceLost {
        /// The command lists in flight and their regions.
        during: String,
    },
    /// The device ended nothing for a long time.
    #[error(
        "the device has ended no work for {} s while running {during}; it hangs, or is far too slow for this model: end other programs that use it, update its driver, or choose another device",
        patience.as_secs_f32()
    )]
    Stalled {
        /// The command lists in flight and their regions.
        during: String,
        /// How long it was waited for.
        patience: Duration,
    },
    /// Something was to be waited for that this device was never given.
    #[error("submission {value} was never made on this device, whose last is {last}")]
    NeverSubmitted {
        /// The submission's number.
        value: u64,
        /// The number of the last one that was made.
        last: u64,
    },
    /// Memory was to be written by the host while the device may still be using it.
    #[error("{buffer} cannot be written by the host while a submission uses it; wait for that submission first")]
    InUse {
        /// The buffer in words.
        buffer: String,
    },
    /// A call of the driver failed in an unexpected way.
    #[error("the driver failed in {call}: {code}")]
    Driver {
        /// The Vulkan call.
        call: &'static str,
        /// The result code.
        code: String,
    },
}

impl Error {
    /// Whether memory ran out, of the device or the host.
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

/// Bytes as people write them: `512 B`, `1.5 KiB`, `3.2 GiB`.
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
    fn calls_that_find_no_memory_are_told_from_others() {
        let driver = |code: &str| Error::Driver {
            call: "vkQueueSubmit2",
            code: code.to_owned(),
        };
        assert!(driver("ERROR_OUT_OF_HOST_MEMORY").is_out_of_memory());
        assert!(driver("ERROR_OUT_OF_DEVICE_MEMORY").is_out_of_memory());
        assert!(crate::backend::Failure::OutOfMemory.plain().is_out_of_memory());
        assert!(!driver("ERROR_UNKNOWN").is_out_of_memory());
    }

    #[test]
    fn bytes_are_written_with_a_binary_unit() {
        assert_eq!(human_bytes(0), "0 B");
        assert_eq!(human_bytes(1023), "1023 B");
        assert_eq!(human_bytes(1536), "1.5 KiB");
        assert_eq!(human_bytes(3 << 30), "3.0 GiB");
    }

    #[test]
    fn out_of_memory_names_the_amounts_and_a_remedy() {
        let text = Error::OutOfMemory {
            asked: 9 << 30,
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
