//! Sizes that depend on the device and not on the result: a table of rows, the first that matches
//! and fits is used. Families take a row explicitly in `call_tuned`, so every row can be tried anywhere.

use crate::Traits;

/// Matrix times few vectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Matvec {
    /// Invocations per workgroup; each subgroup computes its own rows of the result.
    pub threads: u32,
    /// Rows (of all matrices) that one subgroup works on together, sharing what it loads of the vectors: a
    /// power of two.
    pub rows: u32,
    /// Chunks of each row that an invocation has in flight: 16 bytes each of floats, 4-bit or 8-bit
    /// values. Where it takes fewer rows, as many more.
    pub loads: u32,
    /// The most workgroups: where there are more rows, workgroups take several blocks of them.
    pub most_groups: u32,
    /// Workgroups that keep the device busy: where there would be fewer, they take fewer rows, then are
    /// smaller.
    pub enough_groups: u32,
    /// Whether the loops over an invocation's chunks and their values are unrolled: software drivers then
    /// take seconds to compile them.
    pub unrolled: bool,
    /// The most vectors: beyond, the tiled product is used. A power of two, at most 8.
    pub most_vectors: u32,
    /// The most vectors where matrix cores can take more.
    pub most_beside_matrix: u32,
}

/// Tiled matrix product. Each invocation computes 4 × 4 elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tile {
    /// Invocations along the result's rows (a quarter of the tile's height).
    pub rows: u32,
    /// Invocations along the result's columns (a quarter of the tile's width).
    pub columns: u32,
    /// Products per element between two barriers: a multiple of 32 (a group of quantised values).
    pub depth: u32,
}

/// How a product on matrix cores is divided. Fragments are those of [`crate::fragments`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MatrixTile {
    /// The most tokens for which it is used.
    pub most_tokens: usize,
    /// The fewest workgroups for which it is used.
    pub least_groups: usize,
    /// What the subgroups of a workgroup share.
    pub shared: SharedBy,
    /// Subgroups of a workgroup.
    pub subgroups: u32,
    /// Fragments of rows (of all matrices) of a subgroup.
    pub rows: u32,
    /// Fragments of tokens of a workgroup, where there are so many: if tokens are shared, a multiple of a
    /// quarter of its subgroups.
    pub tokens: u32,
    /// Halves that each value of x is taken as: 1, or, where sums are shared, 2, of which the second is what the
    /// first leaves.
    pub halves: u32,
    /// Whether loops over a lane's values are unrolled.
    pub unrolled: bool,
}

impl MatrixTile {
    /// The most fragments of sums that a subgroup's registers hold.
    const MOST_SUMS: u32 = 16;

    /// Subgroups that take different rows.
    pub(crate) fn subgroups_apart(&self) -> u32 {
        match self.shared {
            SharedBy::Tokens => self.subgroups,
            SharedBy::Sums => 1,
        }
    }

    /// The tile for `tokens` tokens and `parts` matrices, smaller where it would not fit: each part has a
    /// fragment of rows.
    fn with_room(&self, traits: &Traits, size: u32, tokens: usize, parts: u32) -> MatrixTile {
        let mut tile = MatrixTile {
            rows: (self.rows / parts).max(1) * parts,
            ..*self
        };
        if tile.shared == SharedBy::Sums {
            tile.tokens = tile.tokens.min(tokens.div_ceil(size as usize) as u32);
            let bytes = |tile: &MatrixTile| 4 * size * size * tile.subgroups * tile.rows * tile.tokens;
            while tile.subgroups > 1 && bytes(&tile) + 1024 > traits.shared_bytes {
                tile.subgroups /= 2;
            }
        }
        while tile.tokens > 1 && tile.rows * tile.tokens > MatrixTile::MOST_SUMS {
            tile.tokens /= 2;
        }
        if tile.shared == SharedBy::Tokens {
            tile.subgroups = tile.subgroups.min(4 * tile.tokens);
        }
        tile
    }
}

