//! Queries the properties of a device from its driver.

use std::ffi::CStr;

use ash::{amd, ext, khr, nv, vk};

use super::features::{Extensions, Structures};
use super::instance::Instance;
use super::newer_headers::COMPONENT_BFLOAT16;
use crate::error::Error;
use crate::feature::{Feature, FeatureSet};
use crate::info::{DeviceInfo, DeviceKind, Heap, Limits, MatrixShape, MemoryType};

/// Missing requirement of hardware for which a driver only compiles.
pub(super) const COMPILER_ONLY: &str = "device memory (the driver reports none: it can only compile)";

/// A physical device with its properties.
pub(super) struct Probed {
    pub physical: vk::PhysicalDevice,
    pub info: DeviceInfo,
    pub families: Families,
    /// Whether subgroup operations support 8-bit and 16-bit types.
    pub extended_types: bool,
    /// Whether the driver layers Vulkan on another API. Its extension must then be enabled.
    pub portability: bool,
    /// Whether the driver reports statistics of pipelines.
    pub statistics: bool,
}

/// The queue families to use.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Families {
    pub compute: u32,
    /// Family with compute but no graphics, if any, and its valid timestamp bits.
    pub compute_only: Option<(u32, u32)>,
    /// Family with only transfers, if any.
    pub transfer: Option<u32>,
    /// Valid timestamp bits of the compute family.
    pub timestamp_bits: u32,
}

impl Families {
    /// Returns the families with compute on the compute-only family, if there is one.
    pub fn prefer_compute_only(self) -> Self {
        match self.compute_only {
            Some((compute, timestamp_bits)) => Self {
                compute,
                timestamp_bits,
                ..self
            },
            None => self,
        }
    }
}

/// Probes every device of the instance, in the order of the loader.
pub(super) fn devices(instance: &Instance) -> Result<Vec<Probed>, Error> {
    // SAFETY: the instance is valid.
    match unsafe { instance.raw.enumerate_physical_devices() } {
        Ok(devices) => Ok(devices.into_iter().map(|device| probe(instance, device)).collect()),
        Err(vk::Result::ERROR_INITIALIZATION_FAILED) => Ok(Vec::new()),
        Err(code) => Err(Error::Driver {
            call: "vkEnumeratePhysicalDevices",
            code: format!("{code:?}"),
        }),
    }
}

/// Probes a device. If a query fails, the device is listed as unusable and does not hide others.
fn probe(instance: &Instance, physical: vk::PhysicalDevice) -> Probed {
    let raw = &instance.raw;
    // SAFETY, for all queries below: the handle belongs to this instance, and chained structures outlive the calls.
    let basic = unsafe { raw.get_physical_device_properties(physical) };
    let mut info = basic_info(&basic);
    let extensions = or_missing(
        unsafe { raw.enumerate_device_extension_properties(physical) },
        "vkEnumerateDeviceExtensionProperties",
        &mut info.missing,
    );
    let extensions = Extensions::new(&extensions);
    let (families, has_compute) = families(instance, physical);
    let budgets = extensions.has(ext::memory_budget::NAME);
    (info.heaps, info.memory_types) = memory(instance, physical, budgets);
    if info.memory_types.is_empty() {
        info.missing.push(COMPILER_ONLY.to_owned());
    }

    let mut structures = Structures::default();
    if basic.api_version < vk::API_VERSION_1_3 {
        let (major, minor) = info.api_version;
        info.missing
            .push(format!("Vulkan 1.3 (the driver has {major}.{minor})"));
    } else {
        structures.chained(&|name| extensions.has(name), |head| unsafe {
            raw.get_physical_device_features2(physical, head);
        });
        info.missing.extend(structures.missing());
        info.features = structures.optional();
        info.features.insert_if(Feature::MemoryBudget, budgets);
        info.features
            .insert_if(Feature::TransferQueue, families.transfer.is_some());
        extended_properties(instance, physical, &extensions, &mut info);
        info.compute_units = compute_units(instance, physical, &extensions);
        if info.features.contains(Feature::CooperativeMatrix) {
            info.matrix_shapes = matrix_shapes(instance, physical);
        }
    }
    if !has_compute {
        info.missing.push("a compute queue".to_owned());
    }
    if families.timestamp_bits == 0 {
        info.limits.timestamp_period_ns = 0.0;
    }
    let portability = extensions.has(khr::portability_subset::NAME);
    Probed {
        physical,
        info,
        families,
        extended_types: structures.v12.shader_subgroup_extended_types == vk::TRUE,
        portability,
        statistics: structures.statistics.pipeline_executable_info == vk::TRUE,
    }
}

