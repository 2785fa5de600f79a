use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_128;

use super::MatrixCores;
use crate::tuning::Tuning;
use crate::{DType, Layout};

/// GPU architecture, as far as kernel sizes depend on it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Architecture {
    /// NVIDIA Hopper: H100, H200 and products built from them.
    Hopper,
    /// AMD GCN and CDNA: subgroups of at least 64 lanes.
    Gcn,
    /// AMD RDNA: subgroups of 32 lanes.
    Rdna,
    /// Any other.
    Unknown,
}

impl Architecture {
    /// Returns the architecture of a device from its vendor id, the name that its driver reports, and its minimum
    /// subgroup size.
    pub fn of(vendor: u32, name: &str, min_subgroup_size: u32) -> Architecture {
        const HOPPER: [&str; 6] = ["H100", "H200", "GH200", "H800", "H20", "H20-3e"];
        let is_hopper = |word: &str| HOPPER.contains(&word);
        match vendor {
            0x10de if name.split_whitespace().any(is_hopper) => Architecture::Hopper,
            0x1002 if min_subgroup_size >= 64 => Architecture::Gcn,
            0x1002 => Architecture::Rdna,
            _ => Architecture::Unknown,
        }
    }
}

/// Location of a device's memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MemoryKind {
    /// On the card.
    Discrete,
    /// Shared with the host.
    Unified,
}

/// Properties of a device that the choice of kernels depends on. Features that the user has disabled are off here too.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Traits {
    /// PCI vendor id (0x10de NVIDIA, 0x1002 AMD, 0x8086 Intel, 0x10005 Mesa software).
    pub vendor: u32,
    /// GPU architecture.
    pub architecture: Architecture,
    /// Number of compute units (streaming multiprocessors); `None` if the driver does not report it.
    pub compute_units: Option<u32>,
    /// Location of the memory.
    pub memory: MemoryKind,
    /// Invocations per subgroup: a power of two, 4 to 128.
    pub subgroup_size: u32,
    /// Pipelines must request that subgroup size, since the driver would choose among several.
    pub subgroup_required: bool,
    /// Workgroups of a multiple of `subgroup_size` invocations consist of full subgroups.
    pub full_subgroups: bool,
    /// Diverged invocations of a subgroup reconverge where the source says so
    /// (`VK_KHR_shader_subgroup_uniform_control_flow`).
    pub subgroup_uniform_flow: bool,
    /// Compute shaders may use `subgroupAdd`, `subgroupMax` …
    pub subgroup_arithmetic: bool,
    /// Compute shaders may use `subgroupShuffleXor` …
    pub subgroup_shuffle: bool,
    /// 16-bit loads and stores from buffers (f16, bf16 operands without word packing).
    pub storage16: bool,
    /// 8-bit loads and stores from buffers.
    pub storage8: bool,
    /// Fast dot products of four packed bytes.
    pub integer_dot: bool,
    /// `packHalf2x16` rounds to the nearest f16, ties to even, and `unpackHalf2x16` keeps subnormals. Neither is guaranteed.
    pub exact_halves: bool,
    /// Tickets (atomic counters that order workgroups) work: a workgroup sees what those with earlier tickets wrote.
    /// Vulkan's memory model guarantees it, but not every layer over another API can. Without tickets a second dispatch
    /// reduces the partial results of workgroups.
    pub tickets: bool,
    /// Largest workgroup, in invocations.
    pub max_invocations: u32,
    /// Bytes of push constants: 128 or more.
    pub push_bytes: u32,
    /// Shared memory per workgroup, in bytes.
    pub shared_bytes: u32,
    /// Matrix cores (cooperative matrices), if kernels can use them.
    pub matrix_cores: Option<MatrixCores>,
    /// The user's tuning row, which replaces the table's.
    pub tuning: Option<Arc<Tuning>>,
}

impl Traits {
    /// The minimum that Vulkan 1.3 guarantees. Tests use it to force the simplest kernel variants.
    pub fn minimal() -> Traits {
        Traits {
            vendor: 0,
            architecture: Architecture::Unknown,
            compute_units: None,
            memory: MemoryKind::Discrete,
            subgroup_size: 4,
            subgroup_required: false,
            full_subgroups: false,
            subgroup_uniform_flow: false,
            subgroup_arithmetic: false,
            subgroup_shuffle: false,
            storage16: false,
            storage8: false,
            integer_dot: false,
            exact_halves: false,
            tickets: false,
            max_invocations: 128,
            push_bytes: 128,
            shared_bytes: 16 * 1024,
            matrix_cores: None,
            tuning: None,
        }
    }

    /// Whether subgroup membership is known and lanes can exchange values.
    pub fn exchanges_lanes(&self) -> bool {
        self.full_subgroups && self.subgroup_arithmetic && self.subgroup_shuffle
    }

    /// Returns the largest power of two that is at most `wanted` and that the device allows as workgroup size.
    pub fn workgroup(&self, wanted: u32) -> u32 {
        let max = wanted.min(self.max_invocations).max(1);
        1 << max.ilog2()
    }
}

