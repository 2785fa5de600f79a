//! Tiles of GEMM kernels on matrix cores.

use super::GroupCount;
use crate::Traits;

/// Tile of a GEMM on matrix cores, in fragments of [`crate::fragments`], and when it is used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MatrixTile {
    /// Maximum number of tokens for which the tile is used.
    pub max_tokens: usize,
    /// Minimum K for which the tile is used.
    pub min_depth: usize,
    /// Maximum K for which the tile is used.
    pub max_depth: usize,
    /// Minimum number of workgroups for which the tile is used.
    pub min_groups: GroupCount,
    /// Dimension along which the subgroups of a workgroup split the tile.
    pub split: SubgroupSplit,
    /// Subgroups per workgroup.
    pub subgroups: u32,
    /// Fragments of rows (of all matrices) per subgroup.
    pub rows: u32,
    /// Fragments of tokens per workgroup, if the product has so many. With [`SubgroupSplit::Rows`], a multiple of a
    /// quarter of the subgroups.
    pub tokens: u32,
    /// Whether fragments of tokens have half as many columns as rows. Off in the table: the device and the number of
    /// tokens decide.
    pub narrow: bool,
    /// f16 terms per value of x: 1, or with [`SubgroupSplit::Depth`] 2. The second term is the rounding error of the
    /// first.
    pub x_terms: u32,
    /// Split-K: workgroups that share a tile, each with whole blocks of K, on devices with [`Traits::tickets`]. Always
    /// 1 with [`SubgroupSplit::Depth`].
    pub splits: u32,
    /// With [`SubgroupSplit::Depth`]: whether the upper half of the subgroups first adds its partial sums to those of
    /// the lower half. The reduction then takes half the shared memory, so more workgroups are resident, at the cost of
    /// one more barrier.
    pub two_phase: bool,
    /// With [`SubgroupSplit::Depth`]: whether a subgroup loads its next weights, then all of x for its present weights,
    /// before it multiplies. This takes registers.
    pub prefetch: bool,
    /// Whether loops over a lane's values are unrolled.
    pub unrolled: bool,
}

impl MatrixTile {
    /// Maximum number of accumulators that a lane keeps in registers.
    const MAX_ACCUMULATORS: u32 = 128;

    /// Number of subgroups with rows of their own.
    pub(crate) fn row_subgroups(&self) -> u32 {
        match self.split {
            SubgroupSplit::Rows => self.subgroups,
            SubgroupSplit::Depth => 1,
        }
    }

    /// Shrinks the tile until it fits registers and shared memory, for `tokens` tokens and `matrices` matrices. Each
    /// matrix has at least one fragment of rows.
    pub(super) fn shrunk_to_fit(&self, traits: &Traits, size: u32, tokens: usize, matrices: u32) -> MatrixTile {
        let mut tile = MatrixTile {
            rows: (self.rows / matrices).max(1) * matrices,
            ..*self
        };
        if tile.split == SubgroupSplit::Depth {
            tile.tokens = tile.tokens.min(tokens.div_ceil(tile.columns(size) as usize) as u32);
            while tile.subgroups > 1 && tile.reduction_bytes(size) + 1024 > traits.shared_bytes {
                tile.subgroups /= 2;
            }
        }
        let elements = size * tile.columns(size) / traits.subgroup_size;
        while tile.tokens > 1 && tile.rows * tile.tokens * elements > MatrixTile::MAX_ACCUMULATORS {
            tile.tokens /= 2;
        }
        let is_opaque = traits.matrix_cores.is_some_and(|cores| cores.is_opaque());
        if tile.split == SubgroupSplit::Rows {
            // Each invocation copies a part of a stage.
            tile.subgroups = tile.subgroups.min(stage_depth(traits) * tile.tokens);
        }
        if is_opaque {
            tile.shrink_for_staging(traits, size);
        }
        tile
    }

    /// The tile with three quarters of its tokens; `None` if its subgroups cannot divide the loads evenly.
    pub(super) fn three_quarters(&self, traits: &Traits) -> Option<MatrixTile> {
        let tokens = self.tokens / 4 * 3;
        let divides = self.split == SubgroupSplit::Rows
            && self.tokens.is_multiple_of(4)
            && (stage_depth(traits) * tokens).is_multiple_of(self.subgroups);
        divides.then_some(MatrixTile { tokens, ..*self })
    }

    /// The tile for `tokens` tokens. It is narrow if the device has narrow fragments and if half of the last fragment
    /// would be empty otherwise.
    pub(super) fn narrowed(&self, traits: &Traits, size: u32, tokens: usize) -> MatrixTile {
        let fragments = tokens.div_ceil(size as usize / 2) as u32;
        let is_odd = fragments % 2 == 1 && fragments < 2 * self.tokens;
        let narrow =
            self.split == SubgroupSplit::Depth && is_odd && traits.matrix_cores.is_some_and(|cores| cores.narrow);
        MatrixTile {
            narrow,
            tokens: if narrow { fragments } else { self.tokens },
            ..*self
        }
    }

    /// Columns of a fragment of tokens; `size` is its number of rows.
    pub(super) fn columns(&self, size: u32) -> u32 {
        if self.narrow { size / 2 } else { size }
    }

    /// Number of subgroups whose partial sums are in shared memory at once.
    pub(crate) fn reduction_subgroups(&self) -> u32 {
        if self.two_phase {
            self.subgroups.div_ceil(2)
        } else {
            self.subgroups
        }
    }

    /// Bytes of shared memory of the reduction over subgroups.
    fn reduction_bytes(&self, size: u32) -> u32 {
        4 * size * self.columns(size) * self.reduction_subgroups() * self.rows * self.tokens
    }

    /// Shrinks the tile until the fragments that are staged in shared memory fit beside its other uses.
    fn shrink_for_staging(&mut self, traits: &Traits, size: u32) {
        loop {
            let fragment = 2 * size * size;
            let staged = self.subgroups * fragment * (self.rows + 2);
            let rest = match self.split {
                SubgroupSplit::Rows => 2 * 4 * fragment * self.tokens,
                SubgroupSplit::Depth => self.reduction_bytes(size),
            };
            if staged + rest + 1024 <= traits.shared_bytes {
                return;
            } else if self.tokens > 1 && rest > staged {
                self.tokens /= 2;
            } else if self.subgroups > 1 {
                self.subgroups /= 2;
            } else {
                return;
            }
            if self.split == SubgroupSplit::Rows {
                self.subgroups = self.subgroups.min(2 * self.tokens);
            }
        }
    }
}

/// Fragments along k per stage of x in shared memory.
fn stage_depth(traits: &Traits) -> u32 {
    match traits.matrix_cores {
        Some(cores) if cores.is_opaque() => 2,
        _ => 4,
    }
}

/// Tiles of grouped GEMM (many tokens times the matrices of their experts) on matrix cores.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ExpertTuning {
    /// Matrix cores are used if the model has fewer experts than this times the number of (token, expert) pairs.
    pub max_experts_per_pair: usize,
    /// Tiles by the mean number of tokens per expert. The last is for any number.
    pub tiles: &'static [MatrixTile],
    /// Whether fragments without tokens are skipped, by a branch before each product.
    pub skip_empty: bool,
}

/// Dimension along which the subgroups of a workgroup split its tile.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SubgroupSplit {
    /// Each subgroup has its own rows; all share the tokens.
    Rows,
    /// Each subgroup has its own blocks of K (slice-K); their partial sums are added at the end.
    Depth,
}
