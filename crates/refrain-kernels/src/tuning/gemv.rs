//! How products of few vectors are divided.

use refrain_quant::{QuantFormat, Scales};

use super::GroupCount;

/// Matrix times few vectors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GemvTuning {
    /// Invocations per workgroup; each subgroup computes its own rows of the result.
    pub threads: u32,
    /// Rows (of all matrices) that one subgroup works on together, sharing what it loads of the vectors: a
    /// power of two.
    pub rows: u32,
    /// Chunks of each row that an invocation has in flight: 16 bytes each of floats, 4-bit or 8-bit
    /// values. Where it takes fewer rows, as many more.
    pub loads: u32,
    /// The most workgroups: where there are more rows, workgroups take several blocks of them.
    pub most_groups: GroupCount,
    /// Workgroups that keep the device busy: where there would be fewer, they take fewer rows, then are
    /// smaller.
    pub enough_groups: GroupCount,
    /// The most bytes of the vectors in shared memory: more would keep a second workgroup off the processor.
    pub staged_bytes: usize,
    /// Whether the loops over an invocation's chunks and their values are unrolled: software drivers then
    /// take seconds to compile them.
    pub unrolled: bool,
    /// The most vectors: beyond, the tiled product is used. A power of two, at most 8.
    pub most_vectors: u32,
    /// The most vectors where matrix cores can take more.
    pub most_beside_matrix: u32,
}

/// What suits some products better than the row for all of their kind.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ShapedGemv {
    /// Whether it is for matrices of experts that tokens are routed to, or for all others.
    pub routed: bool,
    /// The bits of the weights' values: from the fewest to the most.
    pub bits: [u32; 2],
    /// The values that a sum is over: from the fewest to the most.
    pub depth: [usize; 2],
    /// The most rows of all sections together.
    pub most_rows: usize,
    /// Whether formats with scales in two levels are meant too.
    pub nested: bool,
    /// How such products are divided.
    pub gemv: GemvTuning,
}

impl ShapedGemv {
    /// Whether it is for `rows` rows of `depth` values of a format, of experts or not.
    pub(super) fn fits(&self, format: QuantFormat, depth: usize, rows: usize, routed: bool) -> bool {
        self.routed == routed
            && (self.bits[0]..=self.bits[1]).contains(&format.bits)
            && (self.depth[0]..=self.depth[1]).contains(&depth)
            && rows <= self.most_rows
            && (self.nested || !matches!(format.scales, Scales::Records(_)))
    }
}
