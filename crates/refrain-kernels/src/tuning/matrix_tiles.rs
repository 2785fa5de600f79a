//! The divisions of products on matrix cores that devices' rows name.

use super::GroupCount;
use super::matrix::{Experts, MatrixTile, SharedBy};

/// Compute units of an H200.
pub(super) const H200_UNITS: u32 = 132;

/// What most tiles have in common whose subgroups share sums: for any product.
const BY_SUMS: MatrixTile = MatrixTile {
    most_tokens: usize::MAX,
    least_depth: 0,
    most_depth: usize::MAX,
    least_groups: GroupCount::fixed(1),
    shared: SharedBy::Sums,
    subgroups: 1,
    rows: 1,
    tokens: 1,
    narrow: false,
    halves: 1,
    parts: 1,
    folded: false,
    pinned: false,
    unrolled: true,
};

/// The same of tiles for up to 8 tokens that are pinned.
const PINNED: MatrixTile = MatrixTile {
    most_tokens: 8,
    pinned: true,
    ..BY_SUMS
};

/// The same of tiles whose subgroups share tokens.
const BY_TOKENS: MatrixTile = MatrixTile {
    shared: SharedBy::Tokens,
    ..BY_SUMS
};

/// Products on matrix cores, measured on an H200. What is too little to keep the device busy has both halves of x
/// for nothing. Pinned are those for which NVIDIA's compiler asked for weights when it needed them: gate and up of 8 tokens
/// of Qwen3-8B take 24.9 for 28.5 µs (Q4_K; Q8_0 37.8 for 43.9), 3 and 8 sequences 880 → 893 and 2,241 → 2,273 tokens/s (Q4_0
/// 971 → 988 and 2,455 → 2,510, Q8_0 691 → 717 and 1,764 → 1,832); not a head, which takes 177.7 for 169.4 µs.
pub(super) const MATRIX: &[MatrixTile] = &[
    // A head: 8 sequences of Qwen3-8B Q4_K_M on an H100 1,988 tokens/s, by a fragment of rows 1,978.
    MatrixTile {
        most_tokens: 8,
        least_groups: GroupCount::of_units(1200, H200_UNITS),
        subgroups: 4,
        rows: 2,
        tokens: 1,
        ..BY_SUMS
    },
    MatrixTile {
        least_groups: GroupCount::of_units(300, H200_UNITS),
        subgroups: 4,
        rows: 4,
        ..PINNED
    },
    MatrixTile {
        most_tokens: 16,
        least_groups: GroupCount::of_units(600, H200_UNITS),
        subgroups: 4,
        rows: 1,
        tokens: 1,
        ..BY_SUMS
    },
    MatrixTile {
        least_groups: GroupCount::of_units(300, H200_UNITS),
        subgroups: 8,
        ..PINNED
    },
    MatrixTile {
        most_tokens: 16,
        least_groups: GroupCount::of_units(300, H200_UNITS),
        subgroups: 8,
        rows: 1,
        tokens: 1,
        ..BY_SUMS
    },
    // The same 2,005, by the next 1,978.
    MatrixTile {
        least_depth: 4096,
        least_groups: GroupCount::of_units(240, H200_UNITS),
        subgroups: 16,
        ..PINNED
    },
    MatrixTile {
        most_tokens: 16,
        least_depth: 4096,
        least_groups: GroupCount::of_units(120, H200_UNITS),
        subgroups: 16,
        rows: 2,
        tokens: 1,
        ..BY_SUMS
    },
    MatrixTile {
        most_tokens: 16,
        least_groups: GroupCount::of_units(40, H200_UNITS),
        subgroups: 8,
        rows: 1,
        tokens: 1,
        ..BY_SUMS
    },
    // 24 and 32 sequences on the same 5,125 and 6,429 tokens/s, by 4 subgroups 4,950 and 6,323.
    MatrixTile {
        most_tokens: 32,
        least_groups: GroupCount::of_units(300, H200_UNITS),
        subgroups: 2,
        rows: 2,
        tokens: 2,
        ..BY_SUMS
    },
    MatrixTile {
        most_tokens: 32,
        least_groups: GroupCount::of_units(40, H200_UNITS),
        subgroups: 8,
        rows: 1,
        tokens: 2,
        ..BY_SUMS
    },
    MatrixTile {
        most_tokens: 64,
        least_groups: GroupCount::of_units(600, H200_UNITS),
        subgroups: 2,
        rows: 2,
        tokens: 4,
        folded: true,
        ..BY_SUMS
    },
    // 48 sequences of Qwen3-8B Q4_K_M on an H100: 7,158 tokens/s, by the next 7,041.
    MatrixTile {
        most_tokens: 48,
        least_depth: 8192,
        least_groups: GroupCount::of_units(100, H200_UNITS),
        subgroups: 8,
        rows: 1,
        tokens: 3,
        ..BY_SUMS
    },
    MatrixTile {
        most_tokens: 48,
        least_groups: GroupCount::of_units(40, H200_UNITS),
        subgroups: 4,
        rows: 1,
        tokens: 3,
        ..BY_SUMS
    },
    MatrixTile {
        most_tokens: 64,
        least_depth: 8192,
        least_groups: GroupCount::of_units(100, H200_UNITS),
        subgroups: 8,
        rows: 2,
        tokens: 4,
        folded: true,
        ..BY_SUMS
    },
    MatrixTile {
        most_tokens: 64,
        least_groups: GroupCount::of_units(300, H200_UNITS),
        subgroups: 4,
        rows: 1,
        tokens: 4,
        ..BY_SUMS
    },
    MatrixTile {
        most_tokens: 64,
        least_groups: GroupCount::of_units(190, H200_UNITS),
        subgroups: 8,
        rows: 1,
        tokens: 4,
        folded: true,
        ..BY_SUMS
    },
    MatrixTile {
        most_tokens: 128,
        least_groups: GroupCount::of_units(190, H200_UNITS),
        subgroups: 4,
        rows: 2,
        tokens: 4,
        ..BY_TOKENS
    },
    MatrixTile {
        most_tokens: 64,
        least_groups: GroupCount::of_units(40, H200_UNITS),
        subgroups: 4,
        rows: 1,
        tokens: 4,
        ..BY_SUMS
    },
    MatrixTile {
        most_tokens: 128,
        least_groups: GroupCount::of_units(40, H200_UNITS),
        subgroups: 2,
        rows: 1,
        tokens: 4,
        ..BY_SUMS
    },
    MatrixTile {
        most_tokens: 128,
        subgroups: 4,
        rows: 1,
        tokens: 4,
        halves: 2,
        ..BY_SUMS
    },
    MatrixTile {
        least_groups: GroupCount::of_units(320, H200_UNITS),
        subgroups: 8,
        rows: 2,
        tokens: 8,
        ..BY_TOKENS
    },
    // Short sums: prompts of 512 tokens of Qwen3-0.6B F16 on an H100 110,040 tokens/s, by the next 106,590.
    MatrixTile {
        most_depth: 1024,
        least_groups: GroupCount::of_units(90, H200_UNITS),
        subgroups: 8,
        rows: 2,
        tokens: 8,
        ..BY_TOKENS
    },
    MatrixTile {
        least_groups: GroupCount::of_units(200, H200_UNITS),
        subgroups: 4,
        rows: 2,
        tokens: 4,
        ..BY_TOKENS
    },
    MatrixTile {
        least_groups: GroupCount::of_units(300, H200_UNITS),
        subgroups: 4,
        rows: 1,
        tokens: 4,
        ..BY_TOKENS
    },
    // Few rows: 110,340 tokens/s of the same, by the next but one 106,590; Qwen3.5-35B-A3B 13,545, by the next 13,395.
    MatrixTile {
        least_groups: GroupCount::of_units(60, H200_UNITS),
        subgroups: 8,
        rows: 1,
        tokens: 4,
        parts: 2,
        ..BY_TOKENS
    },
    MatrixTile {
        least_groups: GroupCount::of_units(50, H200_UNITS),
        subgroups: 8,
        rows: 1,
        tokens: 8,
        parts: 2,
        ..BY_TOKENS
    },
    MatrixTile {
        least_groups: GroupCount::of_units(24, H200_UNITS),
        subgroups: 8,
        rows: 1,
        tokens: 8,
        parts: 4,
        ..BY_TOKENS
    },
    MatrixTile {
        subgroups: 4,
        rows: 1,
        tokens: 4,
        ..BY_SUMS
    },
];

