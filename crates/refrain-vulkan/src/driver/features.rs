//! The structures by which Vulkan reports the features of a device and enables them.

use std::collections::HashSet;
use std::ffi::{CStr, CString};

use ash::{khr, vk};

use super::newer_headers::{
    BFLOAT16_EXTENSION, BFloat16Features, COOPERATIVE_MATRIX2_EXTENSION, CooperativeMatrix2Features,
};
use crate::feature::{Feature, FeatureSet};

/// The extensions of a device.
pub(super) struct Extensions(HashSet<CString>);

impl Extensions {
    pub fn new(properties: &[vk::ExtensionProperties]) -> Self {
        let name = |property: &vk::ExtensionProperties| property.extension_name_as_c_str().ok().map(CStr::to_owned);
        Self(properties.iter().filter_map(name).collect())
    }

    pub fn has(&self, name: &CStr) -> bool {
        self.0.contains(name)
    }
}

/// All feature structures that the runtime uses.
#[derive(Default)]
pub(super) struct Structures {
    pub core: vk::PhysicalDeviceFeatures,
    pub v11: vk::PhysicalDeviceVulkan11Features<'static>,
    pub v12: vk::PhysicalDeviceVulkan12Features<'static>,
    pub v13: vk::PhysicalDeviceVulkan13Features<'static>,
    rotate: vk::PhysicalDeviceShaderSubgroupRotateFeaturesKHR<'static>,
    uniform_flow: vk::PhysicalDeviceShaderSubgroupUniformControlFlowFeaturesKHR<'static>,
    matrix: vk::PhysicalDeviceCooperativeMatrixFeaturesKHR<'static>,
    matrix2: CooperativeMatrix2Features,
    bfloat16: BFloat16Features,
    pub statistics: vk::PhysicalDevicePipelineExecutablePropertiesFeaturesKHR<'static>,
}

