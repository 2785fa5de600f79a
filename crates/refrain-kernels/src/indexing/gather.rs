//! Gather kernel of [`crate::take`] and [`crate::take_along`]: each output element has an index along an axis of the
//! source.

use crate::kit::glsl;
use crate::kit::text::{self, SourceBuilder};
use crate::kit::walk::{Walk, check_reach};
use crate::{Call, DType, Layout, OperandSpec, Push, Traits, Unsupported, Values};

/// A gather with all operands broadcast to the output's shape.
pub(crate) struct Gather<'a> {
    pub(crate) op: &'static str,
    /// The source, with stride 0 where the output follows the indices.
    pub(crate) source: Layout,
    /// The indices, with stride 0 where the output follows the source.
    pub(crate) indices: Layout,
    /// Extent and stride of the indexed axis.
    pub(crate) axis: (usize, usize),
    /// The original operands: source, indices and output.
    pub(crate) operands: [&'a OperandSpec; 3],
}

impl Gather<'_> {
    pub(crate) fn call(&self, traits: &Traits) -> Result<Call, Unsupported> {
        let op = self.op;
        let [source, indices, out] = self.operands;
        check_index_dtype(op, indices)?;
        if source.dtype != out.dtype {
            return Err(Unsupported::DType { op, dtype: out.dtype });
        }
        check_reach(op, &source.layout)?;
        let walk = Walk::new(op, &[&self.source, &self.indices, &out.layout])?;
        let count = out.layout.count();
        let workgroup = traits.workgroup(256);
        let kernel = SourceBuilder::new(traits, "gather")
            .input("source", source.dtype)
            .input("indices", indices.dtype)
            .output("out", out.dtype)
            .body("#define WALKED 3u\n")
            .body(&format!("#define OUT_ZERO {}(0)\n", glsl::compute_type(out.dtype)))
            .body(include_str!("../kit/walk.glsl"))
            .body(include_str!("gather.comp"))
            .kernel(vec![(0, workgroup), (5, walk.rank())]);
        Ok(Call {
            kernel,
            groups: text::grid(op, count.div_ceil(workgroup as usize))?,
            push: vec![
                source.address(0),
                indices.address(1),
                out.address(2),
                Push::Record(walk.words()),
                Push::U32(count as u32),
                Push::U32(self.axis.0 as u32),
                Push::U32(self.axis.1 as u32),
            ],
        })
    }
}

/// Checks that the operand holds i32 or u32.
pub(crate) fn check_index_dtype(op: &'static str, indices: &OperandSpec) -> Result<(), Unsupported> {
    match indices.dtype {
        DType::I32 | DType::U32 => Ok(()),
        dtype => Err(Unsupported::DType { op, dtype }),
    }
}

/// Returns index `number` if it is less than `extent`.
///
/// # Panics
/// Panics if the indices are floats.
pub(crate) fn index_at(indices: &Values, number: usize, extent: usize) -> Option<usize> {
    let index = match indices {
        Values::I32(v) => usize::try_from(v[number]).ok(),
        Values::U32(v) => usize::try_from(v[number]).ok(),
        Values::F32(_) => panic!("indices are integers"),
    };
    index.filter(|&index| index < extent)
}
