//! The rows of the tuning table.

use super::decode::{H200_DECODE, H200_DECODE_MANY, H200_DECODE_SHORT};
use super::gemv::{H200_GEMV, H200_SHAPES};
use super::matrix_tiles::{H200_EXPERTS, H200_MATRIX_TILES, H200_UNITS, SOFTWARE_EXPERTS, SOFTWARE_MATRIX};
use super::measurement::H200_MEASURED;
use super::tile::{DEFAULT_TILES, MINIMAL_TILES, NVIDIA_TILES, TILES_8X8, Tile};
use super::{AttentionTuning, DecodeTuning, DeltaTuning, GemvTuning, GroupCount, Tuning};
use crate::Architecture;

pub(super) const NVIDIA: u32 = 0x10de;
pub(super) const INTEL: u32 = 0x8086;
pub(super) const AMD: u32 = 0x1002;
/// Vendor id of Mesa's software drivers.
pub(crate) const MESA_SOFTWARE: u32 = 0x10005;

/// Measured on an H200 (driver 580) with 512 tokens of 32 heads of 128 × 128 values: 184 µs. One value per row of
/// invocations takes 202 µs, four values 264; tiles of 8 tokens 215, of 32 tokens 177 (but 301 with one value); 32
/// lanes per value 567. Chunked, 32 tokens per chunk take 83 µs, 16 tokens 92, 128 invocations 93. 64 tokens take 28 µs
/// recurrently and 21 chunked, plus one dispatch, which makes them equal. Not measured elsewhere.
const DELTA: DeltaTuning = DeltaTuning {
    values: 2,
    min_tokens: 8,
    lanes: 8,
    tile: 16,
    head_threads: 1024,
    head_threads_in_parts: 256,
    min_chunked_tokens: 128,
    chunk: 32,
    chunk_threads: 256,
};

/// A lane has a quarter of the state, so that RADV keeps all of it in registers on AMD cards. Not measured.
const FEW_REGISTERS_DELTA: DeltaTuning = DeltaTuning {
    values: 1,
    lanes: 16,
    tile: 8,
    ..DELTA
};

/// Measured on an H200.
pub(super) const H200: Tuning = Tuning {
    vendor: Some(NVIDIA),
    architecture: Some(Architecture::Hopper),
    measured: H200_MEASURED,
    min_subgroup_size: 32,
    dense: GemvTuning {
        loads: 4,
        batched_loads: 4,
        ..H200_GEMV
    },
    four_bit: GemvTuning {
        // 4096 × 4096 values of Q4_K take 10.7 µs here and 15.4 on matrix cores for three vectors. The gate and up of a
        // shared expert (2 × 512 × 2048) take 16 µs on matrix cores for eight vectors and longer here, but a step of
        // Qwen3.5-35B-A3B takes 4.9 ms instead of 5.1, since products of experts run beside them.
        max_weights_beside_matrix: 36 << 20,
        ..H200_GEMV
    },
    by_shape: &H200_SHAPES,
    eight_bit: GemvTuning {
        batched_loads: 2,
        ..H200_GEMV
    },
    fixed_point: true,
    tile: Tile {
        sizes: NVIDIA_TILES,
        max_splits: 16,
        target_groups: GroupCount::scaled(384, H200_UNITS),
    },
    matrix: H200_MATRIX_TILES,
    experts: H200_EXPERTS,
    attention: AttentionTuning {
        threads: 1024,
        grouped_threads: 128,
        threads_split: 256,
        max_heads_split: 2,
        max_splits: 16,
        max_heads: 4,
        target_groups: GroupCount::scaled(256, H200_UNITS),
        min_matrix_tokens: 64,
        matrix_fragments: 4,
        matrix_fragments_few: 2,
        matrix_subgroups: 8,
        matrix_subgroups_few: 4,
        target_matrix_groups: GroupCount::scaled(120, H200_UNITS),
    },
    decode: H200_DECODE,
    decode_many: &H200_DECODE_MANY,
    decode_short: Some(H200_DECODE_SHORT),
    delta: DELTA,
    max_serial_conv_tokens: 16,
    row_threads: 1024,
};

/// Other NVIDIA cards. Not measured; they run the same instructions.
const OTHER_NVIDIA: Tuning = Tuning {
    architecture: None,
    measured: &[],
    ..H200
};

/// GEMV on software drivers with two CPU cores, for any weight format.
const SOFTWARE_GEMV: GemvTuning = GemvTuning {
    threads: 128,
    rows: 2,
    loads: 1,
    batched_loads: 1,
    max_groups: GroupCount::fixed(65535),
    target_groups: GroupCount::fixed(1),
    staged_bytes: 32 << 10,
    unrolled: false,
    max_vectors: 8,
    max_vectors_beside_matrix: 2,
    max_weights_beside_matrix: 0,
};

