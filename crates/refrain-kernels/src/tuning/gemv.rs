//! Tuning of small-M GEMV: a matrix times a few vectors.

use refrain_quant::{QuantFormat, Scales};

use super::GroupCount;
use super::matrix_tiles::H200_UNITS;

/// Sizes of the small-M GEMV kernels.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GemvTuning {
    /// Invocations per workgroup. Each subgroup computes its own rows of the result.
    pub threads: u32,
    /// Rows (of all matrices) that a subgroup computes together, sharing its loads of the vectors. A power of two.
    pub rows: u32,
    /// Chunks of each row that an invocation has in flight. A chunk is 16 bytes of floats, 4-bit or 8-bit values. If a
    /// subgroup takes fewer rows, it loads proportionally more chunks of each.
    pub loads: u32,
    /// As `loads`, for products of several vectors: each vector takes registers and makes the kernel longer.
    pub batched_loads: u32,
    /// Maximum number of workgroups. With more rows, a workgroup takes several blocks of rows.
    pub max_groups: GroupCount,
    /// Workgroups that fill the device. If there would be fewer, they take fewer rows, then fewer invocations.
    pub target_groups: GroupCount,
    /// Maximum bytes of the vectors in shared memory. More would keep a second workgroup off the compute unit.
    pub staged_bytes: usize,
    /// Whether loops over an invocation's chunks and values are unrolled. Software drivers take seconds to compile
    /// unrolled loops.
    pub unrolled: bool,
    /// Maximum number of vectors; more use the tiled kernel. A power of two, at most 8.
    pub max_vectors: u32,
    /// Maximum number of vectors if matrix cores can compute the product too.
    pub max_vectors_beside_matrix: u32,
    /// Maximum number of weights times vectors but the first, for which that maximum is `max_vectors`: packing x for
    /// matrix cores is a step more.
    pub max_weights_beside_matrix: usize,
}

/// Sizes for products of certain shapes, which take precedence over the row's sizes for all shapes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ShapedGemv {
    /// Whether the entry is for matrices of experts, or for all others.
    pub routed: bool,
    /// Minimum and maximum bits of a weight. Floats count as 32.
    pub bits: [u32; 2],
    /// Minimum and maximum length of the dot products (K).
    pub depth: [usize; 2],
    /// Maximum number of rows of all sections together.
    pub max_rows: usize,
    /// Minimum and maximum number of vectors; of tokens for matrices of experts.
    pub vectors: [usize; 2],
    /// Whether the entry includes formats with two levels of scales.
    pub nested: bool,
    /// The sizes.
    pub gemv: GemvTuning,
}

impl ShapedGemv {
    /// Whether the entry applies to `vectors` vectors of `depth` values times `rows` rows. `format` is `None` for
    /// floats, `routed` is set for matrices of experts.
    pub(super) fn fits(&self, format: Option<QuantFormat>, [depth, rows, vectors]: [usize; 3], routed: bool) -> bool {
        let bits = format.map_or(32, |format| format.bits);
        let is_nested = format.is_some_and(|format| matches!(format.scales, Scales::Records(_)));
        self.routed == routed
            && (self.bits[0]..=self.bits[1]).contains(&bits)
            && (self.depth[0]..=self.depth[1]).contains(&depth)
            && rows <= self.max_rows
            && (self.vectors[0]..=self.vectors[1]).contains(&vectors)
            && (self.nested || !is_nested)
    }
}

/// Sizes for quantised matrices on an H200.
pub(super) const H200_GEMV: GemvTuning = GemvTuning {
    threads: 512,
    rows: 2,
    loads: 2,
    // Two sequences of Qwen3-8B Q4_K_M on an H100: 606 tokens/s; with two loads in flight per row 573.
    batched_loads: 1,
    max_groups: GroupCount::scaled(264, H200_UNITS),
    target_groups: GroupCount::scaled(128, H200_UNITS),
    staged_bytes: 41 << 10,
    unrolled: true,
    max_vectors: 8,
    // Qwen3-8B Q4_K_M, tokens/s with GEMV and on matrix cores: two sequences 585 and 491, three 655 and 736.
    max_vectors_beside_matrix: 2,
    max_weights_beside_matrix: 0,
};

/// Any number of vectors.
const ANY: [usize; 2] = [1, usize::MAX];

