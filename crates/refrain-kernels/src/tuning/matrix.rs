//! How products on matrix cores are divided.

use super::GroupCount;
use crate::Traits;
use crate::vocabulary::MatrixCores;

/// How a product on matrix cores is divided. Fragments are those of [`crate::fragments`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MatrixTile {
    /// The most tokens for which it is used.
    pub most_tokens: usize,
    /// The fewest values of a sum for which it is used.
    pub least_depth: usize,
    /// The most values of a sum for which it is used.
    pub most_depth: usize,
    /// The fewest workgroups for which it is used.
    pub least_groups: GroupCount,
    /// What the subgroups of a workgroup share.
    pub shared: SharedBy,
    /// Subgroups of a workgroup.
    pub subgroups: u32,
    /// Fragments of rows (of all matrices) of a subgroup.
    pub rows: u32,
    /// Fragments of tokens of a workgroup, where there are so many: if tokens are shared, a multiple of a
    /// quarter of its subgroups.
    pub tokens: u32,
    /// Whether these have half as many columns as rows: what it comes to where the device multiplies such and tokens are
    /// no more than that fills, not what a row says.
    pub narrow: bool,
    /// Halves that each value of x is taken as: 1, or, where sums are shared, 2, of which the second is what the
    /// first leaves.
    pub halves: u32,
    /// Workgroups that share a tile's sums over k where the device keeps tickets, each with whole blocks of it; if sums
    /// are shared by subgroups, 1.
    pub parts: u32,
    /// If sums are shared by subgroups: whether those of the later half of them are first added to those of the others,
    /// so that they meet in half of the shared memory and more workgroups live at once, which waits once more.
    pub folded: bool,
    /// Whether loops over a lane's values are unrolled.
    pub unrolled: bool,
}

impl MatrixTile {
    /// The most sums that a lane's registers hold.
    const MOST_SUMS: u32 = 128;

    /// Subgroups that take different rows.
    pub(crate) fn subgroups_apart(&self) -> u32 {
        match self.shared {
            SharedBy::Tokens => self.subgroups,
            SharedBy::Sums => 1,
        }
    }

    /// The tile for `tokens` tokens and `parts` matrices, smaller where it would not fit: each part has a
    /// fragment of rows.
    pub(super) fn with_room(&self, traits: &Traits, cores: MatrixCores, tokens: usize, parts: u32) -> MatrixTile {
        let size = cores.size;
        let mut tile = MatrixTile {
            rows: (self.rows / parts).max(1) * parts,
            ..*self
        };
        if tile.shared == SharedBy::Sums {
            // A last fragment of which half would be empty is half as large, and so are the others.
            let narrow = tokens.div_ceil(size as usize / 2) as u32;
            tile.narrow = cores.narrow && narrow % 2 == 1 && narrow < 2 * tile.tokens;
            tile.tokens = match tile.narrow {
                true => narrow,
                false => tile.tokens.min(narrow.div_ceil(2)),
            };
            while tile.subgroups > 1 && tile.met_bytes(size) + 1024 > traits.shared_bytes {
                tile.subgroups /= 2;
            }
        }
        let elements = size * tile.columns(size) / traits.subgroup_size;
        while tile.tokens > 1 && tile.rows * tile.tokens * elements > MatrixTile::MOST_SUMS {
            tile.tokens /= 2;
        }
        let is_hidden = cores.is_hidden();
        if tile.shared == SharedBy::Tokens {
            // Each invocation has a part of a stage to copy.
            let stage = if is_hidden { 2 } else { 4 };
            tile.subgroups = tile.subgroups.min(stage * tile.tokens);
        }
        if is_hidden {
            tile.make_room_to_pass(traits, size);
        }
        tile
    }

    /// Columns of a fragment of tokens, where it has `size` rows.
    pub(super) fn columns(&self, size: u32) -> u32 {
        if self.narrow { size / 2 } else { size }
    }

    /// Subgroups whose sums meet at last.
    pub(crate) fn subgroups_met(&self) -> u32 {
        match self.folded {
            true => self.subgroups.div_ceil(2),
            false => self.subgroups,
        }
    }

    /// Shared memory in which sums meet.
    fn met_bytes(&self, size: u32) -> u32 {
        4 * size * self.columns(size) * self.subgroups_met() * self.rows * self.tokens
    }

    /// Makes the tile smaller where fragments that go through shared memory would not fit beside the rest of it.
    fn make_room_to_pass(&mut self, traits: &Traits, size: u32) {
        loop {
            let fragment = 2 * size * size;
            let passed = self.subgroups * fragment * (self.rows + 2);
            let rest = match self.shared {
                SharedBy::Tokens => 2 * 4 * fragment * self.tokens,
                SharedBy::Sums => self.met_bytes(size),
            };
            match () {
                () if passed + rest + 1024 <= traits.shared_bytes => return,
                () if self.tokens > 1 && rest > passed => self.tokens /= 2,
                () if self.subgroups > 1 => self.subgroups /= 2,
                () => return,
            }
            if self.shared == SharedBy::Tokens {
                self.subgroups = self.subgroups.min(2 * self.tokens);
            }
        }
    }
}

/// How products of many tokens with the matrices of experts are divided on matrix cores.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Experts {
    /// The most experts for each pair of a token and an expert where matrix cores take the products.
    pub most_for_a_pair: usize,
    /// By an expert's tokens, if all have as many; the last is for any number.
    pub tiles: &'static [MatrixTile],
    /// Whether a tile's fragments in which an expert has no tokens are left out, by a branch before each product.
    pub skips: bool,
}

/// What the subgroups of a workgroup that multiplies fragments share.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SharedBy {
    /// The tokens: each has rows of its own.
    Tokens,
    /// Tokens and rows: each takes a part of the sums.
    Sums,
}

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
    unrolled: true,
};

/// The same of tiles whose subgroups share tokens.
const BY_TOKENS: MatrixTile = MatrixTile {
    shared: SharedBy::Tokens,
    ..BY_SUMS
};

/// Products on matrix cores, measured on an H200. What is too little to keep the device busy has both halves of x
/// for nothing.
pub(super) const MATRIX: &[MatrixTile] = &[
    // A head: 8 sequences of Qwen3-8B Q4_K_M on an H100 1,988 tokens/s, by the next 1,978.
    MatrixTile {
        most_tokens: 8,
        least_groups: GroupCount::of_units(1200, H200_UNITS),
        subgroups: 4,
        rows: 2,
        tokens: 1,
        ..BY_SUMS
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
        most_tokens: 16,
        least_groups: GroupCount::of_units(300, H200_UNITS),
        subgroups: 8,
        rows: 1,
        tokens: 1,
        ..BY_SUMS
    },
    // The same 2,005, by the next 1,978.
    MatrixTile {
        most_tokens: 8,
        least_depth: 4096,
        least_groups: GroupCount::of_units(240, H200_UNITS),
        subgroups: 16,
        rows: 1,
        tokens: 1,
        ..BY_SUMS
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
