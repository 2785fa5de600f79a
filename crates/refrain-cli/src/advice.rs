//! What the program's switches can do about an error of the libraries, which know of none.

use refrain_engine::Error as EngineError;
use refrain_vulkan::{Error as VulkanError, MemoryClass};

/// An error, with the switches that may help.
pub(crate) fn told(error: &anyhow::Error) -> String {
    match switches(error) {
        Some(switches) => format!("{error} ({switches})"),
        None => error.to_string(),
    }
}

fn switches(error: &anyhow::Error) -> Option<&'static str> {
    const CONTEXT: &str = "--ctx N sets the context's length";
    const DEVICE: &str = "--device N takes another device";
    const CPU: &str = "--device cpu runs on the CPU, `refrain doctor` tells more";
    if let Some(EngineError::ContextFull { .. }) = error.downcast_ref() {
        return Some(CONTEXT);
    }
    match of_driver(error)? {
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

/// The error of the Vulkan runtime that this one hands on.
fn of_driver(error: &anyhow::Error) -> Option<&VulkanError> {
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
            asked: 2,
            free: 1,
            heap: "heap 0".to_owned(),
            class,
            hint: "use less".to_owned(),
        })
    }

    #[test]
    fn errors_of_the_libraries_are_told_with_the_switches_that_help() {
        let context = EngineError::ContextFull { tokens: 9, context: 8 };
        assert!(told(&context.into()).ends_with("(--ctx N sets the context's length)"));
        assert!(told(&full(MemoryClass::State).into()).ends_with("(--ctx N sets the context's length)"));
        let loading = EngineError::Array(full(MemoryClass::Weight));
        assert!(told(&loading.into()).ends_with("use less (--device N takes another device)"));
        assert!(told(&VulkanError::NoDevice.into()).contains("(--device cpu runs on the CPU"));
    }

    #[test]
    fn what_no_switch_helps_against_is_told_as_it_is() {
        assert_eq!(
            told(&full(MemoryClass::Staging).into()),
            full(MemoryClass::Staging).to_string()
        );
        assert_eq!(
            told(&EngineError::EmptyPrompt.into()),
            EngineError::EmptyPrompt.to_string()
        );
    }
}
