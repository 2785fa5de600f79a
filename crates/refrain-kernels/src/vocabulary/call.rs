use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_128;

use super::MatrixCores;
use crate::tuning::Tuning;
use crate::{DType, Layout};

/// A line of cards that wants other sizes than others of its vendor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Architecture {
    /// NVIDIA's H100 and H200, and what is built of them.
    Hopper,
    /// AMD's cards that run 64 lanes together and no fewer: GCN, and CDNA after it.
    Gcn,
    /// AMD's cards that can run 32 lanes together: RDNA.
    Rdna,
    /// Any other.
    Unknown,
}

impl Architecture {
    /// That of a device by the name that its driver gives it and the fewest lanes that it runs together.
    pub fn of(vendor: u32, name: &str, least_lanes: u32) -> Architecture {
        const HOPPER: [&str; 6] = ["H100", "H200", "GH200", "H800", "H20", "H20-3e"];
        let is_one = |word: &str| HOPPER.contains(&word);
        match vendor {
            0x10de if name.split_whitespace().any(is_one) => Architecture::Hopper,
            0x1002 if least_lanes >= 64 => Architecture::Gcn,
            0x1002 => Architecture::Rdna,
            _ => Architecture::Unknown,
        }
    }
}

/// Where a device's memory is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MemoryKind {
    /// On its card.
    Discrete,
    /// With the host's.
    Unified,
}

/// What kernel choice may depend on: a device, as far as shaders can tell. Features that were
/// switched off by the user are off here too.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Traits {
    /// PCI vendor id (0x10de NVIDIA, 0x1002 AMD, 0x8086 Intel, 0x10005 Mesa software).
    pub vendor: u32,
    /// The line of cards.
    pub architecture: Architecture,
    /// Processors that take workgroups (compute units, streaming multiprocessors), where the driver tells.
    pub compute_units: Option<u32>,
    /// Where its memory is.
    pub memory: MemoryKind,
    /// Invocations per subgroup: a power of two, 4 to 128.
    pub subgroup_size: u32,
    /// Kernels are to be run by subgroups of just that size: the driver would choose among several.
    pub subgroup_required: bool,
    /// Workgroups of a multiple of so many invocations are made of full subgroups.
    pub full_subgroups: bool,
    /// Invocations of a subgroup that part come together again where the program's text says so
    /// (`VK_KHR_shader_subgroup_uniform_control_flow`).
    pub subgroup_uniform_flow: bool,
    /// `subgroupAdd`, `subgroupMax` … may be used in compute shaders.
    pub subgroup_arithmetic: bool,
    /// `subgroupShuffleXor` … may be used in compute shaders.
    pub subgroup_shuffle: bool,
    /// 16-bit loads and stores from buffers (f16, bf16 operands without word packing).
    pub storage16: bool,
    /// 8-bit loads and stores from buffers.
    pub storage8: bool,
    /// Fast dot products of four packed bytes.
    pub integer_dot: bool,
    /// `unpackHalf2x16` keeps subnormal halves, which devices may take for zeros.
    pub subnormal_halves: bool,
    /// What a workgroup writes is seen by the one that draws a later ticket: a promise of Vulkan's memory
    /// model that not every layer over another interface can keep. Without it a second dispatch joins what
    /// workgroups leave.
    pub tickets: bool,
    /// Largest workgroup, in invocations.
    pub max_invocations: u32,
    /// Bytes of push constants: 128 or more.
    pub push_bytes: u32,
    /// Shared memory per workgroup, in bytes.
    pub shared_bytes: u32,
    /// Products of fragments, where kernels know in which order lanes hold them.
    pub matrix_cores: Option<MatrixCores>,
    /// What the user has tuned, in place of the table's row.
    pub tuning: Option<Arc<Tuning>>,
}

impl Traits {
    /// The least that Vulkan 1.3 promises: what tests use to force the plainest variants.
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
            subnormal_halves: false,
            tickets: false,
            max_invocations: 128,
            push_bytes: 128,
            shared_bytes: 16 * 1024,
            matrix_cores: None,
            tuning: None,
        }
    }

    /// Whether kernels know which invocations share a subgroup, and these can read each other's values.
    pub fn exchanges_lanes(&self) -> bool {
        self.full_subgroups && self.subgroup_arithmetic && self.subgroup_shuffle
    }

    /// Invocations of a workgroup: the largest power of two that is at most `wanted` and that the
    /// device allows.
    pub fn workgroup(&self, wanted: u32) -> u32 {
        let most = wanted.min(self.max_invocations).max(1);
        1 << most.ilog2()
    }
}