/// GEMV on any device, for any weight format.
const MINIMAL_GEMV: GemvTuning = GemvTuning {
    threads: 128,
    rows: 1,
    loads: 1,
    batched_loads: 1,
    max_groups: GroupCount::fixed(65535),
    target_groups: GroupCount::fixed(1),
    staged_bytes: 12 << 10,
    unrolled: false,
    max_vectors: 4,
    max_vectors_beside_matrix: 4,
    max_weights_beside_matrix: 0,
};

/// Any GPU of common size. Not measured. Two workgroups share 64 KiB of shared memory.
const DEFAULT: Tuning = Tuning {
    vendor: None,
    architecture: None,
    measured: &[],
    min_subgroup_size: 8,
    dense: GemvTuning {
        threads: 256,
        rows: 1,
        loads: 2,
        batched_loads: 2,
        max_groups: GroupCount::fixed(65535),
        target_groups: GroupCount::fixed(1),
        staged_bytes: 28 << 10,
        unrolled: true,
        max_vectors: 8,
        max_vectors_beside_matrix: 2,
        max_weights_beside_matrix: 0,
    },
    four_bit: GemvTuning {
        threads: 256,
        rows: 2,
        loads: 4,
        batched_loads: 4,
        max_groups: GroupCount::fixed(65535),
        target_groups: GroupCount::fixed(1),
        staged_bytes: 28 << 10,
        unrolled: true,
        max_vectors: 8,
        max_vectors_beside_matrix: 2,
        max_weights_beside_matrix: 0,
    },
    by_shape: &[],
    eight_bit: GemvTuning {
        threads: 256,
        rows: 2,
        loads: 2,
        batched_loads: 2,
        max_groups: GroupCount::fixed(65535),
        target_groups: GroupCount::fixed(1),
        staged_bytes: 28 << 10,
        unrolled: true,
        max_vectors: 8,
        max_vectors_beside_matrix: 2,
        max_weights_beside_matrix: 0,
    },
    fixed_point: false,
    tile: Tile {
        sizes: DEFAULT_TILES,
        max_splits: 8,
        target_groups: GroupCount::scaled(128, 64),
    },
    matrix: H200_MATRIX_TILES,
    experts: H200_EXPERTS,
    attention: AttentionTuning {
        threads: 256,
        grouped_threads: 128,
        threads_split: 128,
        max_heads_split: 1,
        max_splits: 16,
        max_heads: 2,
        target_groups: GroupCount::scaled(128, 64),
        min_matrix_tokens: 64,
        matrix_fragments: 4,
        matrix_fragments_few: 4,
        matrix_subgroups: 8,
        matrix_subgroups_few: 4,
        target_matrix_groups: GroupCount::scaled(128, 64),
    },
    decode: DecodeTuning {
        threads: 256,
        positions: 64,
        max_heads: 2,
        min_heads: 1,
        by_subgroups: false,
        max_splits: 16,
        target_groups: GroupCount::scaled(128, 64),
        unrolled: true,
    },
    decode_many: &[],
    decode_short: None,
    delta: FEW_REGISTERS_DELTA,
    max_serial_conv_tokens: 16,
    row_threads: 256,
};

/// AMD cards. Not measured. Compiled by RADV, the kernels take few enough registers for a second workgroup.
const AMD_TILE: Tile = Tile {
    sizes: TILES_8X8,
    ..DEFAULT.tile
};

/// AMD GCN. Not measured. A compute unit has four SIMDs with 256 registers for each of 64 lanes, and 64 KiB of shared
/// memory. Compiled by RADV for hawaii, polaris10 and vega10, four chunks in flight take 104 registers per lane, which
/// allows two subgroups per SIMD. Two chunks take 52 to 56 registers, which allows four. Four workgroups of 256
/// invocations then get a quarter of the shared memory each.
pub(super) const GCN: Tuning = Tuning {
    vendor: Some(AMD),
    architecture: Some(Architecture::Gcn),
    min_subgroup_size: 64,
    dense: GemvTuning {
        staged_bytes: 13 << 10,
        ..DEFAULT.dense
    },
    four_bit: GemvTuning {
        loads: 2,
        batched_loads: 2,
        staged_bytes: 13 << 10,
        ..DEFAULT.four_bit
    },
    eight_bit: GemvTuning {
        staged_bytes: 13 << 10,
        ..DEFAULT.eight_bit
    },
    tile: AMD_TILE,
    ..DEFAULT
};

