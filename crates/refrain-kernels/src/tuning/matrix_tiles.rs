//! Tile tables of GEMM on matrix cores, which the rows of the tuning table refer to.

use super::GroupCount;
use super::matrix::{ExpertTuning, MatrixTile, SubgroupSplit};

/// Compute units (streaming multiprocessors) of an H200.
pub(super) const H200_UNITS: u32 = 132;

/// Base of tiles whose subgroups split K, with no bounds on the product.
const SPLIT_DEPTH: MatrixTile = MatrixTile {
    max_tokens: usize::MAX,
    min_depth: 0,
    max_depth: usize::MAX,
    min_groups: GroupCount::fixed(1),
    split: SubgroupSplit::Depth,
    subgroups: 1,
    rows: 1,
    tokens: 1,
    narrow: false,
    x_terms: 1,
    splits: 1,
    two_phase: false,
    prefetch: false,
    unrolled: true,
};

/// Base of prefetching tiles for up to 8 tokens.
const PREFETCHED: MatrixTile = MatrixTile {
    max_tokens: 8,
    prefetch: true,
    ..SPLIT_DEPTH
};

/// Base of tiles whose subgroups split rows.
const SPLIT_ROWS: MatrixTile = MatrixTile {
    split: SubgroupSplit::Rows,
    ..SPLIT_DEPTH
};

/// Tiles measured on an H200. Products too small to fill the device get two f16 terms of x at no cost.
///
/// Prefetching is for tiles whose weights NVIDIA's compiler loads only when they are needed. With it, gate and up of 8
/// tokens of Qwen3-8B take 24.9 instead of 28.5 µs (Q4_K; Q8_0 37.8 instead of 43.9). 3 and 8 sequences rise from 880
/// to 893 and from 2,241 to 2,273 tokens/s (Q4_0 971 to 988 and 2,455 to 2,510, Q8_0 691 to 717 and 1,764 to 1,832).
/// The output head is the exception: 177.7 instead of 169.4 µs.
pub(super) const H200_MATRIX_TILES: &[MatrixTile] = &[
    // Output head, 8 sequences of Qwen3-8B Q4_K_M on an H100: 1,988 tokens/s; with one fragment of rows 1,978.
    MatrixTile {
        max_tokens: 8,
        min_groups: GroupCount::scaled(1200, H200_UNITS),
        subgroups: 4,
        rows: 2,
        tokens: 1,
        ..SPLIT_DEPTH
    },
    MatrixTile {
        min_groups: GroupCount::scaled(300, H200_UNITS),
        subgroups: 4,
        rows: 4,
        ..PREFETCHED
    },
    MatrixTile {
        max_tokens: 16,
        min_groups: GroupCount::scaled(600, H200_UNITS),
        subgroups: 4,
        rows: 1,
        tokens: 1,
        ..SPLIT_DEPTH
    },
    MatrixTile {
        min_groups: GroupCount::scaled(300, H200_UNITS),
        subgroups: 8,
        ..PREFETCHED
    },
    MatrixTile {
        max_tokens: 16,
        min_groups: GroupCount::scaled(300, H200_UNITS),
        subgroups: 8,
        rows: 1,
        tokens: 1,
        ..SPLIT_DEPTH
    },
    // Same model: 2,005 tokens/s; with the next tile 1,978.
    MatrixTile {
        min_depth: 4096,
        min_groups: GroupCount::scaled(240, H200_UNITS),
        subgroups: 16,
        ..PREFETCHED
    },
    MatrixTile {
        max_tokens: 16,
        min_depth: 4096,
        min_groups: GroupCount::scaled(120, H200_UNITS),
        subgroups: 16,
        rows: 2,
        tokens: 1,
        ..SPLIT_DEPTH
    },
    MatrixTile {
        max_tokens: 16,
        min_groups: GroupCount::scaled(40, H200_UNITS),
        subgroups: 8,
        rows: 1,
        tokens: 1,
        ..SPLIT_DEPTH
    },
    // Same model, 24 and 32 sequences: 5,125 and 6,429 tokens/s; with 4 subgroups 4,950 and 6,323.
    MatrixTile {
        max_tokens: 32,
        min_groups: GroupCount::scaled(300, H200_UNITS),
        subgroups: 2,
        rows: 2,
        tokens: 2,
        ..SPLIT_DEPTH
    },
    MatrixTile {
        max_tokens: 32,
        min_groups: GroupCount::scaled(40, H200_UNITS),
        subgroups: 8,
        rows: 1,
        tokens: 2,
        ..SPLIT_DEPTH
    },
    MatrixTile {
        max_tokens: 64,
        min_groups: GroupCount::scaled(600, H200_UNITS),
        subgroups: 2,
        rows: 2,
        tokens: 4,
        two_phase: true,
        ..SPLIT_DEPTH
    },
    // 48 sequences of Qwen3-8B Q4_K_M on an H100: 7,158 tokens/s; with the next tile 7,041.
    MatrixTile {
        max_tokens: 48,
        min_depth: 8192,
        min_groups: GroupCount::scaled(100, H200_UNITS),
        subgroups: 8,
        rows: 1,
        tokens: 3,
        ..SPLIT_DEPTH
    },
    MatrixTile {
        max_tokens: 48,
        min_groups: GroupCount::scaled(40, H200_UNITS),
        subgroups: 4,
        rows: 1,
        tokens: 3,
        ..SPLIT_DEPTH
    },
    MatrixTile {
        max_tokens: 64,
        min_depth: 8192,
        min_groups: GroupCount::scaled(100, H200_UNITS),
        subgroups: 8,
        rows: 2,
        tokens: 4,
        two_phase: true,
        ..SPLIT_DEPTH
    },
    MatrixTile {
        max_tokens: 64,
        min_groups: GroupCount::scaled(300, H200_UNITS),
        subgroups: 4,
        rows: 1,
        tokens: 4,
        ..SPLIT_DEPTH
    },
    MatrixTile {
        max_tokens: 64,
        min_groups: GroupCount::scaled(190, H200_UNITS),
        subgroups: 8,
        rows: 1,
        tokens: 4,
        two_phase: true,
        ..SPLIT_DEPTH
    },
    MatrixTile {
        max_tokens: 128,
        min_groups: GroupCount::scaled(190, H200_UNITS),
        subgroups: 4,
        rows: 2,
        tokens: 4,
        ..SPLIT_ROWS
    },
    MatrixTile {
        max_tokens: 64,
        min_groups: GroupCount::scaled(40, H200_UNITS),
        subgroups: 4,
        rows: 1,
        tokens: 4,
        ..SPLIT_DEPTH
    },
    MatrixTile {
        max_tokens: 128,
        min_groups: GroupCount::scaled(40, H200_UNITS),
        subgroups: 2,
        rows: 1,
        tokens: 4,
        ..SPLIT_DEPTH
    },
    MatrixTile {
        max_tokens: 128,
        subgroups: 4,
        rows: 1,
        tokens: 4,
        x_terms: 2,
        ..SPLIT_DEPTH
    },
    MatrixTile {
        min_groups: GroupCount::scaled(320, H200_UNITS),
        subgroups: 8,
        rows: 2,
        tokens: 8,
        ..SPLIT_ROWS
    },
    // Small K. Prompts of 512 tokens of Qwen3-0.6B F16 on an H100: 110,040 tokens/s; with the next tile 106,590.
    MatrixTile {
        max_depth: 1024,
        min_groups: GroupCount::scaled(90, H200_UNITS),
        subgroups: 8,
        rows: 2,
        tokens: 8,
        ..SPLIT_ROWS
    },
    MatrixTile {
        min_groups: GroupCount::scaled(200, H200_UNITS),
        subgroups: 4,
        rows: 2,
        tokens: 4,
        ..SPLIT_ROWS
    },
    MatrixTile {
        min_groups: GroupCount::scaled(300, H200_UNITS),
        subgroups: 4,
        rows: 1,
        tokens: 4,
        ..SPLIT_ROWS
    },
    // Few rows. Same prompts: 110,340 tokens/s; with the tile after the next 106,590. Qwen3.5-35B-A3B: 13,545; with the
    // next tile 13,395.
    MatrixTile {
        min_groups: GroupCount::scaled(60, H200_UNITS),
        subgroups: 8,
        rows: 1,
        tokens: 4,
        splits: 2,
        ..SPLIT_ROWS
    },
    MatrixTile {
        min_groups: GroupCount::scaled(50, H200_UNITS),
        subgroups: 8,
        rows: 1,
        tokens: 8,
        splits: 2,
        ..SPLIT_ROWS
    },
    MatrixTile {
        min_groups: GroupCount::scaled(24, H200_UNITS),
        subgroups: 8,
        rows: 1,
        tokens: 8,
        splits: 4,
        ..SPLIT_ROWS
    },
    MatrixTile {
        subgroups: 4,
        rows: 1,
        tokens: 4,
        ..SPLIT_DEPTH
    },
];

