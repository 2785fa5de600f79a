//! What is known of a device before it is opened: pure data, so that choices are tested on
//! made-up devices.

use std::fmt;

use crate::class::{MemoryClass, memory_types};
use crate::error::human_bytes;
use crate::feature::FeatureSet;

/// What sort of processor a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// A card with memory of its own.
    Discrete,
    /// A GPU that shares the host's memory.
    Integrated,
    /// A GPU seen through a virtual machine.
    Virtual,
    /// A driver that computes on the CPU.
    Software,
    /// Something else.
    Other,
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Discrete => "discrete",
            Self::Integrated => "integrated",
            Self::Virtual => "virtual",
            Self::Software => "software",
            Self::Other => "other",
        })
    }
}

/// A heap of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Heap {
    /// Bytes in all.
    pub size: u64,
    /// Whether it is the device's own memory.
    pub device_local: bool,
    /// Bytes this process may use before the system suffers, where the driver tells.
    pub budget: Option<u64>,
    /// Bytes in use by this process, 0 where the driver does not tell.
    pub used: u64,
}

impl Heap {
    /// Bytes left: budget (or size, where there is none) less what is used.
    pub fn free(&self) -> u64 {
        self.budget.unwrap_or(self.size).saturating_sub(self.used)
    }

    /// The heap in words, such as `heap 0 (device-local, 8.0 GiB)`.
    pub fn describe(&self, index: usize) -> String {
        let place = if self.device_local { "device-local" } else { "host" };
        format!("heap {index} ({place}, {})", human_bytes(self.size))
    }
}

/// A way to allocate from a heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryType {
    /// Index into [`DeviceInfo::heaps`].
    pub heap: usize,
    /// Whether ordinary submissions may use it, and at full speed: memory that is protected, uncached or
    /// a vendor's own way of something serves nothing.
    pub usable: bool,
    /// The device reaches it at full speed.
    pub device_local: bool,
    /// The host can map it.
    pub host_visible: bool,
    /// Host and device see each other's writes without flushes.
    pub host_coherent: bool,
    /// Host reads go through the cache, so they are fast.
    pub host_cached: bool,
}

/// One shape of cooperative matrix product, `D[m,n] = A[m,k] B[k,n] + C[m,n]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MatrixShape {
    /// Rows of A and D.
    pub m: u32,
    /// Columns of B and D.
    pub n: u32,
    /// Columns of A, rows of B.
    pub k: u32,
    /// Component types of A, B, C and D, such as `f16`, `f32`, `s8`, `bf16`.
    pub types: [&'static str; 4],
    /// Whether a whole workgroup owns the matrix, and not one subgroup.
    pub workgroup_scope: bool,
}

impl MatrixShape {
    /// Rows, columns and depth, if a subgroup multiplies f16 and adds in f32.
    pub fn of_halves(&self) -> Option<[u32; 3]> {
        let types = self.types == ["f16", "f16", "f32", "f32"] && !self.workgroup_scope;
        types.then_some([self.m, self.n, self.k])
    }
}

/// Numbers that bound what kernels and command lists may do.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Lanes of a subgroup where none is required.
    pub subgroup_size: u32,
    /// Smallest subgroup size that may be required.
    pub min_subgroup_size: u32,
    /// Largest subgroup size that may be required.
    pub max_subgroup_size: u32,
    /// Largest workgroup along each axis.
    pub max_workgroup_size: [u32; 3],
    /// Most invocations of a workgroup.
    pub max_workgroup_invocations: u32,
    /// Most subgroups of a workgroup whose kernel requires a subgroup size.
    pub max_workgroup_subgroups: u32,
    /// Bytes of shared memory of a workgroup.
    pub shared_memory_bytes: u32,
    /// Bytes of push constants.
    pub max_push_constants: u32,
    /// Largest single allocation and buffer in bytes, as the driver reports it.
    pub max_allocation_bytes: u64,
    /// Most workgroups of a dispatch along each axis.
    pub max_group_count: [u32; 3],
    /// Nanoseconds of one step of a timestamp; 0 where there are no timestamps.
    pub timestamp_period_ns: f32,
}

impl Default for Limits {
    /// What every Vulkan 1.3 device has to offer, with subgroups of 32.
    fn default() -> Self {
        Self {
            subgroup_size: 32,
            min_subgroup_size: 32,
            max_subgroup_size: 32,
            max_workgroup_size: [128, 128, 64],
            max_workgroup_invocations: 128,
            max_workgroup_subgroups: 32,
            shared_memory_bytes: 16 << 10,
            max_push_constants: 128,
            max_allocation_bytes: 1 << 30,
            max_group_count: [65535; 3],
            timestamp_period_ns: 1.0,
        }
    }
}

