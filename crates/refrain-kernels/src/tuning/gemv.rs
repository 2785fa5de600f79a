//! How products of few vectors are divided.

use refrain_quant::{QuantFormat, Scales};

use super::GroupCount;
use super::matrix_tiles::H200_UNITS;

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
    /// The same of products of several vectors, of which each takes registers and text.
    pub loads_of_several: u32,
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
    /// The bits of the weights' values, from the fewest to the most: floats count as 32.
    pub bits: [u32; 2],
    /// The values that a sum is over: from the fewest to the most.
    pub depth: [usize; 2],
    /// The most rows of all sections together.
    pub most_rows: usize,
    /// Vectors: from the fewest to the most.
    pub vectors: [usize; 2],
    /// Whether formats with scales in two levels are meant too.
    pub nested: bool,
    /// How such products are divided.
    pub gemv: GemvTuning,
}

impl ShapedGemv {
    /// Whether it is for `vectors` vectors of `depth` values and `rows` rows of a format, or of floats, of experts or not.
    pub(super) fn fits(&self, format: Option<QuantFormat>, [depth, rows, vectors]: [usize; 3], routed: bool) -> bool {
        let bits = format.map_or(32, |format| format.bits);
        let is_nested = format.is_some_and(|format| matches!(format.scales, Scales::Records(_)));
        self.routed == routed
            && (self.bits[0]..=self.bits[1]).contains(&bits)
            && (self.depth[0]..=self.depth[1]).contains(&depth)
            && rows <= self.most_rows
            && (self.vectors[0]..=self.vectors[1]).contains(&vectors)
            && (self.nested || !is_nested)
    }
}

/// Quantised matrices on an H200.
pub(super) const H200_GEMV: GemvTuning = GemvTuning {
    threads: 512,
    rows: 2,
    loads: 2,
    // Two sequences of Qwen3-8B Q4_K_M on an H100: 606 tokens/s, with two of each row under way 573.
    loads_of_several: 1,
    most_groups: GroupCount::of_units(264, H200_UNITS),
    enough_groups: GroupCount::of_units(128, H200_UNITS),
    staged_bytes: 41 << 10,
    unrolled: true,
    most_vectors: 8,
    // Two sequences of Qwen3-8B Q4_K_M: 585 tokens/s, on matrix cores 491; three 655, there 736.
    most_beside_matrix: 2,
};

/// Any number of vectors.
const ANY: [usize; 2] = [1, usize::MAX];

/// Few values a row: small workgroups. Of few rows, more of each under way. With 27 divisions of each product of a
/// layer of Qwen3-0.6B, Qwen3-8B and Qwen3.5-35B-A3B on an H200 (driver 580, read bandwidth 4.57 TB/s, Q4_0, Q4_K and
/// MLX 4-bit) these take 2 to 16 % less than the row above; not so more of Q4_K under way. Several vectors of many values
/// have rows of their own, the last two, with two of each row of weights under way: two sequences of Qwen3-8B Q4_0 665 → 743
/// tokens/s, down of Q4_K 20.0 → 18.1 µs; gate and up of Q4_K would take 32.4 for 29.5, for want of registers.
///
/// Of the first four more is gained in tokens than alone, since kernels that load once have shorter texts, and each
/// workgroup brings x for itself. On an H100: experts 393 for 379 tokens/s (Qwen3-30B-A3B), 421 for 410 (Qwen3.5-35B-A3B),
/// other products of 2048 values 400 for 393 and 433 for 417, but 1199 for 1212 (Qwen3-0.6B); a router of floats 428 for 419,
/// one of 4 bits 7.4 for 8.7 µs.
pub(super) const H200_SHAPES: [ShapedGemv; 10] = [
    ShapedGemv {
        routed: true,
        bits: [1, 4],
        depth: [1025, usize::MAX],
        most_rows: usize::MAX,
        vectors: ANY,
        nested: true,
        gemv: GemvTuning {
            rows: 1,
            most_groups: GroupCount::of_units(528, H200_UNITS),
            ..H200_GEMV
        },
    },
    ShapedGemv {
        routed: false,
        bits: [32, 32],
        depth: [1025, usize::MAX],
        most_rows: 512,
        vectors: ANY,
        nested: true,
        gemv: GemvTuning {
            loads: 4,
            loads_of_several: 4,
            enough_groups: GroupCount::of_units(32, H200_UNITS),
            ..H200_GEMV
        },
    },
    ShapedGemv {
        routed: false,
        bits: [1, 8],
        depth: [1025, 4096],
        most_rows: 512,
        vectors: ANY,
        nested: true,
        gemv: GemvTuning {
            loads: 1,
            enough_groups: GroupCount::of_units(32, H200_UNITS),
            most_groups: GroupCount::of_units(528, H200_UNITS),
            ..H200_GEMV
        },
    },
    ShapedGemv {
        routed: false,
        bits: [1, 4],
        depth: [1025, 2048],
        most_rows: 65_536,
        vectors: ANY,
        nested: true,
        gemv: GemvTuning {
            loads: 1,
            most_groups: GroupCount::of_units(528, H200_UNITS),
            ..H200_GEMV
        },
    },
    ShapedGemv {
        routed: false,
        bits: [1, 4],
        depth: [1024, 1024],
        most_rows: 65_536,
        vectors: ANY,
        nested: true,
        gemv: GemvTuning {
            threads: 256,
            most_groups: GroupCount::of_units(528, H200_UNITS),
            ..H200_GEMV
        },
    },
    ShapedGemv {
        routed: false,
        bits: [1, 4],
        depth: [0, 1024],
        most_rows: usize::MAX,
        vectors: ANY,
        nested: true,
        gemv: GemvTuning {
            threads: 256,
            rows: 4,
            most_groups: GroupCount::of_units(528, H200_UNITS),
            enough_groups: GroupCount::of_units(264, H200_UNITS),
            ..H200_GEMV
        },
    },
    ShapedGemv {
        routed: false,
        bits: [1, 4],
        depth: [2049, usize::MAX],
        most_rows: 4096,
        vectors: [1, 1],
        nested: false,
        gemv: GemvTuning { loads: 4, ..H200_GEMV },
    },
    ShapedGemv {
        routed: false,
        bits: [1, 4],
        depth: [2049, 4096],
        most_rows: 8192,
        vectors: [1, 1],
        nested: false,
        gemv: GemvTuning {
            threads: 256,
            most_groups: GroupCount::of_units(528, H200_UNITS),
            ..H200_GEMV
        },
    },
    SEVERAL,
    ShapedGemv {
        depth: [8192, usize::MAX],
        nested: true,
        ..SEVERAL
    },
];

/// Several vectors of many values.
const SEVERAL: ShapedGemv = ShapedGemv {
    routed: false,
    bits: [1, 4],
    depth: [2049, usize::MAX],
    most_rows: usize::MAX,
    vectors: [2, usize::MAX],
    nested: false,
    gemv: GemvTuning {
        loads_of_several: 2,
        ..H200_GEMV
    },
};
