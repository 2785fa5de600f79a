//! The rows of the table, by device.

use super::gemv::{H200_GEMV, H200_SHAPES};
use super::matrix_tiles::{EXPERTS, H200_UNITS, MATRIX, SOFTWARE_EXPERTS, SOFTWARE_MATRIX};
use super::measurement::H200_MEASURED;
use super::tile::{CARD_TILES, LEAST_TILES, NVIDIA_TILES, Tile, USUAL_TILES};
use super::{AttentionTuning, DecodeTuning, Delta, GemvTuning, GroupCount, Tuning};
use crate::Architecture;

pub(super) const NVIDIA: u32 = 0x10de;
pub(super) const INTEL: u32 = 0x8086;
pub(super) const AMD: u32 = 0x1002;
/// Mesa's software drivers.
pub(crate) const MESA_SOFTWARE: u32 = 0x10005;

/// For 512 tokens of 32 heads of 128 by 128 values on an H200 (driver 580): 184 µs; by one value 202, by four 264; by tiles
/// of 8 tokens 215, of 32 177, but 301 by one value; by lanes of 32 to a value 567. In chunks of 32 tokens 83 µs, of 16
/// 92; by 128 invocations 93. Of 64 tokens 28 µs in turn and 21 in chunks, which two dispatches make as slow. Measured on no
/// other.
const DELTA: Delta = Delta {
    values: 2,
    least_tokens: 8,
    lanes: 8,
    tile: 16,
    head_threads: 1024,
    least_chunked: 128,
    chunk: 32,
    chunk_threads: 256,
};

/// A lane has a quarter of that: what RADV compiles for AMD's cards keeps all of it in registers then. Measured on none.
const FEW_REGISTERS_DELTA: Delta = Delta {
    values: 1,
    lanes: 16,
    tile: 8,
    ..DELTA
};

/// 64 sequences of Qwen3-8B behind 290 tokens on an H200: 42.3 µs a layer; by 32 positions 49, by 256 invocations 66. On an
/// H100 by 2 heads 24 of them decode 4,855 tokens/s (by 4 4,695, by 256 invocations 4,620), but 31 of them 5,768 for 6,157,
/// and 32 5,896 for 6,255.
const H200_DECODE_MANY: [DecodeTuning; 2] = [
    DecodeTuning {
        threads: 128,
        most_heads: 4,
        enough_groups: GroupCount::of_units(200, H200_UNITS),
        ..H200_DECODE
    },
    DecodeTuning {
        threads: 128,
        enough_groups: GroupCount::of_units(272, H200_UNITS),
        ..H200_DECODE
    },
];

const H200_DECODE: DecodeTuning = DecodeTuning {
    threads: 256,
    positions: 64,
    most_heads: 2,
    most_parts: 64,
    enough_groups: GroupCount::of_units(264, H200_UNITS),
    unrolled: true,
};

/// Measured on an H200.
pub(super) const H200: Tuning = Tuning {
    vendor: Some(NVIDIA),
    architecture: Some(Architecture::Hopper),
    measured: H200_MEASURED,
    smallest_subgroup: 32,
    dense: GemvTuning {
        loads: 4,
        loads_of_several: 4,
        ..H200_GEMV
    },
    four_bit: H200_GEMV,
    by_shape: &H200_SHAPES,
    eight_bit: GemvTuning {
        loads_of_several: 2,
        ..H200_GEMV
    },
    fixed_point: true,
    tile: Tile {
        sizes: NVIDIA_TILES,
        most_parts: 16,
        enough_groups: GroupCount::of_units(384, H200_UNITS),
    },
    matrix: MATRIX,
    experts: EXPERTS,
    attention: AttentionTuning {
        threads: 1024,
        grouped_threads: 128,
        threads_split: 256,
        most_heads_split: 2,
        most_parts: 16,
        most_heads: 4,
        enough_groups: GroupCount::of_units(256, H200_UNITS),
        least_matrix_tokens: 64,
        matrix_fragments: 4,
        matrix_fragments_few: 2,
        matrix_subgroups: 8,
        matrix_subgroups_few: 4,
        enough_matrix_groups: GroupCount::of_units(120, H200_UNITS),
    },
    decode: H200_DECODE,
    decode_many: &H200_DECODE_MANY,
    delta: DELTA,
    most_convolved_in_turn: 16,
    row_threads: 1024,
};

/// NVIDIA's other cards, and these without dot products of bytes: not measured. They run the same instructions.
const OTHER_NVIDIA: Tuning = Tuning {
    architecture: None,
    measured: &[],
    ..H200
};