/// Returns the result of a query. If it failed, returns the default and adds an entry to `missing`.
fn or_missing<T: Default>(result: Result<T, vk::Result>, call: &str, missing: &mut Vec<String>) -> T {
    result.unwrap_or_else(|code| {
        missing.push(format!("a working driver ({call} failed: {code:?})"));
        T::default()
    })
}

fn text(name: Result<&CStr, impl Sized>) -> String {
    name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn basic_info(properties: &vk::PhysicalDeviceProperties) -> DeviceInfo {
    let limits = &properties.limits;
    DeviceInfo {
        name: text(properties.device_name_as_c_str()),
        vendor_id: properties.vendor_id,
        device_id: properties.device_id,
        uuid: [0; 16],
        pci: None,
        driver_name: String::new(),
        driver_info: String::new(),
        driver_version: properties.driver_version,
        cache_uuid: properties.pipeline_cache_uuid,
        api_version: (
            vk::api_version_major(properties.api_version),
            vk::api_version_minor(properties.api_version),
        ),
        kind: match properties.device_type {
            vk::PhysicalDeviceType::DISCRETE_GPU => DeviceKind::Discrete,
            vk::PhysicalDeviceType::INTEGRATED_GPU => DeviceKind::Integrated,
            vk::PhysicalDeviceType::VIRTUAL_GPU => DeviceKind::Virtual,
            vk::PhysicalDeviceType::CPU => DeviceKind::Software,
            _ => DeviceKind::Other,
        },
        compute_units: None,
        heaps: Vec::new(),
        memory_types: Vec::new(),
        features: FeatureSet::EMPTY,
        matrix_shapes: Vec::new(),
        limits: Limits {
            max_workgroup_size: limits.max_compute_work_group_size,
            max_workgroup_invocations: limits.max_compute_work_group_invocations,
            shared_memory_bytes: limits.max_compute_shared_memory_size,
            max_push_constants: limits.max_push_constants_size,
            max_group_count: limits.max_compute_work_group_count,
            timestamp_period_ns: limits.timestamp_period,
            ..Limits::default()
        },
        missing: Vec::new(),
    }
}

/// Fills in the properties of Vulkan 1.1 to 1.3.
fn extended_properties(
    instance: &Instance,
    physical: vk::PhysicalDevice,
    extensions: &Extensions,
    info: &mut DeviceInfo,
) {
    let mut v11 = vk::PhysicalDeviceVulkan11Properties::default();
    let mut v12 = vk::PhysicalDeviceVulkan12Properties::default();
    let mut v13 = vk::PhysicalDeviceVulkan13Properties::default();
    let mut pci = vk::PhysicalDevicePCIBusInfoPropertiesEXT::default();
    let has_pci = extensions.has(ext::pci_bus_info::NAME);
    let mut head = vk::PhysicalDeviceProperties2::default()
        .push_next(&mut v11)
        .push_next(&mut v12)
        .push_next(&mut v13);
    if has_pci {
        head = head.push_next(&mut pci);
    }
    // SAFETY: see `probe`.
    unsafe { instance.raw.get_physical_device_properties2(physical, &mut head) };
    info.uuid = v11.device_uuid;
    info.pci = has_pci.then_some([pci.pci_domain, pci.pci_bus, pci.pci_device, pci.pci_function]);
    info.driver_name = text(v12.driver_name_as_c_str());
    info.driver_info = text(v12.driver_info_as_c_str());
    let limits = &mut info.limits;
    limits.subgroup_size = v11.subgroup_size;
    limits.min_subgroup_size = v13.min_subgroup_size;
    limits.max_subgroup_size = v13.max_subgroup_size;
    limits.max_workgroup_subgroups = v13.max_compute_workgroup_subgroups;
    limits.max_allocation_bytes = v11.max_memory_allocation_size.min(v13.max_buffer_size);

    if v13.integer_dot_product4x8_bit_packed_signed_accelerated == vk::FALSE {
        info.features.remove(Feature::IntegerDot);
    }
    if !v13
        .required_subgroup_size_stages
        .contains(vk::ShaderStageFlags::COMPUTE)
    {
        info.features.remove(Feature::SubgroupSizeControl);
        info.features.remove(Feature::FullSubgroups);
    }
    let has_matrices = info.features.contains(Feature::CooperativeMatrix);
    info.features.insert_if(Feature::FragmentOrder, has_matrices);
    if v11.subgroup_supported_stages.contains(vk::ShaderStageFlags::COMPUTE) {
        use vk::SubgroupFeatureFlags as Kind;
        for (kind, feature) in [
            (Kind::BALLOT, Feature::SubgroupBallot),
            (Kind::ARITHMETIC, Feature::SubgroupArithmetic),
            (Kind::SHUFFLE, Feature::SubgroupShuffle),
            (Kind::SHUFFLE_RELATIVE, Feature::SubgroupShuffleRelative),
            (Kind::CLUSTERED, Feature::SubgroupClustered),
        ] {
            let supported = v11.subgroup_supported_operations.contains(kind);
            info.features.insert_if(feature, supported);
        }
    }
}

/// Returns the number of compute units (AMD) or streaming multiprocessors (NVIDIA), if the driver reports it.
fn compute_units(instance: &Instance, physical: vk::PhysicalDevice, extensions: &Extensions) -> Option<u32> {
    let mut active = vk::PhysicalDeviceShaderCoreProperties2AMD::default();
    let mut built = vk::PhysicalDeviceShaderCorePropertiesAMD::default();
    let mut multiprocessors = vk::PhysicalDeviceShaderSMBuiltinsPropertiesNV::default();
    let mut head = vk::PhysicalDeviceProperties2::default();
    if extensions.has(amd::shader_core_properties2::NAME) {
        head = head.push_next(&mut active);
    }
    if extensions.has(amd::shader_core_properties::NAME) {
        head = head.push_next(&mut built);
    }
    if extensions.has(nv::shader_sm_builtins::NAME) {
        head = head.push_next(&mut multiprocessors);
    }
    // SAFETY: see `probe`.
    unsafe { instance.raw.get_physical_device_properties2(physical, &mut head) };
    let arrays = built.shader_engine_count * built.shader_arrays_per_engine_count;
    let counts = [
        active.active_compute_unit_count,
        arrays * built.compute_units_per_shader_array,
        multiprocessors.shader_sm_count,
    ];
    counts.into_iter().find(|&count| count > 0)
}

/// Returns the heaps and memory types, with budgets if `budgets`.
pub(super) fn memory(instance: &Instance, physical: vk::PhysicalDevice, budgets: bool) -> (Vec<Heap>, Vec<MemoryType>) {
    let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
    let mut head = vk::PhysicalDeviceMemoryProperties2::default();
    if budgets {
        head = head.push_next(&mut budget);
    }
    // SAFETY: the handle belongs to this instance, and the structures outlive the call.
    unsafe { instance.raw.get_physical_device_memory_properties2(physical, &mut head) };
    let properties = head.memory_properties;
    let heap = |(index, heap): (usize, &vk::MemoryHeap)| Heap {
        size: heap.size,
        device_local: heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL),
        budget: budgets.then(|| budget.heap_budget[index]),
        used: budget.heap_usage[index],
    };
    let memory_type = |kind: &vk::MemoryType| {
        let has = |flag| kind.property_flags.contains(flag);
        // Excludes protected and lazily allocated memory, and the uncached types of AMD.
        let ordinary = vk::MemoryPropertyFlags::DEVICE_LOCAL
            | vk::MemoryPropertyFlags::HOST_VISIBLE
            | vk::MemoryPropertyFlags::HOST_COHERENT
            | vk::MemoryPropertyFlags::HOST_CACHED;
        MemoryType {
            heap: kind.heap_index as usize,
            usable: ordinary.contains(kind.property_flags),
            device_local: has(vk::MemoryPropertyFlags::DEVICE_LOCAL),
            host_visible: has(vk::MemoryPropertyFlags::HOST_VISIBLE),
            host_coherent: has(vk::MemoryPropertyFlags::HOST_COHERENT),
            host_cached: has(vk::MemoryPropertyFlags::HOST_CACHED),
        }
    };
    (
        properties
            .memory_heaps_as_slice()
            .iter()
            .enumerate()
            .map(heap)
            .collect(),
        properties.memory_types_as_slice().iter().map(memory_type).collect(),
    )
}