/// What the subgroups of a workgroup that multiplies fragments share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SharedBy {
    /// The tokens: each has rows of its own.
    Tokens,
    /// Tokens and rows: each takes a part of the sums.
    Sums,
}

/// Attention: a workgroup takes one query head of one token; where there are so many that the device
/// is busy anyway, several heads that share a key head; where they are too few, a part of a head's
/// positions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attention {
    /// Invocations per workgroup of one head.
    pub threads: u32,
    /// Invocations per workgroup of several heads.
    pub threads_together: u32,
    /// Invocations per workgroup of a part of one head's positions.
    pub threads_split: u32,
    /// The most query heads that such a workgroup takes together.
    pub most_heads_split: u32,
    /// The most workgroups that share a head's positions: at most 64.
    pub most_parts: u32,
    /// The most query heads that a workgroup takes together.
    pub most_heads: u32,
    /// Workgroups that keep the device busy.
    pub enough_groups: usize,
    /// The fewest tokens that matrix cores take.
    pub least_matrix_tokens: usize,
    /// Fragments of positions that a subgroup with matrix cores takes together; half as many of heads of
    /// more than 128 values.
    pub matrix_fragments: usize,
}

/// Attention of single tokens: a workgroup takes some query heads of one key head, and a part of a
/// token's positions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decode {
    /// Invocations per workgroup: a multiple of `positions`.
    pub threads: u32,
    /// Positions that a workgroup goes through at a time: a power of two.
    pub positions: u32,
    /// The most query heads that a workgroup takes together.
    pub most_heads: u32,
    /// The most workgroups that share a token's positions.
    pub most_parts: u32,
    /// Workgroups that keep the device busy.
    pub enough_groups: usize,
    /// Whether loops over an invocation's values are unrolled.
    pub unrolled: bool,
}

/// One row of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tuning {
    /// The vendor for which the row was measured; `None` for any.
    pub vendor: Option<u32>,
    /// The smallest subgroup for which it is used.
    pub smallest_subgroup: u32,
    /// Matrix of floats times few vectors.
    pub dense: Matvec,
    /// Matrix of values of at most 4 bits times few vectors.
    pub four_bit: Matvec,
    /// Matrix of values of 5 to 8 bits times few vectors.
    pub eight_bit: Matvec,
    /// Whether few vectors are taken in fixed point where weights are quantised: for devices with fast dot
    /// products of bytes.
    pub fixed_point: bool,
    /// Tiled matrix product.
    pub tile: Tile,
    /// Products on matrix cores, by tokens; the last is for any number.
    pub matrix: &'static [MatrixTile],
    /// Attention.
    pub attention: Attention,
    /// Attention of single tokens.
    pub decode: Decode,
    /// Invocations per workgroup for norms and other reductions over a row.
    pub row_threads: u32,
}

/// Products on matrix cores, measured on an H200. What is too little to keep the device busy has both halves of x
/// for nothing.
const MATRIX: &[MatrixTile] = &[
    MatrixTile {
        most_tokens: 16,
        least_groups: 40,
        shared: SharedBy::Sums,
        subgroups: 8,
        rows: 1,
        tokens: 1,
        halves: 1,
        unrolled: true,
    },
    MatrixTile {
        most_tokens: 32,
        least_groups: 190,
        shared: SharedBy::Tokens,
        subgroups: 4,
        rows: 2,
        tokens: 2,
        halves: 1,
        unrolled: true,
    },
    MatrixTile {
        most_tokens: 32,
        least_groups: 40,
        shared: SharedBy::Sums,
        subgroups: 8,
        rows: 1,
        tokens: 2,
        halves: 1,
        unrolled: true,
    },
    MatrixTile {
        most_tokens: 128,
        least_groups: 190,
        shared: SharedBy::Tokens,
        subgroups: 4,
        rows: 2,
        tokens: 4,
        halves: 1,
        unrolled: true,
    },
    MatrixTile {
        most_tokens: 64,
        least_groups: 40,
        shared: SharedBy::Sums,
        subgroups: 4,
        rows: 1,
        tokens: 4,
        halves: 1,
        unrolled: true,
    },
    MatrixTile {
        most_tokens: 128,
        least_groups: 40,
        shared: SharedBy::Sums,
        subgroups: 2,
        rows: 1,
        tokens: 4,
        halves: 1,
        unrolled: true,
    },
    MatrixTile {
        most_tokens: 128,
        least_groups: 1,
        shared: SharedBy::Sums,
        subgroups: 4,
        rows: 1,
        tokens: 4,
        halves: 2,
        unrolled: true,
    },
    MatrixTile {
        most_tokens: usize::MAX,
        least_groups: 320,
        shared: SharedBy::Tokens,
        subgroups: 8,
        rows: 2,
        tokens: 8,
        halves: 1,
        unrolled: true,
    },
    MatrixTile {
        most_tokens: usize::MAX,
        least_groups: 1,
        shared: SharedBy::Tokens,
        subgroups: 4,
        rows: 2,
        tokens: 4,
        halves: 1,
        unrolled: true,
    },
];