/// A shader's text and what it is specialised with. Cloning shares them.
#[derive(Clone, Debug)]
pub struct KernelText {
    /// Family and variant, such as `rms_norm.f32.f16`: for people.
    pub name: Arc<str>,
    source: Arc<str>,
    identity: u128,
    /// Specialisation constants: (id, value). Constants 0, 1, 2 are the workgroup's size where the
    /// source says `layout(local_size_x_id = 0 …)`.
    pub constants: Arc<[(u32, u32)]>,
    /// Workgroups are to be made of full subgroups.
    pub full_subgroups: bool,
}

impl KernelText {
    /// A kernel of complete GLSL, from `#version` on.
    pub fn new(name: &str, source: String, constants: &[(u32, u32)]) -> KernelText {
        KernelText {
            name: name.into(),
            identity: xxh3_128(source.as_bytes()),
            source: source.into(),
            constants: constants.into(),
            full_subgroups: false,
        }
    }

    /// The GLSL.
    pub fn source(&self) -> &Arc<str> {
        &self.source
    }

    /// A hash of the GLSL, made with it: it stands for the text wherever kernels are looked for.
    pub fn identity(&self) -> u128 {
        self.identity
    }
}

/// One push-constant member, in the order in which the shader declares them (scalar layout).
#[derive(Clone, PartialEq, Debug)]
pub enum Push {
    /// The address of operand `operand` (inputs first, then outputs) plus `bytes`: 8 bytes.
    Address {
        /// Number of the operand.
        operand: usize,
        /// Bytes from the operand's start.
        bytes: u64,
    },
    /// The address of a constant record that the recorder keeps alive: 8 bytes.
    Record(Vec<u32>),
    /// An unsigned number: 4 bytes.
    U32(u32),
    /// A float: 4 bytes.
    F32(f32),
}

impl Push {
    /// Bytes this member takes.
    pub fn size(&self) -> u32 {
        match self {
            Push::Address { .. } | Push::Record(_) => 8,
            Push::U32(_) | Push::F32(_) => 4,
        }
    }
}

/// One dispatch, still symbolic.
#[derive(Clone, Debug)]
pub struct Call {
    /// What runs.
    pub kernel: KernelText,
    /// Workgroups in x, y, z: each at most 65,535.
    pub groups: [u32; 3],
    /// At most [`Traits::push_bytes`] together; addresses first, so that they are aligned.
    pub push: Vec<Push>,
}

/// What the calls of one computation wait for, beside what others wrote.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum CallOrder {
    /// Nothing: no call touches what another one writes.
    #[default]
    Apart,
    /// The first: the others read what it wrote, and touch nothing that another of them writes.
    BehindFirst,
    /// The one before.
    InTurn,
}

/// An operand as a kernel family sees it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct OperandSpec {
    /// Storage type.
    pub dtype: DType,
    /// Shape and strides.
    pub layout: Layout,
}

impl OperandSpec {
    /// A gapless row-major operand.
    pub fn contiguous(dtype: DType, shape: &[usize]) -> OperandSpec {
        OperandSpec {
            dtype,
            layout: Layout::contiguous(shape),
        }
    }

    /// The push member that holds this operand's first element's address, it being number `operand`.
    pub fn address(&self, operand: usize) -> Push {
        Push::Address {
            operand,
            bytes: (self.layout.offset * self.dtype.size()) as u64,
        }
    }
}

/// Why a family cannot compute something as asked.
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
    #[error("{op} needs operand {operand} without gaps")]
    NeedsContiguous {
        /// The family.
        op: &'static str,
        /// Number of the operand.
        operand: usize,
    },
    /// A size is beyond what the family or the device can do.
    #[error("{op}: {what}")]
    Size {
        /// The family.
        op: &'static str,
        /// What is too large or does not divide, with figures.
        what: String,
    },
}

impl From<refrain_quant::Unfit> for Unsupported {
    fn from(unfit: refrain_quant::Unfit) -> Unsupported {
        Unsupported::Size {
            op: "quantised",
            what: unfit.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_of_a_line_are_known_by_name_and_of_one_vendor() {
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