/// Sizes by shape on an H200. Short rows use small workgroups; few rows use more loads in flight.
///
/// 27 settings were measured for each product of a layer of Qwen3-0.6B, Qwen3-8B and Qwen3.5-35B-A3B on an H200 (driver
/// 580, read bandwidth 4.57 TB/s; Q4_0, Q4_K and MLX 4-bit). These entries take 2 to 16 % less time than [`H200_GEMV`].
/// More loads in flight do not help Q4_K.
///
/// The last two entries are for several long vectors, with two loads in flight per row of weights. Two sequences of
/// Qwen3-8B Q4_0 rise from 665 to 743 tokens/s; the down product of Q4_K falls from 20.0 to 18.1 µs. Gate and up of
/// Q4_K would rise from 29.5 to 32.4 µs for lack of registers.
///
/// Those for experts of one token, at most 512 rows, and 2048 values gain more in a whole decode step than in isolation:
/// kernels that load once are shorter, and each workgroup loads x for itself. On an H100, tokens/s with and without:
/// experts 393 and 379 (Qwen3-30B-A3B), 421 and 410 (Qwen3.5-35B-A3B); other products of 2048 values 400 and 393, 433 and
/// 417, but 1199 and 1212 (Qwen3-0.6B). A router of floats 428 and 419; a 4-bit router takes 7.4 instead of 8.7 µs.
pub(super) const H200_SHAPES: [ShapedGemv; 11] = [
    // Experts of several tokens: eight of 35B-A3B's 27.4 µs (gate and up) instead of 32.3, four of 30B-A3B's 22.9
    // instead of 26.8.
    ShapedGemv {
        routed: true,
        bits: [1, 4],
        depth: [1025, usize::MAX],
        max_rows: usize::MAX,
        vectors: [2, usize::MAX],
        nested: true,
        gemv: GemvTuning {
            threads: 256,
            rows: 4,
            loads: 1,
            max_groups: GroupCount::scaled(528, H200_UNITS),
            ..H200_GEMV
        },
    },
    ShapedGemv {
        routed: true,
        bits: [1, 4],
        depth: [1025, usize::MAX],
        max_rows: usize::MAX,
        vectors: ANY,
        nested: true,
        gemv: GemvTuning {
            rows: 1,
            max_groups: GroupCount::scaled(528, H200_UNITS),
            ..H200_GEMV
        },
    },
    ShapedGemv {
        routed: false,
        bits: [32, 32],
        depth: [1025, usize::MAX],
        max_rows: 512,
        vectors: ANY,
        nested: true,
        gemv: GemvTuning {
            loads: 4,
            batched_loads: 4,
            target_groups: GroupCount::scaled(32, H200_UNITS),
            ..H200_GEMV
        },
    },
    ShapedGemv {
        routed: false,
        bits: [1, 8],
        depth: [1025, 4096],
        max_rows: 512,
        vectors: ANY,
        nested: true,
        gemv: GemvTuning {
            loads: 1,
            target_groups: GroupCount::scaled(32, H200_UNITS),
            max_groups: GroupCount::scaled(528, H200_UNITS),
            ..H200_GEMV
        },
    },
    ShapedGemv {
        routed: false,
        bits: [1, 4],
        depth: [1025, 2048],
        max_rows: 65_536,
        vectors: ANY,
        nested: true,
        gemv: GemvTuning {
            loads: 1,
            max_groups: GroupCount::scaled(528, H200_UNITS),
            ..H200_GEMV
        },
    },
    ShapedGemv {
        routed: false,
        bits: [1, 4],
        depth: [1024, 1024],
        max_rows: 65_536,
        vectors: ANY,
        nested: true,
        gemv: GemvTuning {
            threads: 256,
            max_groups: GroupCount::scaled(528, H200_UNITS),
            ..H200_GEMV
        },
    },
    ShapedGemv {
        routed: false,
        bits: [1, 4],
        depth: [0, 1024],
        max_rows: usize::MAX,
        vectors: ANY,
        nested: true,
        gemv: GemvTuning {
            threads: 256,
            rows: 4,
            max_groups: GroupCount::scaled(528, H200_UNITS),
            target_groups: GroupCount::scaled(264, H200_UNITS),
            ..H200_GEMV
        },
    },
    ShapedGemv {
        routed: false,
        bits: [1, 4],
        depth: [2049, usize::MAX],
        max_rows: 4096,
        vectors: [1, 1],
        nested: false,
        gemv: GemvTuning { loads: 4, ..H200_GEMV },
    },
    ShapedGemv {
        routed: false,
        bits: [1, 4],
        depth: [2049, 4096],
        max_rows: 8192,
        vectors: [1, 1],
        nested: false,
        gemv: GemvTuning {
            threads: 256,
            max_groups: GroupCount::scaled(528, H200_UNITS),
            ..H200_GEMV
        },
    },
    DEEP_BATCHED,
    ShapedGemv {
        depth: [8192, usize::MAX],
        nested: true,
        ..DEEP_BATCHED
    },
];

/// Several long vectors.
const DEEP_BATCHED: ShapedGemv = ShapedGemv {
    routed: false,
    bits: [1, 4],
    depth: [2049, usize::MAX],
    max_rows: usize::MAX,
    vectors: [2, usize::MAX],
    nested: false,
    gemv: GemvTuning {
        batched_loads: 2,
        ..H200_GEMV
    },
};