/// Tiles of every kind for matrix cores that a software driver emulates; for tests.
pub(super) const SOFTWARE_MATRIX: &[MatrixTile] = &[
    MatrixTile {
        max_tokens: 24,
        subgroups: 2,
        rows: 1,
        tokens: 1,
        x_terms: 2,
        unrolled: false,
        ..SPLIT_DEPTH
    },
    MatrixTile {
        max_tokens: 64,
        subgroups: 2,
        rows: 1,
        tokens: 1,
        x_terms: 2,
        two_phase: true,
        unrolled: false,
        ..SPLIT_DEPTH
    },
    MatrixTile {
        subgroups: 4,
        rows: 1,
        tokens: 1,
        unrolled: false,
        ..SPLIT_ROWS
    },
];

/// Grouped GEMM over experts, measured on an H200 with 256 experts.
pub(super) const H200_EXPERTS: ExpertTuning = ExpertTuning {
    max_experts_per_pair: 4,
    tiles: &[
        MatrixTile {
            max_tokens: 1,
            subgroups: 2,
            rows: 2,
            tokens: 1,
            ..SPLIT_DEPTH
        },
        MatrixTile {
            max_tokens: 8,
            subgroups: 4,
            rows: 2,
            tokens: 1,
            ..SPLIT_ROWS
        },
        MatrixTile {
            max_tokens: 32,
            subgroups: 4,
            rows: 2,
            tokens: 2,
            ..SPLIT_ROWS
        },
        MatrixTile {
            subgroups: 4,
            rows: 2,
            tokens: 4,
            ..SPLIT_ROWS
        },
    ],
    skip_empty: false,
};

/// Grouped GEMM over experts for emulated matrix cores.
pub(super) const SOFTWARE_EXPERTS: ExpertTuning = ExpertTuning {
    max_experts_per_pair: 1,
    tiles: SOFTWARE_MATRIX,
    skip_empty: true,
};
