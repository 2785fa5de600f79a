//! What the chosen device cannot do, and what that costs.

use refrain_vulkan::Feature;

use super::Examination;

/// What a device loses without a feature; `None` where no kernel makes use of it.
pub(super) fn cost(feature: Feature) -> Option<&'static str> {
    Some(match feature {
        Feature::Storage16 => "16-bit values are read and written in 32-bit words: slower",
        Feature::Storage8 => "8-bit values are read and written in 32-bit words: slower",
        Feature::SubgroupArithmetic => "lanes add up through shared memory: slower products and norms",
        Feature::SubgroupSizeControl => "the driver chooses the subgroup size of each kernel: perhaps slower",
        Feature::MemoryBudget => "what other programs leave free is not known: a lack of memory shows late",
        Feature::TransferQueue => "uploads and kernels take turns: slower loading",
        _ => return None,
    })
}

/// The features that the chosen device lacks and that cost something.
pub(super) fn missed(examination: &Examination) -> Vec<(Feature, &'static str)> {
    let Some(Ok(opened)) = &examination.opened else {
        return Vec::new();
    };
    let Some(vulkan) = opened.device.as_vulkan() else {
        return Vec::new();
    };
    let missing = Feature::ALL
        .iter()
        .filter(|feature| !vulkan.features().contains(**feature));
    missing
        .filter_map(|feature| Some((*feature, cost(*feature)?)))
        .collect()
}
