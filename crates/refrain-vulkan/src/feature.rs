//! Optional features of a device. They are probed, never assumed, and each can be disabled.

use std::fmt;
use std::str::FromStr;

macro_rules! features {
    ($($variant:ident $name:literal $doc:literal)*) => {
        /// An optional feature of a device. Displayed in kebab case, such as `float16`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Feature { $(#[doc = $doc] $variant,)* }

        impl Feature {
            /// All features, in declaration order.
            pub const ALL: &'static [Feature] = &[$(Feature::$variant,)*];

            /// The kebab-case name.
            pub fn name(self) -> &'static str {
                match self { $(Feature::$variant => $name,)* }
            }
        }
    };
}

features! {
    Float16 "float16" "16-bit float arithmetic (`shaderFloat16`)."
    BFloat16 "bfloat16" "The bfloat16 type (`VK_KHR_shader_bfloat16`)."
    BFloat16Dot "bfloat16-dot" "Dot products of bfloat16 vectors."
    BFloat16Matrix "bfloat16-matrix" "Cooperative matrices of bfloat16."
    Int8 "int8" "8-bit integer arithmetic (`shaderInt8`)."
    Int16 "int16" "16-bit integer arithmetic (`shaderInt16`)."
    Int64 "int64" "64-bit integer arithmetic (`shaderInt64`)."
    Storage8 "storage8" "8-bit loads and stores (`storageBuffer8BitAccess`)."
    Storage16 "storage16" "16-bit loads and stores (`storageBuffer16BitAccess`)."
    IntegerDot "integer-dot" "Hardware-accelerated integer dot products of four packed signed bytes."
    SubgroupBallot "subgroup-ballot" "Ballots across a subgroup."
    SubgroupArithmetic "subgroup-arithmetic" "Reductions and scans across a subgroup."
    SubgroupShuffle "subgroup-shuffle" "Shuffles by lane index or xor mask."
    SubgroupShuffleRelative "subgroup-shuffle-relative" "Shuffles up and down."
    SubgroupClustered "subgroup-clustered" "Reductions over clusters of invocations."
    SubgroupRotate "subgroup-rotate" "Rotations across a subgroup (`VK_KHR_shader_subgroup_rotate`)."
    SubgroupSizeControl "subgroup-size-control" "Compute kernels may require a subgroup size."
    FullSubgroups "full-subgroups" "Kernels may require full subgroups."
    SubgroupUniformFlow "subgroup-uniform-flow" "Diverged subgroups reconverge as the source specifies (`VK_KHR_shader_subgroup_uniform_control_flow`)."
    MemoryModel "memory-model" "The Vulkan memory model with device scope."
    CooperativeMatrix "cooperative-matrix" "Matrix products computed by a subgroup (`VK_KHR_cooperative_matrix`)."
    FragmentOrder "fragment-order" "Cooperative matrix elements are set directly in registers, if a probe finds which invocation holds which element; otherwise through shared memory."
    CooperativeMatrix2 "cooperative-matrix2" "All features of `VK_NV_cooperative_matrix2`."
    MemoryBudget "memory-budget" "Budget and usage of each heap (`VK_EXT_memory_budget`)."
    TransferQueue "transfer-queue" "A transfer-only queue family, whose copies overlap with compute."
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Error for a name that is not a feature.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown feature {0:?}; known features: {all}", all = FeatureSet::all())]
pub struct UnknownFeature(pub String);

impl FromStr for Feature {
    type Err = UnknownFeature;

    fn from_str(text: &str) -> Result<Self, UnknownFeature> {
        let found = Self::ALL.iter().find(|feature| feature.name() == text);
        found.copied().ok_or_else(|| UnknownFeature(text.to_owned()))
    }
}

/// A set of features.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct FeatureSet(u64);

impl FeatureSet {
    /// The empty set.
    pub const EMPTY: Self = Self(0);

    /// Returns the set of all features.
    pub fn all() -> Self {
        Feature::ALL.iter().copied().collect()
    }

    /// Whether the set contains the feature.
    pub fn contains(&self, feature: Feature) -> bool {
        self.0 & bit(feature) != 0
    }

    /// Adds a feature.
    pub fn insert(&mut self, feature: Feature) {
        self.0 |= bit(feature);
    }

    /// Adds a feature if `present`.
    pub(crate) fn insert_if(&mut self, feature: Feature, present: bool) {
        if present {
            self.insert(feature);
        }
    }

    /// Removes a feature.
    pub fn remove(&mut self, feature: Feature) {
        self.0 &= !bit(feature);
    }

    /// Returns the features that are not in `other`.
    pub fn without(&self, other: &Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Iterates in declaration order.
    pub fn iter(&self) -> impl Iterator<Item = Feature> + '_ {
        Feature::ALL.iter().copied().filter(|feature| self.contains(*feature))
    }

    /// Number of features.
    pub fn len(&self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0 == 0
    }
}

fn bit(feature: Feature) -> u64 {
    1 << feature as u32
}

impl FromIterator<Feature> for FeatureSet {
    fn from_iter<I: IntoIterator<Item = Feature>>(features: I) -> Self {
        let mut set = Self::EMPTY;
        features.into_iter().for_each(|feature| set.insert(feature));
        set
    }
}

impl fmt::Display for FeatureSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter().map(Feature::name).collect();
        f.pad(&names.join(", "))
    }
}

impl fmt::Debug for FeatureSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_parses_to_its_feature() {
        for feature in Feature::ALL {
            assert_eq!(feature.name().parse(), Ok(*feature));
        }
        assert!("float-16".parse::<Feature>().is_err());
    }

    #[test]
    fn sets_insert_remove_and_subtract() {
        let mut set = FeatureSet::all();
        assert_eq!(set.len(), Feature::ALL.len());
        set.remove(Feature::Int8);
        assert!(!set.contains(Feature::Int8) && set.contains(Feature::Int64));
        let rest = FeatureSet::all().without(&set);
        assert_eq!(rest.iter().collect::<Vec<_>>(), [Feature::Int8]);
        assert_eq!(rest.to_string(), "int8");
    }
}
