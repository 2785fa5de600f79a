//! Optional features that the selected device lacks, and their cost.

use refrain_vulkan::Feature;

use super::SystemReport;

/// The cost of a missing feature; `None` if no kernel uses it.
pub(super) fn cost(feature: Feature) -> Option<&'static str> {
    Some(match feature {
        Feature::Storage16 => "16-bit values are accessed as 32-bit words: slower",
        Feature::Storage8 => "8-bit values are accessed as 32-bit words: slower",
        Feature::SubgroupArithmetic => "reductions go through shared memory: slower matrix products and norms",
        Feature::SubgroupSizeControl => "the driver chooses each kernel's subgroup size: may be slower",
        Feature::MemoryBudget => "free memory is unknown: running out of memory is detected late",
        Feature::TransferQueue => "uploads do not overlap with kernels: slower loading",
        _ => return None,
    })
}

/// The features that the selected device lacks at a cost.
pub(super) fn missing(report: &SystemReport) -> Vec<(Feature, &'static str)> {
    let Some(Ok(opened)) = &report.opened else {
        return Vec::new();
    };
    let Some(vulkan) = opened.device.as_vulkan() else {
        return Vec::new();
    };
    let absent = Feature::ALL
        .iter()
        .filter(|feature| !vulkan.features().contains(**feature));
    absent.filter_map(|feature| Some((*feature, cost(*feature)?))).collect()
}
