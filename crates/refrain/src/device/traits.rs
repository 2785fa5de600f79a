//! The device traits that kernels are chosen by.

use refrain_kernels::{Architecture, MemoryKind, Traits};
use refrain_vulkan::{DeviceInfo, Feature, FeatureSet, Limits};

const NVIDIA: u32 = 0x10de;
const INTEL: u32 = 0x8086;
const APPLE: u32 = 0x106b;
const MESA_SOFTWARE: u32 = 0x10005;

/// The traits of a device with the enabled `features`.
pub(super) fn device_traits(info: &DeviceInfo, features: FeatureSet) -> Traits {
    let limits = &info.limits;
    let required = required_subgroup(info, features);
    Traits {
        vendor: info.vendor_id,
        architecture: Architecture::of(info.vendor_id, &info.name, limits.min_subgroup_size),
        compute_units: info.compute_units,
        memory: if info.has_unified_memory() {
            MemoryKind::Unified
        } else {
            MemoryKind::Discrete
        },
        subgroup_size: required.unwrap_or(limits.subgroup_size),
        subgroup_required: required.is_some(),
        full_subgroups: features.contains(Feature::FullSubgroups)
            && (required.is_some() || limits.min_subgroup_size == limits.max_subgroup_size),
        subgroup_uniform_flow: features.contains(Feature::SubgroupUniformFlow),
        subgroup_arithmetic: features.contains(Feature::SubgroupArithmetic),
        subgroup_shuffle: features.contains(Feature::SubgroupShuffle),
        storage16: features.contains(Feature::Storage16),
        storage8: features.contains(Feature::Storage8),
        integer_dot: features.contains(Feature::IntegerDot),
        // Enabled where it was tested; elsewhere kernels convert by integers.
        exact_halves: [NVIDIA, MESA_SOFTWARE].contains(&info.vendor_id),
        // Apple GPUs run over Metal, which guarantees this only from version 3.2 on and does not report its version.
        tickets: info.vendor_id != APPLE,
        max_invocations: max_invocations(limits, required),
        // Kernels need no more.
        push_bytes: limits.max_push_constants.min(256),
        shared_bytes: limits.shared_memory_bytes,
        matrix_cores: None,
        tuning: None,
    }
}

/// The subgroup size that kernels require, if the driver could choose among several: the size that kernels were tuned
/// for.
fn required_subgroup(info: &DeviceInfo, features: FeatureSet) -> Option<u32> {
    let limits = &info.limits;
    let sizes = limits.min_subgroup_size..=limits.max_subgroup_size;
    let varies = sizes.start() < sizes.end() && features.contains(Feature::SubgroupSizeControl);
    let wanted = match info.vendor_id {
        // Kernels hold 40 to 96 values per invocation. With 32 lanes the registers have room for 32 values, with 16 for
        // 64.
        INTEL => 16,
        _ => limits.subgroup_size,
    };
    (varies && sizes.contains(&wanted)).then_some(wanted)
}

/// Maximum number of invocations of a workgroup in one dimension.
fn max_invocations(limits: &Limits, required: Option<u32>) -> u32 {
    let by_subgroups = required.map_or(u32::MAX, |size| size.saturating_mul(limits.max_workgroup_subgroups));
    limits
        .max_workgroup_invocations
        .min(limits.max_workgroup_size[0])
        .min(by_subgroups)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(vendor: u32, [min, default, max]: [u32; 3]) -> DeviceInfo {
        let mut info = DeviceInfo::mock("card");
        info.vendor_id = vendor;
        let limits = &mut info.limits;
        (limits.min_subgroup_size, limits.subgroup_size, limits.max_subgroup_size) = (min, default, max);
        info
    }

    fn subgroups(info: &DeviceInfo) -> (u32, bool) {
        let traits = device_traits(info, FeatureSet::all());
        (traits.subgroup_size, traits.subgroup_required)
    }

    #[test]
    fn kernels_require_the_subgroup_size_that_they_are_tuned_for() {
        assert_eq!(subgroups(&card(0x1002, [32, 64, 64])), (64, true));
        assert_eq!(subgroups(&card(NVIDIA, [32, 32, 32])), (32, false));
        assert_eq!(subgroups(&card(INTEL, [8, 32, 32])), (16, true));
    }

    #[test]
    fn no_subgroup_size_is_required_if_the_device_cannot_guarantee_it() {
        assert_eq!(subgroups(&card(0x1002, [32, 128, 64])), (128, false));
        assert_eq!(subgroups(&card(INTEL, [32, 32, 64])), (32, false));
        let mut features = FeatureSet::all();
        features.remove(Feature::SubgroupSizeControl);
        let traits = device_traits(&card(INTEL, [8, 32, 32]), features);
        assert_eq!((traits.subgroup_size, traits.subgroup_required), (32, false));
    }

    #[test]
    fn subgroups_are_full_if_their_size_is_fixed() {
        let full = |vendor, sizes, features| device_traits(&card(vendor, sizes), features).full_subgroups;
        assert!(full(NVIDIA, [32, 32, 32], FeatureSet::all()));
        assert!(full(INTEL, [8, 32, 32], FeatureSet::all()));
        assert!(!full(0x1002, [32, 128, 64], FeatureSet::all()));
        let mut features = FeatureSet::all();
        features.remove(Feature::FullSubgroups);
        assert!(!full(NVIDIA, [32, 32, 32], features));
    }

    #[test]
    fn workgroup_size_respects_every_limit() {
        let mut info = card(INTEL, [8, 32, 32]);
        info.limits.max_workgroup_subgroups = 32;
        assert_eq!(device_traits(&info, FeatureSet::all()).max_invocations, 512);
        info.limits.max_workgroup_size[0] = 256;
        assert_eq!(device_traits(&info, FeatureSet::all()).max_invocations, 256);
    }

    #[test]
    fn features_that_only_some_drivers_guarantee_are_off_elsewhere() {
        let traits = |vendor| device_traits(&card(vendor, [32; 3]), FeatureSet::all());
        assert!(traits(NVIDIA).tickets && traits(0x1002).tickets && !traits(APPLE).tickets);
        assert!(traits(NVIDIA).exact_halves && !traits(APPLE).exact_halves);
    }
}