/// Returns the families to use, and whether there is a compute family.
fn families(instance: &Instance, physical: vk::PhysicalDevice) -> (Families, bool) {
    // SAFETY: the handle belongs to this instance.
    let all = unsafe { instance.raw.get_physical_device_queue_family_properties(physical) };
    choose_families(&all)
}

fn choose_families(all: &[vk::QueueFamilyProperties]) -> (Families, bool) {
    use vk::QueueFlags as Flags;
    let find = |fits: &dyn Fn(Flags) -> bool| {
        (0u32..)
            .zip(all)
            .find(|(_, family)| fits(family.queue_flags))
            .map(|(index, _)| index)
    };
    let compute = find(&|flags| flags.contains(Flags::COMPUTE));
    let copies_only = Flags::TRANSFER | Flags::SPARSE_BINDING | Flags::PROTECTED;
    let transfer = find(&|flags| flags.contains(Flags::TRANSFER) && copies_only.contains(flags));
    let compute_only = find(&|flags| flags.contains(Flags::COMPUTE) && !flags.contains(Flags::GRAPHICS));
    let index = compute.unwrap_or(0);
    let timestamp_bits = |index: u32| all.get(index as usize).map_or(0, |family| family.timestamp_valid_bits);
    (
        Families {
            compute: index,
            compute_only: compute_only.map(|index| (index, timestamp_bits(index))),
            transfer,
            timestamp_bits: timestamp_bits(index),
        },
        compute.is_some(),
    )
}

