//! Kernels: compute shaders with everything that specialises them.

use std::hash::{Hash, Hasher};

use crate::glsl::ShaderSource;

/// A shader's source and everything that specialises it. Equality ignores the name.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// Name for messages.
    pub name: String,
    /// Complete GLSL of a compute shader, starting with `#version`.
    pub source: ShaderSource,
    /// Macros defined before the source.
    pub defines: Vec<(String, String)>,
    /// Specialisation constants: `constant_id` and the 32-bit value.
    pub constants: Vec<(u32, u32)>,
    /// Push constants in bytes, a multiple of 4.
    pub push_bytes: u32,
    /// Required subgroup size. Ignored without [`Feature::SubgroupSizeControl`](crate::Feature::SubgroupSizeControl).
    pub subgroup_size: Option<u32>,
    /// Whether workgroups must consist of full subgroups. The first dimension of the workgroup must then be a multiple
    /// of the subgroup size. Ignored without [`Feature::FullSubgroups`](crate::Feature::FullSubgroups).
    pub full_subgroups: bool,
}

impl Kernel {
    /// Everything that distinguishes the kernel from others.
    fn key(&self) -> impl Hash + Eq {
        let Self {
            name: _,
            source,
            defines,
            constants,
            push_bytes,
            subgroup_size,
            full_subgroups,
        } = self;
        let source = (source.hash(), defines, constants);
        (source, *push_bytes, *subgroup_size, *full_subgroups)
    }
}

impl PartialEq for Kernel {
    fn eq(&self, other: &Kernel) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Kernel {}

impl Hash for Kernel {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

/// A statistic that a driver reports about the machine code of a kernel. Names and selection differ between drivers.
#[derive(Debug, Clone, PartialEq)]
pub struct Statistic {
    /// Name, such as `VGPRs`.
    pub name: String,
    /// Value; booleans are 1 or 0.
    pub value: f64,
}