/// AMD RDNA. Not measured. Compiled by RADV for navi10, navi21 and gfx1100, kernels take at most 128 of 1024 registers,
/// which allows eight subgroups: more than two workgroups that share 64 KiB of shared memory have. So the sizes are
/// those of any GPU, but with twice as many subgroups per long row of a norm or reduction, since they are half as wide
/// as GCN's.
pub(super) const RDNA: Tuning = Tuning {
    vendor: Some(AMD),
    architecture: Some(Architecture::Rdna),
    min_subgroup_size: 32,
    tile: AMD_TILE,
    row_threads: 512,
    ..DEFAULT
};

/// The rows, the most specific first. The last fits every device.
pub const TABLE: [Tuning; 9] = [
    H200,
    OTHER_NVIDIA,
    Tuning {
        // Without integer dot products: one row at a time, as for floats.
        by_shape: &[],
        four_bit: GemvTuning {
            batched_loads: 2,
            ..H200_GEMV
        },
        eight_bit: GemvTuning {
            rows: 1,
            loads: 4,
            batched_loads: 4,
            ..H200_GEMV
        },
        fixed_point: false,
        ..OTHER_NVIDIA
    },
    // Tried on two CPU cores, without a record. Few invocations, since the subgroups of a workgroup run one after
    // another.
    Tuning {
        vendor: Some(MESA_SOFTWARE),
        architecture: None,
        measured: &[],
        min_subgroup_size: 4,
        dense: SOFTWARE_GEMV,
        four_bit: SOFTWARE_GEMV,
        by_shape: &[],
        eight_bit: SOFTWARE_GEMV,
        fixed_point: false,
        tile: Tile {
            sizes: DEFAULT_TILES,
            max_splits: 1,
            target_groups: GroupCount::fixed(1),
        },
        matrix: SOFTWARE_MATRIX,
        experts: SOFTWARE_EXPERTS,
        attention: AttentionTuning {
            threads: 16,
            grouped_threads: 16,
            threads_split: 16,
            max_heads_split: 1,
            max_splits: 8,
            max_heads: 4,
            target_groups: GroupCount::fixed(2),
            min_matrix_tokens: 64,
            matrix_fragments: 2,
            matrix_fragments_few: 2,
            matrix_subgroups: 8,
            matrix_subgroups_few: 4,
            target_matrix_groups: GroupCount::fixed(4),
        },
        decode: DecodeTuning {
            threads: 32,
            positions: 16,
            max_heads: 2,
            min_heads: 1,
            by_subgroups: false,
            max_splits: 8,
            target_groups: GroupCount::fixed(2),
            unrolled: false,
        },
        decode_many: &[],
        decode_short: None,
        delta: DeltaTuning {
            values: 1,
            min_tokens: 1,
            lanes: 8,
            tile: 8,
            head_threads: 8,
            head_threads_in_parts: 8,
            min_chunked_tokens: 16,
            chunk: 16,
            chunk_threads: 64,
        },
        max_serial_conv_tokens: 16,
        row_threads: 64,
    },
    GCN,
    RDNA,
    // Not measured: as any GPU, with fewer values per invocation. With subgroups of 16, registers have room for 64.
    Tuning {
        vendor: Some(INTEL),
        four_bit: GemvTuning {
            loads: 2,
            batched_loads: 2,
            ..DEFAULT.four_bit
        },
        attention: AttentionTuning {
            max_heads: 2,
            ..DEFAULT.attention
        },
        ..DEFAULT
    },
    DEFAULT,
    Tuning {
        vendor: None,
        architecture: None,
        measured: &[],
        min_subgroup_size: 1,
        dense: MINIMAL_GEMV,
        four_bit: MINIMAL_GEMV,
        by_shape: &[],
        eight_bit: MINIMAL_GEMV,
        fixed_point: false,
        tile: Tile {
            sizes: MINIMAL_TILES,
            max_splits: 8,
            target_groups: GroupCount::scaled(64, 32),
        },
        matrix: H200_MATRIX_TILES,
        experts: H200_EXPERTS,
        attention: AttentionTuning {
            threads: 128,
            grouped_threads: 128,
            threads_split: 128,
            max_heads_split: 1,
            max_splits: 8,
            max_heads: 2,
            target_groups: GroupCount::scaled(64, 32),
            min_matrix_tokens: 64,
            matrix_fragments: 4,
            matrix_fragments_few: 4,
            matrix_subgroups: 4,
            matrix_subgroups_few: 4,
            target_matrix_groups: GroupCount::scaled(64, 32),
        },
        decode: DecodeTuning {
            threads: 128,
            positions: 32,
            max_heads: 2,
            min_heads: 1,
            by_subgroups: false,
            max_splits: 8,
            target_groups: GroupCount::scaled(64, 32),
            unrolled: false,
        },
        decode_many: &[],
        decode_short: None,
        delta: FEW_REGISTERS_DELTA,
        max_serial_conv_tokens: 16,
        row_threads: 128,
    },
];