impl Structures {
    /// Chains the core structures and those whose extension is `wanted`, and passes the head of the chain to `call`.
    pub fn chained<R>(
        &mut self,
        wanted: &dyn Fn(&CStr) -> bool,
        call: impl FnOnce(&mut vk::PhysicalDeviceFeatures2<'_>) -> R,
    ) -> R {
        let mut head = vk::PhysicalDeviceFeatures2::default()
            .features(self.core)
            .push_next(&mut self.v11)
            .push_next(&mut self.v12)
            .push_next(&mut self.v13);
        if wanted(khr::shader_subgroup_rotate::NAME) {
            head = head.push_next(&mut self.rotate);
        }
        if wanted(khr::shader_subgroup_uniform_control_flow::NAME) {
            head = head.push_next(&mut self.uniform_flow);
        }
        if wanted(khr::cooperative_matrix::NAME) {
            head = head.push_next(&mut self.matrix);
        }
        if wanted(COOPERATIVE_MATRIX2_EXTENSION) {
            head = head.push_next(&mut self.matrix2);
        }
        if wanted(BFLOAT16_EXTENSION) {
            head = head.push_next(&mut self.bfloat16);
        }
        if wanted(khr::pipeline_executable_properties::NAME) {
            head = head.push_next(&mut self.statistics);
        }
        let result = call(&mut head);
        self.core = head.features;
        result
    }

    /// Returns the required features that are missing.
    pub fn missing(&self) -> Vec<String> {
        let required = [
            ("bufferDeviceAddress", self.v12.buffer_device_address),
            ("timelineSemaphore", self.v12.timeline_semaphore),
            ("scalarBlockLayout", self.v12.scalar_block_layout),
            ("synchronization2", self.v13.synchronization2),
            ("maintenance4", self.v13.maintenance4),
        ];
        let absent = required.into_iter().filter(|(_, present)| *present == vk::FALSE);
        absent.map(|(name, _)| format!("the feature {name}")).collect()
    }

    /// Returns the optional features that these structures report.
    pub fn optional(&self) -> FeatureSet {
        let present = |value: vk::Bool32| value == vk::TRUE;
        let memory_model = present(self.v12.vulkan_memory_model) && present(self.v12.vulkan_memory_model_device_scope);
        let matrix2 = [
            self.matrix2.workgroup_scope,
            self.matrix2.flexible_dimensions,
            self.matrix2.reductions,
            self.matrix2.conversions,
            self.matrix2.per_element_operations,
            self.matrix2.tensor_addressing,
            self.matrix2.block_loads,
        ];
        let all = [
            (Feature::Float16, present(self.v12.shader_float16)),
            (Feature::BFloat16, present(self.bfloat16.kind)),
            (Feature::BFloat16Dot, present(self.bfloat16.dot_product)),
            (Feature::BFloat16Matrix, present(self.bfloat16.cooperative_matrix)),
            (Feature::Int8, present(self.v12.shader_int8)),
            (Feature::Int16, present(self.core.shader_int16)),
            (Feature::Int64, present(self.core.shader_int64)),
            (Feature::Storage8, present(self.v12.storage_buffer8_bit_access)),
            (Feature::Storage16, present(self.v11.storage_buffer16_bit_access)),
            (Feature::IntegerDot, present(self.v13.shader_integer_dot_product)),
            (Feature::SubgroupRotate, present(self.rotate.shader_subgroup_rotate)),
            (Feature::SubgroupSizeControl, present(self.v13.subgroup_size_control)),
            (Feature::FullSubgroups, present(self.v13.compute_full_subgroups)),
            (
                Feature::SubgroupUniformFlow,
                present(self.uniform_flow.shader_subgroup_uniform_control_flow),
            ),
            (Feature::MemoryModel, memory_model),
            // Cooperative matrices need the memory model.
            (
                Feature::CooperativeMatrix,
                memory_model && present(self.matrix.cooperative_matrix),
            ),
            (
                Feature::CooperativeMatrix2,
                memory_model && matrix2.into_iter().all(present),
            ),
        ];
        all.into_iter()
            .filter(|(_, present)| *present)
            .map(|(feature, _)| feature)
            .collect()
    }

    /// Returns structures that enable what is required and the optional `features`. `extended_types` enables subgroup
    /// operations on 8-bit and 16-bit types.
    pub fn enabling(features: &FeatureSet, extended_types: bool) -> Self {
        let on = |feature| vk::Bool32::from(features.contains(feature));
        let mut to_enable = Self::default();
        // Only chained if its extension is enabled.
        to_enable.statistics.pipeline_executable_info = vk::TRUE;
        to_enable.core.shader_int16 = on(Feature::Int16);
        to_enable.core.shader_int64 = on(Feature::Int64);
        to_enable.v11.storage_buffer16_bit_access = on(Feature::Storage16);
        let v12 = &mut to_enable.v12;
        v12.buffer_device_address = vk::TRUE;
        v12.timeline_semaphore = vk::TRUE;
        v12.scalar_block_layout = vk::TRUE;
        v12.shader_float16 = on(Feature::Float16);
        v12.shader_int8 = on(Feature::Int8);
        v12.storage_buffer8_bit_access = on(Feature::Storage8);
        v12.vulkan_memory_model = on(Feature::MemoryModel);
        v12.vulkan_memory_model_device_scope = on(Feature::MemoryModel);
        v12.shader_subgroup_extended_types = vk::Bool32::from(extended_types);
        let v13 = &mut to_enable.v13;
        v13.synchronization2 = vk::TRUE;
        v13.maintenance4 = vk::TRUE;
        v13.subgroup_size_control = on(Feature::SubgroupSizeControl);
        v13.compute_full_subgroups = on(Feature::FullSubgroups);
        v13.shader_integer_dot_product = on(Feature::IntegerDot);
        to_enable.rotate.shader_subgroup_rotate = on(Feature::SubgroupRotate);
        to_enable.uniform_flow.shader_subgroup_uniform_control_flow = on(Feature::SubgroupUniformFlow);
        to_enable.matrix.cooperative_matrix = on(Feature::CooperativeMatrix);
        let matrix2 = on(Feature::CooperativeMatrix2);
        to_enable.matrix2.workgroup_scope = matrix2;
        to_enable.matrix2.flexible_dimensions = matrix2;
        to_enable.matrix2.reductions = matrix2;
        to_enable.matrix2.conversions = matrix2;
        to_enable.matrix2.per_element_operations = matrix2;
        to_enable.matrix2.tensor_addressing = matrix2;
        to_enable.matrix2.block_loads = matrix2;
        to_enable.bfloat16.kind = on(Feature::BFloat16);
        to_enable.bfloat16.dot_product = on(Feature::BFloat16Dot);
        to_enable.bfloat16.cooperative_matrix = on(Feature::BFloat16Matrix);
        to_enable
    }
}

/// Pairs of a feature and another one that it requires.
const REQUIREMENTS: &[(Feature, Feature)] = &[
    (Feature::BFloat16Dot, Feature::BFloat16),
    (Feature::CooperativeMatrix, Feature::MemoryModel),
    (Feature::CooperativeMatrix2, Feature::CooperativeMatrix),
    (Feature::FragmentOrder, Feature::CooperativeMatrix),
    (Feature::BFloat16Matrix, Feature::BFloat16),
    (Feature::BFloat16Matrix, Feature::CooperativeMatrix),
    (Feature::FullSubgroups, Feature::SubgroupSizeControl),
];

/// Returns `features` without the `disabled` ones and without those that require a disabled one.
pub(super) fn without_disabled(features: &FeatureSet, disabled: &FeatureSet) -> FeatureSet {
    let mut enabled = features.without(disabled);
    for (feature, needed) in REQUIREMENTS {
        if !enabled.contains(*needed) {
            enabled.remove(*feature);
        }
    }
    enabled
}

/// Returns the extensions to enable for a set of features.
pub(super) fn extensions_for(features: &FeatureSet) -> Vec<&'static CStr> {
    let pairs = [
        (Feature::SubgroupRotate, khr::shader_subgroup_rotate::NAME),
        (
            Feature::SubgroupUniformFlow,
            khr::shader_subgroup_uniform_control_flow::NAME,
        ),
        (Feature::CooperativeMatrix, khr::cooperative_matrix::NAME),
        (Feature::CooperativeMatrix2, COOPERATIVE_MATRIX2_EXTENSION),
        (Feature::BFloat16, BFLOAT16_EXTENSION),
        (Feature::MemoryBudget, ash::ext::memory_budget::NAME),
    ];
    let wanted = pairs.into_iter().filter(|(feature, _)| features.contains(*feature));
    wanted.map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disabling_a_feature_disables_those_that_require_it() {
        let off = FeatureSet::from_iter([Feature::MemoryModel]);
        let left = without_disabled(&FeatureSet::all(), &off);
        for feature in [Feature::CooperativeMatrix, Feature::CooperativeMatrix2] {
            assert!(!left.contains(feature), "{feature}");
        }
        assert!(!left.contains(Feature::BFloat16Matrix) && left.contains(Feature::BFloat16Dot));
    }

    #[test]
    fn enables_exactly_the_requested_features() {
        for feature in Feature::ALL {
            let wanted = FeatureSet::from_iter([*feature, Feature::MemoryModel]);
            let reported = Structures::enabling(&wanted, false).optional();
            assert!(reported.without(&wanted).is_empty(), "{feature}: {reported}");
        }
        assert!(Structures::enabling(&FeatureSet::EMPTY, false).missing().is_empty());
        assert_eq!(Structures::default().missing().len(), 5);
    }
}