/// Products on matrix cores that a processor plays.
const SOFTWARE_MATRIX: &[MatrixTile] = &[
    MatrixTile {
        most_tokens: 64,
        least_groups: 1,
        shared: SharedBy::Sums,
        subgroups: 2,
        rows: 1,
        tokens: 1,
        halves: 2,
        unrolled: false,
    },
    MatrixTile {
        most_tokens: usize::MAX,
        least_groups: 1,
        shared: SharedBy::Tokens,
        subgroups: 4,
        rows: 1,
        tokens: 1,
        halves: 1,
        unrolled: false,
    },
];

const NVIDIA: u32 = 0x10de;
const INTEL: u32 = 0x8086;
/// Mesa's software drivers.
pub(crate) const MESA_SOFTWARE: u32 = 0x10005;

/// Quantised matrices on an H200.
const H200_MATVEC: Matvec = Matvec {
    threads: 512,
    rows: 2,
    loads: 2,
    most_groups: 264,
    enough_groups: 128,
    unrolled: true,
    most_vectors: 8,
    most_beside_matrix: 2,
};

/// Measured on an H200.
const H200: Tuning = Tuning {
    vendor: Some(NVIDIA),
    smallest_subgroup: 32,
    dense: Matvec {
        loads: 4,
        ..H200_MATVEC
    },
    four_bit: H200_MATVEC,
    eight_bit: H200_MATVEC,
    fixed_point: true,
    tile: Tile {
        rows: 16,
        columns: 16,
        depth: 32,
    },
    matrix: MATRIX,
    attention: Attention {
        threads: 1024,
        threads_together: 128,
        threads_split: 256,
        most_heads_split: 2,
        most_parts: 16,
        most_heads: 4,
        enough_groups: 256,
        least_matrix_tokens: 64,
        matrix_fragments: 4,
    },
    decode: Decode {
        threads: 256,
        positions: 64,
        most_heads: 2,
        most_parts: 64,
        enough_groups: 264,
        unrolled: true,
    },
    row_threads: 1024,
};

/// Matrices on two cores, however they are stored.
const SOFTWARE_MATVEC: Matvec = Matvec {
    threads: 128,
    rows: 2,
    loads: 1,
    most_groups: 65535,
    enough_groups: 1,
    unrolled: false,
    most_vectors: 8,
    most_beside_matrix: 2,
};

/// Matrices on any device, however they are stored.
const LEAST_MATVEC: Matvec = Matvec {
    threads: 128,
    rows: 1,
    loads: 1,
    most_groups: 65535,
    enough_groups: 1,
    unrolled: false,
    most_vectors: 4,
    most_beside_matrix: 4,
};