/// Products on matrix cores that a processor plays: of each kind, for tests.
pub(super) const SOFTWARE_MATRIX: &[MatrixTile] = &[
    MatrixTile {
        most_tokens: 24,
        subgroups: 2,
        rows: 1,
        tokens: 1,
        halves: 2,
        unrolled: false,
        ..BY_SUMS
    },
    MatrixTile {
        most_tokens: 64,
        subgroups: 2,
        rows: 1,
        tokens: 1,
        halves: 2,
        folded: true,
        unrolled: false,
        ..BY_SUMS
    },
    MatrixTile {
        subgroups: 4,
        rows: 1,
        tokens: 1,
        unrolled: false,
        ..BY_TOKENS
    },
];

/// Products with the matrices of experts on matrix cores; measured on an H200 with 256 experts.
pub(super) const EXPERTS: Experts = Experts {
    most_for_a_pair: 3,
    tiles: &[
        MatrixTile {
            most_tokens: 1,
            subgroups: 2,
            rows: 2,
            tokens: 1,
            ..BY_SUMS
        },
        MatrixTile {
            most_tokens: 8,
            subgroups: 4,
            rows: 2,
            tokens: 1,
            ..BY_TOKENS
        },
        MatrixTile {
            most_tokens: 32,
            subgroups: 4,
            rows: 2,
            tokens: 2,
            ..BY_TOKENS
        },
        MatrixTile {
            subgroups: 4,
            rows: 2,
            tokens: 4,
            ..BY_TOKENS
        },
    ],
    skips: false,
};

/// Products with the matrices of experts on matrix cores that a processor plays.
pub(super) const SOFTWARE_EXPERTS: Experts = Experts {
    most_for_a_pair: 1,
    tiles: SOFTWARE_MATRIX,
    skips: true,
};