fn matrix_shapes(instance: &Instance, physical: vk::PhysicalDevice) -> Vec<MatrixShape> {
    let query = khr::cooperative_matrix::Instance::new(&instance.entry, &instance.raw);
    // SAFETY: the device has the extension.
    let shapes = unsafe { query.get_physical_device_cooperative_matrix_properties(physical) };
    let shape = |p: &vk::CooperativeMatrixPropertiesKHR<'_>| MatrixShape {
        m: p.m_size,
        n: p.n_size,
        k: p.k_size,
        types: [p.a_type, p.b_type, p.c_type, p.result_type].map(component),
        workgroup_scope: p.scope == vk::ScopeKHR::WORKGROUP,
    };
    shapes.unwrap_or_default().iter().map(shape).collect()
}

fn component(kind: vk::ComponentTypeKHR) -> &'static str {
    match kind {
        vk::ComponentTypeKHR::FLOAT16 => "f16",
        vk::ComponentTypeKHR::FLOAT32 => "f32",
        vk::ComponentTypeKHR::FLOAT64 => "f64",
        vk::ComponentTypeKHR::SINT8 => "s8",
        vk::ComponentTypeKHR::SINT16 => "s16",
        vk::ComponentTypeKHR::SINT32 => "s32",
        vk::ComponentTypeKHR::SINT64 => "s64",
        vk::ComponentTypeKHR::UINT8 => "u8",
        vk::ComponentTypeKHR::UINT16 => "u16",
        vk::ComponentTypeKHR::UINT32 => "u32",
        vk::ComponentTypeKHR::UINT64 => "u64",
        COMPONENT_BFLOAT16 => "bf16",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefers_a_compute_only_family_if_there_is_one() {
        use vk::QueueFlags as Flags;
        let family = |queue_flags, timestamp_valid_bits| vk::QueueFamilyProperties {
            queue_flags,
            timestamp_valid_bits,
            ..Default::default()
        };
        let everything = family(Flags::GRAPHICS | Flags::COMPUTE | Flags::TRANSFER, 64);
        let copies = family(Flags::TRANSFER | Flags::SPARSE_BINDING, 32);
        let computing = family(Flags::COMPUTE | Flags::TRANSFER, 36);
        let used = |all: &[_]| {
            let (families, _) = choose_families(all);
            let compute_only = families.prefer_compute_only();
            assert_eq!(compute_only.transfer, families.transfer);
            [families, compute_only].map(|families| (families.compute, families.timestamp_bits))
        };
        assert_eq!(used(&[everything, copies, computing]), [(0, 64), (2, 36)]);
        assert_eq!(used(&[everything, copies]), [(0, 64), (0, 64)]);
        assert_eq!(used(&[copies, computing]), [(1, 36), (1, 36)]);
    }

    #[test]
    fn a_failing_query_makes_the_device_unusable() {
        let mut missing = Vec::new();
        let mut query = |code| or_missing::<Vec<u8>>(code, "vkQuery", &mut missing);
        assert_eq!(query(Err(vk::Result::ERROR_INITIALIZATION_FAILED)), []);
        assert_eq!(
            missing,
            ["a working driver (vkQuery failed: ERROR_INITIALIZATION_FAILED)"]
        );
        assert_eq!(or_missing(Ok(vec![1]), "vkQuery", &mut missing), [1]);
        assert_eq!(missing.len(), 1);
    }
}
