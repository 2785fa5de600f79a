//! How products on matrix cores are divided.

use super::GroupCount;
use crate::Traits;

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
    /// Whether these have half as many columns as rows: the table's rows say no, the device and the number of tokens decide.
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
    /// If sums are shared by subgroups: whether each asks for its next weights, then for all of x that meets those it has,
    /// before it multiplies these, which takes registers.
    pub pinned: bool,
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
    pub(super) fn with_room(&self, traits: &Traits, size: u32, tokens: usize, parts: u32) -> MatrixTile {
        let mut tile = MatrixTile {
            rows: (self.rows / parts).max(1) * parts,
            ..*self
        };
        if tile.shared == SharedBy::Sums {
            tile.tokens = tile.tokens.min(tokens.div_ceil(tile.columns(size) as usize) as u32);
            while tile.subgroups > 1 && tile.met_bytes(size) + 1024 > traits.shared_bytes {
                tile.subgroups /= 2;
            }
        }
        let elements = size * tile.columns(size) / traits.subgroup_size;
        while tile.tokens > 1 && tile.rows * tile.tokens * elements > MatrixTile::MOST_SUMS {
            tile.tokens /= 2;
        }
        let is_hidden = traits.matrix_cores.is_some_and(|cores| cores.is_hidden());
        if tile.shared == SharedBy::Tokens {
            // Each invocation has a part of a stage to copy.
            tile.subgroups = tile.subgroups.min(stage_depth(traits) * tile.tokens);
        }
        if is_hidden {
            tile.make_room_to_pass(traits, size);
        }
        tile
    }

    /// The tile with three quarters of its tokens, where its subgroups share them and can divide so many.
    pub(super) fn three_quarters(&self, traits: &Traits) -> Option<MatrixTile> {
        let tokens = self.tokens / 4 * 3;
        let divides = self.shared == SharedBy::Tokens
            && self.tokens.is_multiple_of(4)
            && (stage_depth(traits) * tokens).is_multiple_of(self.subgroups);
        divides.then_some(MatrixTile { tokens, ..*self })
    }

    /// The tile for `tokens` tokens, narrow if the device has such fragments and half of the last would be empty otherwise.
    pub(super) fn narrowed(&self, traits: &Traits, size: u32, tokens: usize) -> MatrixTile {
        let fragments = tokens.div_ceil(size as usize / 2) as u32;
        let is_odd = fragments % 2 == 1 && fragments < 2 * self.tokens;
        let narrow = self.shared == SharedBy::Sums && is_odd && traits.matrix_cores.is_some_and(|cores| cores.narrow);
        MatrixTile {
            narrow,
            tokens: if narrow { fragments } else { self.tokens },
            ..*self
        }
    }

    /// Columns of a fragment of tokens, where it has `size` rows.
    pub(super) fn columns(&self, size: u32) -> u32 {
        if self.narrow { size / 2 } else { size }
    }

    /// Subgroups whose sums meet at last.
    pub(crate) fn subgroups_met(&self) -> u32 {
        if self.folded {
            self.subgroups.div_ceil(2)
        } else {
            self.subgroups
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

/// Fragments along k that a stage of tokens has which subgroups share.
fn stage_depth(traits: &Traits) -> u32 {
    match traits.matrix_cores {
        Some(cores) if cores.is_hidden() => 2,
        _ => 4,
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