/// Any device of the usual size; measured on none.
const USUAL: Tuning = Tuning {
    vendor: None,
    smallest_subgroup: 8,
    dense: Matvec {
        threads: 256,
        rows: 1,
        loads: 2,
        most_groups: 65535,
        enough_groups: 1,
        unrolled: true,
        most_vectors: 8,
        most_beside_matrix: 2,
    },
    four_bit: Matvec {
        threads: 256,
        rows: 2,
        loads: 4,
        most_groups: 65535,
        enough_groups: 1,
        unrolled: true,
        most_vectors: 8,
        most_beside_matrix: 2,
    },
    eight_bit: Matvec {
        threads: 256,
        rows: 2,
        loads: 2,
        most_groups: 65535,
        enough_groups: 1,
        unrolled: true,
        most_vectors: 8,
        most_beside_matrix: 2,
    },
    fixed_point: false,
    tile: Tile {
        rows: 16,
        columns: 16,
        depth: 32,
    },
    matrix: MATRIX,
    attention: Attention {
        threads: 256,
        threads_together: 128,
        threads_split: 128,
        most_heads_split: 1,
        most_parts: 16,
        most_heads: 4,
        enough_groups: 128,
        least_matrix_tokens: 64,
        matrix_fragments: 4,
    },
    decode: Decode {
        threads: 256,
        positions: 64,
        most_heads: 2,
        most_parts: 16,
        enough_groups: 128,
        unrolled: true,
    },
    row_threads: 256,
};

/// The rows, the most specific first. The last fits every device.
pub const TABLE: [Tuning; 6] = [
    H200,
    Tuning {
        // As floats, one row at a time.
        eight_bit: Matvec {
            rows: 1,
            loads: 4,
            ..H200_MATVEC
        },
        fixed_point: false,
        ..H200
    },
    // Measured on two cores: few invocations, since each subgroup of a workgroup takes its turn.
    Tuning {
        vendor: Some(MESA_SOFTWARE),
        smallest_subgroup: 4,
        dense: SOFTWARE_MATVEC,
        four_bit: SOFTWARE_MATVEC,
        eight_bit: SOFTWARE_MATVEC,
        fixed_point: false,
        tile: Tile {
            rows: 16,
            columns: 16,
            depth: 32,
        },
        matrix: SOFTWARE_MATRIX,
        attention: Attention {
            threads: 16,
            threads_together: 16,
            threads_split: 16,
            most_heads_split: 1,
            most_parts: 8,
            most_heads: 4,
            enough_groups: 2,
            least_matrix_tokens: 64,
            matrix_fragments: 2,
        },
        decode: Decode {
            threads: 32,
            positions: 16,
            most_heads: 2,
            most_parts: 8,
            enough_groups: 2,
            unrolled: false,
        },
        row_threads: 64,
    },
    // Not measured: as any device, with fewer values to an invocation. By subgroups of 16, registers have
    // room for 64.
    Tuning {
        vendor: Some(INTEL),
        four_bit: Matvec {
            loads: 2,
            ..USUAL.four_bit
        },
        attention: Attention {
            most_heads: 2,
            ..USUAL.attention
        },
        ..USUAL
    },
    USUAL,
    Tuning {
        vendor: None,
        smallest_subgroup: 1,
        dense: LEAST_MATVEC,
        four_bit: LEAST_MATVEC,
        eight_bit: LEAST_MATVEC,
        fixed_point: false,
        tile: Tile {
            rows: 8,
            columns: 8,
            depth: 32,
        },
        matrix: MATRIX,
        attention: Attention {
            threads: 128,
            threads_together: 128,
            threads_split: 128,
            most_heads_split: 1,
            most_parts: 8,
            most_heads: 2,
            enough_groups: 64,
            least_matrix_tokens: 64,
            matrix_fragments: 4,
        },
        decode: Decode {
            threads: 128,
            positions: 32,
            most_heads: 2,
            most_parts: 8,
            enough_groups: 64,
            unrolled: false,
        },
        row_threads: 128,
    },
];

