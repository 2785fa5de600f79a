//! Structures of Vulkan headers that are newer than the bindings. Their layouts follow the Vulkan registry. Remove each
//! once the bindings have it.

use std::ffi::{CStr, c_void};

use ash::vk;

/// Component type of `VK_KHR_shader_bfloat16`.
pub const COMPONENT_BFLOAT16: vk::ComponentTypeKHR = vk::ComponentTypeKHR::from_raw(1_000_141_000);

macro_rules! feature_structure {
    ($(#[$doc:meta])* $name:ident, $type:literal, $extension_const:ident = $extension:literal,
     { $($field:ident),* }) => {
        $(#[$doc])*
        #[repr(C)]
        pub struct $name {
            s_type: vk::StructureType,
            p_next: *mut c_void,
            $(pub $field: vk::Bool32,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    s_type: vk::StructureType::from_raw($type),
                    p_next: std::ptr::null_mut(),
                    $($field: vk::FALSE,)*
                }
            }
        }

        // SAFETY: the registry lists the structure as an extension of both. It begins with its type and the next
        // pointer.
        unsafe impl vk::ExtendsPhysicalDeviceFeatures2 for $name {}
        // SAFETY: as above.
        unsafe impl vk::ExtendsDeviceCreateInfo for $name {}

        /// Name of the extension that defines the structure.
        pub const $extension_const: &CStr = $extension;
    };
}

feature_structure! {
    /// `VkPhysicalDeviceShaderBfloat16FeaturesKHR`.
    BFloat16Features, 1_000_141_000, BFLOAT16_EXTENSION = c"VK_KHR_shader_bfloat16",
    { kind, dot_product, cooperative_matrix }
}

feature_structure! {
    /// `VkPhysicalDeviceCooperativeMatrix2FeaturesNV`.
    CooperativeMatrix2Features, 1_000_593_000,
    COOPERATIVE_MATRIX2_EXTENSION = c"VK_NV_cooperative_matrix2",
    {
        workgroup_scope, flexible_dimensions, reductions, conversions, per_element_operations,
        tensor_addressing, block_loads
    }
}
