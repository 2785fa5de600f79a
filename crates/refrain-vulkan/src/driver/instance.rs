//! The Vulkan instance: loader, drivers, and messages of the validation layer.

use std::ffi::{CStr, c_void};
use std::sync::{Arc, Mutex};

use ash::{ext, khr, vk};

use super::{LoaderVersion, Options};
use crate::error::Error;

const VALIDATION_LAYER: &CStr = c"VK_LAYER_KHRONOS_validation";

type Messages = Mutex<Vec<String>>;

/// The Vulkan loader and an instance.
pub(super) struct Instance {
    pub entry: ash::Entry,
    pub raw: ash::Instance,
    /// Whether the validation layer instruments shaders.
    pub gpu_assisted: bool,
    messenger: Option<(ext::debug_utils::Instance, vk::DebugUtilsMessengerEXT)>,
    messages: Arc<Messages>,
}

fn driver_error(call: &'static str) -> impl FnOnce(vk::Result) -> Error {
    move |code| Error::Driver {
        call,
        code: format!("{code:?}"),
    }
}

impl Instance {
    pub fn load(options: Options) -> Result<Self, Error> {
        let entry = entry()?;
        check_version(&entry)?;
        // SAFETY: no preconditions.
        let extensions = unsafe { entry.enumerate_instance_extension_properties(None) }
            .map_err(driver_error("vkEnumerateInstanceExtensionProperties"))?;
        let has = |name: &CStr| {
            extensions
                .iter()
                .any(|extension| extension.extension_name_as_c_str() == Ok(name))
        };

        let mut names = Vec::new();
        let mut layers = Vec::new();
        let mut flags = vk::InstanceCreateFlags::empty();
        if has(khr::portability_enumeration::NAME) {
            names.push(khr::portability_enumeration::NAME.as_ptr());
            flags |= vk::InstanceCreateFlags::ENUMERATE_PORTABILITY_KHR;
        }
        if options.validation {
            require_layer(&entry)?;
            layers.push(VALIDATION_LAYER.as_ptr());
            names.push(ext::debug_utils::NAME.as_ptr());
            names.push(ext::validation_features::NAME.as_ptr());
        }
        let messages = Arc::new(Messages::default());
        let mut messenger_info = messenger_info(&messages);
        let mut checks = vec![vk::ValidationFeatureEnableEXT::SYNCHRONIZATION_VALIDATION];
        if options.gpu_assisted {
            checks.push(vk::ValidationFeatureEnableEXT::GPU_ASSISTED);
            checks.push(vk::ValidationFeatureEnableEXT::GPU_ASSISTED_RESERVE_BINDING_SLOT);
        }
        let mut validation = vk::ValidationFeaturesEXT::default().enabled_validation_features(&checks);
        let application = vk::ApplicationInfo::default()
            .application_name(c"refrain")
            .engine_name(c"refrain")
            .api_version(vk::API_VERSION_1_3);
        let mut info = vk::InstanceCreateInfo::default()
            .flags(flags)
            .application_info(&application)
            .enabled_layer_names(&layers)
            .enabled_extension_names(&names);
        if options.validation {
            info = info.push_next(&mut validation).push_next(&mut messenger_info);
        }
        // SAFETY: the structures live until the call returns; layers and extensions exist.
        let raw = unsafe { entry.create_instance(&info, None) };
        let raw = raw.map_err(|code| match code {
            // The loader returns this if no driver is installed.
            vk::Result::ERROR_INCOMPATIBLE_DRIVER => Error::NoDevice,
            code => Error::Driver {
                call: "vkCreateInstance",
                code: format!("{code:?}"),
            },
        })?;
        let mut instance = Self {
            entry,
            raw,
            gpu_assisted: options.validation && options.gpu_assisted,
            messenger: None,
            messages,
        };
        if options.validation {
            let utils = ext::debug_utils::Instance::new(&instance.entry, &instance.raw);
            // The info above is part of the chain; this call needs its own.
            let info = self::messenger_info(&instance.messages);
            // SAFETY: the messages live as long as the instance.
            let messenger = unsafe { utils.create_debug_utils_messenger(&info, None) }
                .map_err(driver_error("vkCreateDebugUtilsMessengerEXT"))?;
            instance.messenger = Some((utils, messenger));
        }
        Ok(instance)
    }

    /// Returns the messages of the validation layer so far.
    pub fn messages(&self) -> Vec<String> {
        self.messages
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
            .clone()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: devices hold a reference to the instance, so all are dropped. Each object is destroyed once.
        unsafe {
            if let Some((utils, messenger)) = self.messenger.take() {
                utils.destroy_debug_utils_messenger(messenger, None);
            }
            self.raw.destroy_instance(None);
        }
    }
}

/// Loads the entry points of the loader.
pub(super) fn entry() -> Result<ash::Entry, Error> {
    // SAFETY: the library is the system's Vulkan loader.
    unsafe { ash::Entry::load() }.map_err(|error| Error::NoLoader {
        reason: error.to_string(),
    })
}

/// Returns the newest version that the loader supports.
pub(super) fn version(entry: &ash::Entry) -> Result<LoaderVersion, Error> {
    // SAFETY: no preconditions.
    let version = unsafe { entry.try_enumerate_instance_version() }
        .map_err(driver_error("vkEnumerateInstanceVersion"))?
        .unwrap_or(vk::API_VERSION_1_0);
    Ok(LoaderVersion {
        major: vk::api_version_major(version),
        minor: vk::api_version_minor(version),
        patch: vk::api_version_patch(version),
    })
}

fn check_version(entry: &ash::Entry) -> Result<(), Error> {
    let LoaderVersion { major, minor, .. } = version(entry)?;
    if (major, minor) < (1, 3) {
        Err(Error::OldLoader {
            found: format!("{major}.{minor}"),
        })
    } else {
        Ok(())
    }
}

fn require_layer(entry: &ash::Entry) -> Result<(), Error> {
    // SAFETY: no preconditions.
    let layers = unsafe { entry.enumerate_instance_layer_properties() }
        .map_err(driver_error("vkEnumerateInstanceLayerProperties"))?;
    let is_validation = |layer: &vk::LayerProperties| layer.layer_name_as_c_str() == Ok(VALIDATION_LAYER);
    if layers.iter().any(is_validation) {
        Ok(())
    } else {
        Err(Error::NoValidationLayer)
    }
}

fn messenger_info(messages: &Arc<Messages>) -> vk::DebugUtilsMessengerCreateInfoEXT<'static> {
    use vk::{DebugUtilsMessageSeverityFlagsEXT as Severity, DebugUtilsMessageTypeFlagsEXT as Type};
    vk::DebugUtilsMessengerCreateInfoEXT::default()
        .message_severity(Severity::WARNING | Severity::ERROR)
        .message_type(Type::VALIDATION)
        .pfn_user_callback(Some(on_message))
        .user_data(Arc::as_ptr(messages).cast_mut().cast())
}

unsafe extern "system" fn on_message(
    _severity: vk::DebugUtilsMessageSeverityFlagsEXT,
    _kind: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    messages: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: the layer passes valid data and the pointer registered with the messenger.
    let (text, messages) = unsafe {
        let text = (*data).message_as_c_str().unwrap_or(c"(no text)").to_string_lossy();
        (text, &*messages.cast::<Messages>())
    };
    messages
        .lock()
        .unwrap_or_else(|broken| broken.into_inner())
        .push(text.into_owned());
    vk::FALSE
}
