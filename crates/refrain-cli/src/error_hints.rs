//! Adds hints about command-line options to library errors, which know nothing of the options.

use refrain_engine::Error as EngineError;
use refrain_vulkan::{Error as VulkanError, MemoryClass};

/// Formats an error, followed by options that may help.
pub(crate) fn with_hints(error: &anyhow::Error) -> String {
    match hint(error) {
        Some(hint) => format!("{error} ({hint})"),
        None => error.to_string(),
    }
}

fn hint(error: &anyhow::Error) -> Option<&'static str> {
    const CONTEXT: &str = "set the context length with --ctx N";
    const DEVICE: &str = "select another device with --device N";
    const CPU: &str = "run on the CPU with --device cpu; `refrain doctor` shows details";
    if let Some(EngineError::ContextFull { .. }) = error.downcast_ref() {
        return Some(CONTEXT);
    }
    match vulkan_error(error)? {
        VulkanError::OutOfMemory {
            class: MemoryClass::State | MemoryClass::Scratch,
            ..
        } => Some(CONTEXT),
        VulkanError::OutOfMemory {
            class: MemoryClass::Weight,
            ..
        }
        | VulkanError::UnusableDevice { .. }
        | VulkanError::Stalled { .. } => Some(DEVICE),
        VulkanError::NoLoader { .. } | VulkanError::NoDevice | VulkanError::NoUsableDevice { .. } => Some(CPU),
        _ => None,
    }
}

/// Returns the Vulkan error inside this error, if there is one.
fn vulkan_error(error: &anyhow::Error) -> Option<&VulkanError> {
    if let Some(error) = error.downcast_ref() {
        return Some(error);
    }
    let array = error.downcast_ref::<EngineError>().and_then(EngineError::array);
    match array.or_else(|| error.downcast_ref())? {
        refrain::Error::Vulkan(error) => Some(error),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(class: MemoryClass) -> refrain::Error {
        refrain::Error::from(VulkanError::OutOfMemory {
            requested: 2,
            free: 1,
            heap: "heap 0".to_owned(),
            class,
            hint: "use less".to_owned(),
        })
    }

    #[test]
    fn adds_options_that_help_to_library_errors() {
        let context = EngineError::ContextFull { tokens: 9, context: 8 };
        assert!(with_hints(&context.into()).ends_with("(set the context length with --ctx N)"));
        assert!(with_hints(&full(MemoryClass::State).into()).ends_with("(set the context length with --ctx N)"));
        let loading = EngineError::Array(full(MemoryClass::Weight));
        assert!(with_hints(&loading.into()).ends_with("use less (select another device with --device N)"));
        assert!(with_hints(&VulkanError::NoDevice.into()).contains("(run on the CPU with --device cpu"));
    }

    #[test]
    fn leaves_other_errors_unchanged() {
        assert_eq!(
            with_hints(&full(MemoryClass::Staging).into()),
            full(MemoryClass::Staging).to_string()
        );
        assert_eq!(
            with_hints(&EngineError::EmptyPrompt.into()),
            EngineError::EmptyPrompt.to_string()
        );
    }
}