/// Matrices on two cores, however they are stored.
const SOFTWARE_GEMV: GemvTuning = GemvTuning {
    threads: 128,
    rows: 2,
    loads: 1,
    loads_of_several: 1,
    most_groups: GroupCount::fixed(65535),
    enough_groups: GroupCount::fixed(1),
    staged_bytes: 32 << 10,
    unrolled: false,
    most_vectors: 8,
    most_beside_matrix: 2,
};

/// Matrices on any device, however they are stored.
const LEAST_GEMV: GemvTuning = GemvTuning {
    threads: 128,
    rows: 1,
    loads: 1,
    loads_of_several: 1,
    most_groups: GroupCount::fixed(65535),
    enough_groups: GroupCount::fixed(1),
    staged_bytes: 12 << 10,
    unrolled: false,
    most_vectors: 4,
    most_beside_matrix: 4,
};

/// Any device of the usual size; measured on none. Two workgroups share 64 KiB of shared memory.
const USUAL: Tuning = Tuning {
    vendor: None,
    architecture: None,
    measured: &[],
    smallest_subgroup: 8,
    dense: GemvTuning {
        threads: 256,
        rows: 1,
        loads: 2,
        loads_of_several: 2,
        most_groups: GroupCount::fixed(65535),
        enough_groups: GroupCount::fixed(1),
        staged_bytes: 28 << 10,
        unrolled: true,
        most_vectors: 8,
        most_beside_matrix: 2,
    },
    four_bit: GemvTuning {
        threads: 256,
        rows: 2,
        loads: 4,
        loads_of_several: 4,
        most_groups: GroupCount::fixed(65535),
        enough_groups: GroupCount::fixed(1),
        staged_bytes: 28 << 10,
        unrolled: true,
        most_vectors: 8,
        most_beside_matrix: 2,
    },
    by_shape: &[],
    eight_bit: GemvTuning {
        threads: 256,
        rows: 2,
        loads: 2,
        loads_of_several: 2,
        most_groups: GroupCount::fixed(65535),
        enough_groups: GroupCount::fixed(1),
        staged_bytes: 28 << 10,
        unrolled: true,
        most_vectors: 8,
        most_beside_matrix: 2,
    },
    fixed_point: false,
    tile: Tile {
        sizes: USUAL_TILES,
        most_parts: 8,
        enough_groups: GroupCount::of_units(128, 64),
    },
    matrix: MATRIX,
    experts: EXPERTS,
    attention: AttentionTuning {
        threads: 256,
        grouped_threads: 128,
        threads_split: 128,
        most_heads_split: 1,
        most_parts: 16,
        most_heads: 2,
        enough_groups: GroupCount::of_units(128, 64),
        least_matrix_tokens: 64,
        matrix_fragments: 4,
        matrix_fragments_few: 4,
        matrix_subgroups: 8,
        matrix_subgroups_few: 4,
        enough_matrix_groups: GroupCount::of_units(128, 64),
    },
    decode: DecodeTuning {
        threads: 256,
        positions: 64,
        most_heads: 2,
        most_parts: 16,
        enough_groups: GroupCount::of_units(128, 64),
        unrolled: true,
    },
    decode_many: &[],
    delta: FEW_REGISTERS_DELTA,
    most_convolved_in_turn: 16,
    row_threads: 256,
};

/// AMD's cards; measured on none. What RADV compiles of it takes registers that leave room for another workgroup.
const AMD_TILE: Tile = Tile {
    sizes: CARD_TILES,
    ..USUAL.tile
};

/// AMD's GCN; measured on none. A processor has four times 256 registers for each of 64 lanes and 64 KiB of shared memory.
/// What RADV compiles for hawaii, polaris10 and vega10 takes 104 registers a lane with four chunks under way, which
/// leaves two subgroups to each quarter, and 52 to 56 with two, which leaves four; four workgroups of 256 then need a
/// quarter of the shared memory each.
pub(super) const GCN: Tuning = Tuning {
    vendor: Some(AMD),
    architecture: Some(Architecture::Gcn),
    smallest_subgroup: 64,
    dense: GemvTuning {
        staged_bytes: 13 << 10,
        ..USUAL.dense
    },
    four_bit: GemvTuning {
        loads: 2,
        loads_of_several: 2,
        staged_bytes: 13 << 10,
        ..USUAL.four_bit
    },
    eight_bit: GemvTuning {
        staged_bytes: 13 << 10,
        ..USUAL.eight_bit
    },
    tile: AMD_TILE,
    ..USUAL
};