impl Tuning {
    /// How a product of `tokens` tokens with `rows` rows of each of `parts` matrices is divided, where
    /// fragments have `size` rows.
    pub(crate) fn matrix_tile(&self, traits: &Traits, size: u32, [tokens, rows, parts]: [usize; 3]) -> MatrixTile {
        let tiles = self.matrix.iter().filter(|tile| tokens <= tile.most_tokens);
        let tiles = tiles.map(|tile| tile.with_room(traits, size, tokens, parts as u32));
        let groups = |tile: &MatrixTile| {
            let each = (tile.rows / parts as u32 * tile.subgroups_apart() * size) as usize;
            rows.div_ceil(each) * tokens.div_ceil((tile.tokens * size) as usize)
        };
        let mut tiles = tiles.skip_while(|tile| groups(tile) < tile.least_groups);
        tiles.next().expect("the last tile of a row is for any number")
    }

    /// Whether a device can run the row's kernels at all.
    pub fn fits(&self, traits: &Traits) -> bool {
        let threads = [
            self.dense.threads,
            self.four_bit.threads,
            self.eight_bit.threads,
            self.tile.rows * self.tile.columns,
            self.attention.threads,
            self.attention.threads_together,
            self.attention.threads_split,
            self.decode.threads,
            self.row_threads,
        ];
        let tile = 4 * (self.tile.rows + self.tile.columns) + 2;
        // Attention's other workgroups are no larger.
        let shared = (4 * tile * self.tile.depth).max(attention_bytes(self.attention.threads));
        threads
            .iter()
            .all(|&t| t <= traits.max_invocations && t >= lanes(traits))
            && shared <= traits.shared_bytes
    }
}

/// Shared memory of a workgroup of attention: a vec4 per invocation, beside the rows' maxima and sums.
pub(crate) fn attention_bytes(threads: u32) -> u32 {
    24 * threads
}

/// The row for a device.
pub fn choose(traits: &Traits) -> &'static Tuning {
    let matches = |row: &&Tuning| {
        row.vendor.is_none_or(|vendor| vendor == traits.vendor)
            && row.smallest_subgroup <= traits.subgroup_size
            && (traits.integer_dot || !row.fixed_point)
            && row.fits(traits)
    };
    TABLE.iter().find(matches).unwrap_or(&TABLE[TABLE.len() - 1])
}

/// Invocations that share a row where a subgroup is to take it: a subgroup, or, without subgroup
/// arithmetic, a number that suits a tree in shared memory.
pub(crate) fn lanes(traits: &Traits) -> u32 {
    if traits.subgroup_arithmetic {
        traits.subgroup_size
    } else {
        32
    }
}

/// Invocations per row of `columns` values, and rows per workgroup, for a reduction over rows: a few
/// values for each invocation.
pub(crate) fn row_lanes(traits: &Traits, columns: usize) -> (u32, u32) {
    let (threads, few) = (choose(traits).row_threads, lanes(traits));
    if columns > 16 * few as usize {
        let wanted = columns.div_ceil(4).next_power_of_two();
        (threads.min(wanted as u32), 1)
    } else {
        (few, threads.min(256) / few)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_row_fits_the_least_device() {
        let least = Traits::minimal();
        assert!(TABLE[TABLE.len() - 1].fits(&least));
        assert_eq!(choose(&least), &TABLE[TABLE.len() - 1]);
    }

    #[test]
    fn a_vendors_row_is_used_for_that_vendor_alone() {
        let traits = Traits {
            vendor: NVIDIA,
            subgroup_size: 32,
            subgroup_required: false,
            subgroup_arithmetic: true,
            storage16: true,
            storage8: true,
            integer_dot: true,
            subnormal_halves: true,
            tickets: true,
            max_invocations: 1024,
            shared_bytes: 49152,
            matrix_cores: None,
        };
        assert_eq!(choose(&traits), &H200);
        let without_dots = Traits {
            integer_dot: false,
            ..traits.clone()
        };
        assert!(choose(&without_dots).vendor == Some(NVIDIA) && !choose(&without_dots).fixed_point);
        let other = Traits {
            vendor: 0x1002,
            ..traits
        };
        assert_eq!(choose(&other).vendor, None);
        let intel = Traits {
            vendor: INTEL,
            subgroup_size: 16,
            ..other
        };
        assert_eq!(choose(&intel).vendor, Some(INTEL));
    }
}