/// A shader's source and specialisation constants. Clones share them.
#[derive(Clone, Debug)]
pub struct KernelSource {
    /// Family and variant for display, such as `rms_norm.f32.f16`.
    pub name: Arc<str>,
    source: Arc<str>,
    identity: u128,
    /// Specialisation constants: (id, value). Constants 0, 1 and 2 are the workgroup size if the source says
    /// `layout(local_size_x_id = 0 …)`.
    pub constants: Arc<[(u32, u32)]>,
    /// The pipeline must require full subgroups.
    pub full_subgroups: bool,
}

impl KernelSource {
    /// Creates a kernel from complete GLSL source, from `#version` on.
    pub fn new(name: &str, source: String, constants: &[(u32, u32)]) -> KernelSource {
        KernelSource {
            name: name.into(),
            identity: xxh3_128(source.as_bytes()),
            source: source.into(),
            constants: constants.into(),
            full_subgroups: false,
        }
    }

    /// The GLSL source.
    pub fn source(&self) -> &Arc<str> {
        &self.source
    }

    /// Hash of the GLSL source, computed once. It identifies the source in caches.
    pub fn identity(&self) -> u128 {
        self.identity
    }
}

/// One push-constant member. Members have the order of the shader's declaration (scalar layout).
#[derive(Clone, PartialEq, Debug)]
pub enum Push {
    /// Address of an operand plus an offset: 8 bytes.
    Address {
        /// Operand number: inputs first, then outputs.
        operand: usize,
        /// Offset in bytes from the operand's start.
        bytes: u64,
    },
    /// Address of a buffer with these constant words, which the recorder keeps alive: 8 bytes.
    Record(Vec<u32>),
    /// An unsigned number: 4 bytes.
    U32(u32),
    /// A float: 4 bytes.
    F32(f32),
}

impl Push {
    /// Size in bytes.
    pub fn size(&self) -> u32 {
        match self {
            Push::Address { .. } | Push::Record(_) => 8,
            Push::U32(_) | Push::F32(_) => 4,
        }
    }
}

/// One dispatch with symbolic operands.
#[derive(Clone, Debug)]
pub struct Call {
    /// The kernel.
    pub kernel: KernelSource,
    /// Workgroups in x, y, z: each at most 65,535.
    pub groups: [u32; 3],
    /// Push constants, at most [`Traits::push_bytes`] in total. Addresses come first, so that they are aligned.
    pub push: Vec<Push>,
}

/// Dependencies among the calls of one computation.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum CallOrder {
    /// None: no call accesses what another one writes.
    #[default]
    Independent,
    /// Every call but the first reads what the first wrote, and accesses nothing that another one writes.
    AfterFirst,
    /// Every call depends on the one before it.
    Sequential,
}

/// An operand of a kernel family.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct OperandSpec {
    /// Storage type.
    pub dtype: DType,
    /// Shape and strides.
    pub layout: Layout,
}

impl OperandSpec {
    /// Creates a dense row-major operand.
    pub fn contiguous(dtype: DType, shape: &[usize]) -> OperandSpec {
        OperandSpec {
            dtype,
            layout: Layout::contiguous(shape),
        }
    }

    /// Returns the push member with the address of this operand's first element; `operand` is its number.
    pub fn address(&self, operand: usize) -> Push {
        Push::Address {
            operand,
            bytes: (self.layout.offset * self.dtype.size()) as u64,
        }
    }
}

/// Why a kernel family cannot compute something.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unsupported {
    /// The family has no kernel for this dtype.
    #[error("{op} has no kernel for {dtype}")]
    DType {
        /// The family.
        op: &'static str,
        /// The operand's dtype.
        dtype: DType,
    },
    /// An operand must be made contiguous (by a copy) before this family takes it.
    #[error("{op} needs a contiguous operand {operand}")]
    NeedsContiguous {
        /// The family.
        op: &'static str,
        /// Number of the operand.
        operand: usize,
    },
    /// A size exceeds a limit of the family or the device, or sizes do not match.
    #[error("{op}: {what}")]
    Size {
        /// The family.
        op: &'static str,
        /// The problem, with numbers.
        what: String,
    },
}

impl From<refrain_quant::UnsupportedFormat> for Unsupported {
    fn from(error: refrain_quant::UnsupportedFormat) -> Unsupported {
        Unsupported::Size {
            op: "quantised",
            what: error.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architecture_follows_from_vendor_name_and_subgroup_size() {
        for name in ["NVIDIA H200", "NVIDIA H100 80GB HBM3", "NVIDIA GH200 480GB"] {
            assert_eq!(Architecture::of(0x10de, name, 32), Architecture::Hopper, "{name}");
            assert_eq!(Architecture::of(0x8086, name, 32), Architecture::Unknown, "{name}");
        }
        for name in ["NVIDIA GeForce RTX 4090", "NVIDIA A100-SXM4-80GB", "NVIDIA RTX H2000"] {
            assert_eq!(Architecture::of(0x10de, name, 32), Architecture::Unknown, "{name}");
        }
        assert_eq!(Architecture::of(0x1002, "AMD Radeon RX 580", 64), Architecture::Gcn);
        assert_eq!(Architecture::of(0x1002, "AMD Radeon RX 6800", 32), Architecture::Rdna);
    }
}