/// AMD's RDNA; measured on none. What RADV compiles for navi10, navi21 and gfx1100 takes at most 128 of 1024 registers:
/// eight subgroups, more than two workgroups that share 64 KiB of shared memory have. So as any device, with twice as
/// many subgroups to a long row of a norm or a reduction: they are half as wide as GCN's.
pub(super) const RDNA: Tuning = Tuning {
    vendor: Some(AMD),
    architecture: Some(Architecture::Rdna),
    smallest_subgroup: 32,
    tile: AMD_TILE,
    row_threads: 512,
    ..USUAL
};

/// The rows, the most specific first. The last fits every device.
pub const TABLE: [Tuning; 9] = [
    H200,
    OTHER_NVIDIA,
    Tuning {
        // As floats, one row at a time.
        by_shape: &[],
        four_bit: GemvTuning {
            loads_of_several: 2,
            ..H200_GEMV
        },
        eight_bit: GemvTuning {
            rows: 1,
            loads: 4,
            loads_of_several: 4,
            ..H200_GEMV
        },
        fixed_point: false,
        ..OTHER_NVIDIA
    },
    // Tried on two cores, without a record: few invocations, since each subgroup of a workgroup takes its turn.
    Tuning {
        vendor: Some(MESA_SOFTWARE),
        architecture: None,
        measured: &[],
        smallest_subgroup: 4,
        dense: SOFTWARE_GEMV,
        four_bit: SOFTWARE_GEMV,
        by_shape: &[],
        eight_bit: SOFTWARE_GEMV,
        fixed_point: false,
        tile: Tile {
            sizes: USUAL_TILES,
            most_parts: 1,
            enough_groups: GroupCount::fixed(1),
        },
        matrix: SOFTWARE_MATRIX,
        experts: SOFTWARE_EXPERTS,
        attention: AttentionTuning {
            threads: 16,
            grouped_threads: 16,
            threads_split: 16,
            most_heads_split: 1,
            most_parts: 8,
            most_heads: 4,
            enough_groups: GroupCount::fixed(2),
            least_matrix_tokens: 64,
            matrix_fragments: 2,
            matrix_fragments_few: 2,
            matrix_subgroups: 8,
            matrix_subgroups_few: 4,
            enough_matrix_groups: GroupCount::fixed(4),
        },
        decode: DecodeTuning {
            threads: 32,
            positions: 16,
            most_heads: 2,
            most_parts: 8,
            enough_groups: GroupCount::fixed(2),
            unrolled: false,
        },
        decode_many: &[],
        delta: Delta {
            values: 1,
            least_tokens: 1,
            lanes: 8,
            tile: 8,
            head_threads: 8,
            least_chunked: 16,
            chunk: 16,
            chunk_threads: 64,
        },
        most_convolved_in_turn: 16,
        row_threads: 64,
    },
    GCN,
    RDNA,
    // Not measured: as any device, with fewer values to an invocation. By subgroups of 16, registers have
    // room for 64.
    Tuning {
        vendor: Some(INTEL),
        four_bit: GemvTuning {
            loads: 2,
            loads_of_several: 2,
            ..USUAL.four_bit
        },
        attention: AttentionTuning {
            most_heads: 2,
            ..USUAL.attention
        },
        ..USUAL
    },
    USUAL,
    Tuning {
        vendor: None,
        architecture: None,
        measured: &[],
        smallest_subgroup: 1,
        dense: LEAST_GEMV,
        four_bit: LEAST_GEMV,
        by_shape: &[],
        eight_bit: LEAST_GEMV,
        fixed_point: false,
        tile: Tile {
            sizes: LEAST_TILES,
            most_parts: 8,
            enough_groups: GroupCount::of_units(64, 32),
        },
        matrix: MATRIX,
        experts: EXPERTS,
        attention: AttentionTuning {
            threads: 128,
            grouped_threads: 128,
            threads_split: 128,
            most_heads_split: 1,
            most_parts: 8,
            most_heads: 2,
            enough_groups: GroupCount::of_units(64, 32),
            least_matrix_tokens: 64,
            matrix_fragments: 4,
            matrix_fragments_few: 4,
            matrix_subgroups: 4,
            matrix_subgroups_few: 4,
            enough_matrix_groups: GroupCount::of_units(64, 32),
        },
        decode: DecodeTuning {
            threads: 128,
            positions: 32,
            most_heads: 2,
            most_parts: 8,
            enough_groups: GroupCount::of_units(64, 32),
            unrolled: false,
        },
        decode_many: &[],
        delta: FEW_REGISTERS_DELTA,
        most_convolved_in_turn: 16,
        row_threads: 128,
    },
];
