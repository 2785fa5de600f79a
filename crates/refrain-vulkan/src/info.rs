//! Properties of a device before it is opened. Plain data, so that decisions can be tested on mock devices.

use std::fmt;

use crate::error::human_bytes;
use crate::feature::FeatureSet;

/// Kind of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// A GPU with its own memory.
    Discrete,
    /// A GPU that shares host memory.
    Integrated,
    /// A GPU in a virtual machine.
    Virtual,
    /// A driver that computes on the CPU.
    Software,
    /// Any other kind.
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

/// A memory heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Heap {
    /// Size in bytes.
    pub size: u64,
    /// Whether it is memory of the device itself.
    pub device_local: bool,
    /// Bytes that this process should not exceed, if the driver reports a budget.
    pub budget: Option<u64>,
    /// Bytes in use by this process; 0 if the driver does not report it.
    pub used: u64,
}

impl Heap {
    /// Returns the bytes left: the budget (or the size without one) minus the usage.
    pub fn free(&self) -> u64 {
        self.budget.unwrap_or(self.size).saturating_sub(self.used)
    }

    /// Describes the heap, such as `heap 0 (device-local, 8.0 GiB)`.
    pub fn describe(&self, index: usize) -> String {
        let place = if self.device_local { "device-local" } else { "host" };
        format!("heap {index} ({place}, {})", human_bytes(self.size))
    }
}

/// A memory type: how to allocate from a heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryType {
    /// Index into [`DeviceInfo::heaps`].
    pub heap: usize,
    /// Whether ordinary submissions may use it at full speed. False for protected, uncached and vendor-specific memory
    /// types.
    pub usable: bool,
    /// Whether the device accesses it at full speed.
    pub device_local: bool,
    /// Whether the host can map it.
    pub host_visible: bool,
    /// Whether host and device see writes of each other without flushes.
    pub host_coherent: bool,
    /// Whether host reads are cached, and thus fast.
    pub host_cached: bool,
}

/// A supported cooperative matrix product, `D[m,n] = A[m,k] B[k,n] + C[m,n]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MatrixShape {
    /// Rows of A and D.
    pub m: u32,
    /// Columns of B and D.
    pub n: u32,
    /// Columns of A and rows of B.
    pub k: u32,
    /// Component types of A, B, C and D, such as `f16`, `f32`, `s8`, `bf16`.
    pub types: [&'static str; 4],
    /// Whether a workgroup owns the matrix instead of a subgroup.
    pub workgroup_scope: bool,
}

impl MatrixShape {
    /// Returns rows, columns and depth if a subgroup multiplies f16 with f32 accumulation.
    pub fn f16_shape(&self) -> Option<[u32; 3]> {
        let types = self.types == ["f16", "f16", "f32", "f32"] && !self.workgroup_scope;
        types.then_some([self.m, self.n, self.k])
    }
}

/// Limits on kernels and command lists.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Default subgroup size.
    pub subgroup_size: u32,
    /// Smallest subgroup size that a kernel may require.
    pub min_subgroup_size: u32,
    /// Largest subgroup size that a kernel may require.
    pub max_subgroup_size: u32,
    /// Maximum workgroup size along each axis.
    pub max_workgroup_size: [u32; 3],
    /// Maximum invocations per workgroup.
    pub max_workgroup_invocations: u32,
    /// Maximum subgroups per workgroup of a kernel that requires a subgroup size.
    pub max_workgroup_subgroups: u32,
    /// Shared memory per workgroup in bytes.
    pub shared_memory_bytes: u32,
    /// Maximum push constants in bytes.
    pub max_push_constants: u32,
    /// Maximum size of an allocation and a buffer in bytes, as the driver reports it.
    pub max_allocation_bytes: u64,
    /// Maximum workgroups of a dispatch along each axis.
    pub max_group_count: [u32; 3],
    /// Nanoseconds per timestamp tick; 0 without timestamps.
    pub timestamp_period_ns: f32,
}

impl Default for Limits {
    /// The minimum of every Vulkan 1.3 device, with subgroups of 32.
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

/// Everything known about a device before it is opened.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceInfo {
    /// Name of the device.
    pub name: String,
    /// PCI vendor id.
    pub vendor_id: u32,
    /// PCI device id.
    pub device_id: u32,
    /// `deviceUUID`: the same for a GPU in every process; all zero if unknown.
    pub uuid: [u8; 16],
    /// PCI domain, bus, device and function, if the driver reports them.
    pub pci: Option<[u32; 4]>,
    /// Name of the driver, such as `radv`.
    pub driver_name: String,
    /// Version of the driver as text.
    pub driver_info: String,
    /// Version of the driver as a number in its own format.
    pub driver_version: u32,
    /// `pipelineCacheUUID`: changes when cached pipelines become invalid.
    pub cache_uuid: [u8; 16],
    /// Vulkan version as (major, minor).
    pub api_version: (u32, u32),
    /// Kind of the device.
    pub kind: DeviceKind,
    /// Number of compute units or streaming multiprocessors, if the driver reports it.
    pub compute_units: Option<u32>,
    /// Memory heaps.
    pub heaps: Vec<Heap>,
    /// Memory types.
    pub memory_types: Vec<MemoryType>,
    /// Supported optional features.
    pub features: FeatureSet,
    /// Supported cooperative matrix shapes; empty without cooperative matrices.
    pub matrix_shapes: Vec<MatrixShape>,
    /// Limits.
    pub limits: Limits,
    /// Missing requirements. The device is unusable unless this is empty.
    pub missing: Vec<String>,
}

impl DeviceInfo {
    /// Returns a mock discrete card with every feature: 8 GiB of device memory, 256 MiB of it host-visible, and 32 GiB
    /// of host memory. For null devices and tests.
    pub fn mock(name: &str) -> Self {
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

    /// Whether the device meets the requirements of the runtime.
    pub fn usable(&self) -> bool {
        self.missing.is_empty()
    }

    /// Whether device and host share one memory.
    pub fn has_unified_memory(&self) -> bool {
        match self.kind {
            DeviceKind::Integrated | DeviceKind::Software => true,
            DeviceKind::Discrete => false,
            DeviceKind::Virtual | DeviceKind::Other => self.heaps.iter().all(|heap| heap.device_local),
        }
    }
}