/// Everything known of a device before it is opened.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceInfo {
    /// The device's name.
    pub name: String,
    /// PCI vendor.
    pub vendor_id: u32,
    /// PCI device.
    pub device_id: u32,
    /// `deviceUUID`: equal for one GPU in every process; all zero where unknown.
    pub uuid: [u8; 16],
    /// Domain, bus, device and function on the PCI bus, where the driver tells.
    pub pci: Option<[u32; 4]>,
    /// The driver's name, such as `radv`.
    pub driver_name: String,
    /// The driver's version in its own words.
    pub driver_info: String,
    /// The driver's version as a number of its own format.
    pub driver_version: u32,
    /// `pipelineCacheUUID`: changes whenever cached pipelines become useless.
    pub cache_uuid: [u8; 16],
    /// Vulkan version as (major, minor).
    pub api_version: (u32, u32),
    /// What sort of processor it is.
    pub kind: DeviceKind,
    /// Processors that take workgroups (compute units, streaming multiprocessors), where the driver tells.
    pub compute_units: Option<u32>,
    /// Its memory.
    pub heaps: Vec<Heap>,
    /// How to allocate from it.
    pub memory_types: Vec<MemoryType>,
    /// What it is able to do beyond what is required.
    pub features: FeatureSet,
    /// Shapes of cooperative matrices; empty without them.
    pub matrix_shapes: Vec<MatrixShape>,
    /// Numeric bounds.
    pub limits: Limits,
    /// What it lacks of the required; not empty: the device cannot be used.
    pub missing: Vec<String>,
}

impl DeviceInfo {
    /// A made-up discrete card with every feature: 8 GiB of its own memory, 256 MiB of it seen by
    /// the host, 32 GiB of host memory. For null devices and tests.
    pub fn made_up(name: &str) -> Self {
        let heap = |size, device_local| Heap {
            size,
            device_local,
            budget: None,
            used: 0,
        };
        let local = MemoryType {
            usable: true,
            device_local: true,
            ..MemoryType::default()
        };
        let host = MemoryType {
            heap: 1,
            usable: true,
            host_visible: true,
            host_coherent: true,
            ..MemoryType::default()
        };
        let cached = MemoryType {
            host_cached: true,
            ..host
        };
        let window = MemoryType {
            heap: 2,
            device_local: true,
            ..host
        };
        Self {
            name: name.to_owned(),
            vendor_id: 0x1234,
            device_id: 1,
            uuid: [0; 16],
            pci: None,
            driver_name: "made-up".to_owned(),
            driver_info: "1.0".to_owned(),
            driver_version: 1,
            cache_uuid: [0; 16],
            api_version: (1, 3),
            kind: DeviceKind::Discrete,
            compute_units: None,
            heaps: vec![heap(8 << 30, true), heap(32 << 30, false), heap(256 << 20, true)],
            memory_types: vec![local, host, cached, window],
            features: FeatureSet::all(),
            matrix_shapes: Vec::new(),
            limits: Limits {
                max_workgroup_size: [1024, 1024, 64],
                max_workgroup_invocations: 1024,
                shared_memory_bytes: 32 << 10,
                max_allocation_bytes: 4 << 30,
                ..Limits::default()
            },
            missing: Vec::new(),
        }
    }

    /// Whether the runtime can work with the device.
    pub fn usable(&self) -> bool {
        self.missing.is_empty()
    }

    /// Whether its memory is the host's too.
    pub fn shares_memory(&self) -> bool {
        match self.kind {
            DeviceKind::Integrated | DeviceKind::Software => true,
            DeviceKind::Discrete => false,
            DeviceKind::Virtual | DeviceKind::Other => self.heaps.iter().all(|heap| heap.device_local),
        }
    }

    /// The heaps that serve a class, as indices, best first.
    pub fn heaps_for(&self, class: MemoryClass) -> Vec<usize> {
        let mut heaps = Vec::new();
        for memory_type in memory_types(self, class) {
            let heap = self.memory_types[memory_type].heap;
            if !heaps.contains(&heap) {
                heaps.push(heap);
            }
        }
        heaps
    }

    /// Bytes of memory that models may lie in: a card's own, and the host's where that is an integrated
    /// GPU's too.
    pub fn device_memory(&self) -> u64 {
        let heaps = self.heaps_for(MemoryClass::Weight);
        heaps
            .into_iter()
            .filter_map(|heap| self.heaps.get(heap))
            .map(|heap| heap.size)
            .sum()
    }
}
