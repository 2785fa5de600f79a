//! Tiles of GEMM kernels without matrix cores.

use super::matrix_tiles::H200_UNITS;
use super::{GroupCount, lanes};
use crate::Traits;

/// Sizes of the tiled GEMM, which is used for many tokens without matrix cores.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tile {
    /// Tile sizes; the first that suits a product is used. The last applies to every product.
    pub sizes: &'static [TileSize],
    /// Split-K: maximum number of workgroups per tile if there are too few tiles, on devices with [`Traits::tickets`].
    pub max_splits: u32,
    /// Workgroups that fill the device.
    pub target_groups: GroupCount,
}

/// Tile of a workgroup and register tile of an invocation. [`TileSize::divides_evenly`] checks the sizes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TileSize {
    /// Minimum number of workgroups for which the size is used.
    pub min_groups: GroupCount,
    /// Invocations along the result's rows.
    pub rows: u32,
    /// Invocations along the result's columns.
    pub columns: u32,
    /// Register blocking: rows and columns per invocation, in units of four.
    pub register_tile: [u32; 2],
    /// Slice-K: invocations per element, each with every `slices`-th product.
    pub slices: u32,
    /// Length along k of the tiles in shared memory.
    pub depth: u32,
}

impl Tile {
    /// Returns the tile size and the number of K splits for a product of `rows` rows with `matrices` matrices at once,
    /// whose values are loaded in runs of `run`.
    ///
    /// `tiles` returns the number of tiles of a size. `splits` returns the number of splits for a wanted number.
    /// `completes` says whether the device's driver runs the kernel's loops to their end.
    pub(crate) fn size(
        &self,
        traits: &Traits,
        [rows, matrices, run]: [usize; 3],
        tiles: impl Fn(&TileSize) -> usize,
        splits: impl Fn(&TileSize, u32) -> usize,
        completes: impl Fn(&TileSize) -> bool,
    ) -> (TileSize, usize) {
        let sizes = self
            .sizes
            .iter()
            .map(|size| size.for_matrices(matrices as u32, run as u32));
        let last = sizes.clone().next_back().expect("a row has sizes");
        // A tile that rows do not fill may compute up to half as much again as the smallest tile.
        let computed = |size: &TileSize| rows.next_multiple_of(size.tile_rows());
        let splits = |size: &TileSize| {
            let wanted = self.target_groups.on(traits) / tiles(size).max(1);
            splits(size, wanted.clamp(1, self.max_splits as usize) as u32)
        };
        let suits = |size: &TileSize| {
            2 * computed(size) <= 3 * computed(&last)
                && tiles(size) * splits(size) >= size.min_groups.on(traits)
                && size.fits_device(traits)
                && completes(size)
        };
        let size = sizes
            .clone()
            .find(suits)
            .unwrap_or_else(|| last.shrunk_to_fit(traits, run));
        (size, splits(&size))
    }
}

impl TileSize {
    /// Invocations of a workgroup.
    pub fn threads(&self) -> u32 {
        self.rows * self.columns * self.slices
    }

    /// Rows of a tile.
    pub fn tile_rows(&self) -> usize {
        (4 * self.rows * self.register_tile[0]) as usize
    }

    /// Columns of a tile, of all matrices.
    pub fn tile_columns(&self) -> usize {
        (4 * self.columns * self.register_tile[1]) as usize
    }

    /// Whether invocations load and compute equal parts of the tile. Kernels require it.
    pub fn divides_evenly(&self) -> bool {
        let quads = self.depth / 4;
        self.rows.is_multiple_of(2)
            && self.columns.is_multiple_of(8)
            && self.threads().is_multiple_of(16 * quads)
            && self.tile_rows().is_multiple_of((self.threads() / quads) as usize)
            && self.depth.is_multiple_of(4 * self.slices)
            && (4 * self.register_tile[0]).is_multiple_of(self.slices)
            // The reduction over slices reuses the shared memory of both operands.
            && self.threads() * self.register_tile[1] <= self.depth * self.row_stride()
    }

    /// Whether the device can run such a workgroup.
    pub(super) fn fits_device(&self, traits: &Traits) -> bool {
        let threads = lanes(traits)..=traits.max_invocations;
        self.shared_bytes() <= traits.shared_bytes && threads.contains(&self.threads())
    }

    /// Bytes of shared memory of a workgroup: both operands with a vec4 of padding per row, a factor for each row, and
    /// a number.
    pub fn shared_bytes(&self) -> u32 {
        16 * self.row_stride() * self.depth + 4 * self.tile_rows() as u32 + 16
    }

    fn row_stride(&self) -> u32 {
        2 + (self.tile_rows() + self.tile_columns()) as u32 / 4
    }

    /// The size with at least four columns of each matrix and with whole runs of values.
    fn for_matrices(&self, matrices: u32, run: u32) -> TileSize {
        let [rows, columns] = self.register_tile;
        TileSize {
            register_tile: [rows, (columns / matrices).max(1) * matrices],
            depth: self.depth.max(run),
            ..*self
        }
    }

    /// Reduces the depth or the rows until the tile fits shared memory.
    fn shrunk_to_fit(mut self, traits: &Traits, run: usize) -> TileSize {
        while self.shared_bytes() > traits.shared_bytes {
            let shallower = TileSize {
                depth: self.depth / 2,
                ..self
            };
            let fewer_rows = TileSize {
                rows: self.rows / 2,
                slices: 2 * self.slices,
                ..self
            };
            let possible = |size: &TileSize| size.depth as usize >= run && size.rows > 0 && size.divides_evenly();
            match [shallower, fewer_rows].into_iter().find(possible) {
                Some(size) => self = size,
                None => break,
            }
        }
        self
    }
}

/// Tile with 8 × 8 elements per invocation, for devices with enough registers. Larger tiles load less per product.
/// Smaller tiles yield more workgroups; their `threads` invocations split K (slice-K).
const fn tile_8x8(min_groups: usize, [rows, columns]: [u32; 2], threads: u32, depth: u32) -> TileSize {
    TileSize {
        min_groups: GroupCount::scaled(min_groups, H200_UNITS),
        rows,
        columns,
        register_tile: [2, 2],
        slices: threads / (rows * columns),
        depth,
    }
}

/// For cards with 255 registers per invocation: first 8 × 16 elements per invocation, then [`TILES_8X8`]. With the
/// first size, gate and up of 512 tokens take 2,542 µs. Gate and up of 256 tokens would take 1,671 instead of 1,319 µs,
/// and down 1,488 instead of 1,267 µs, for lack of workgroups. AMD's compilers spill some of the accumulators.
pub(super) const NVIDIA_TILES: &[TileSize] = &[
    TileSize {
        register_tile: [2, 4],
        ..tile_8x8(768, [16, 8], 128, 16)
    },
    tile_8x8(384, [8, 16], 128, 16),
    tile_8x8(250, [16, 8], 128, 16),
    tile_8x8(120, [8, 8], 256, 32),
    tile_8x8(120, [4, 8], 256, 64),
    // 32 × 32, for few tokens and few rows.
    TileSize {
        register_tile: [2, 1],
        ..tile_8x8(1, [4, 8], 256, 64)
    },
];

/// For cards with 128 registers for each of 512 invocations.
///
/// Sizes with 128 invocations were measured on an H200 with the Q4_0 matrices of Qwen3-8B and 512 tokens. Gate and up
/// take 2,605 µs with 64 × 128 and 2,621 µs with 128 × 64; down takes 1,400 and 1,267 µs on an H100. (Since loads are
/// interleaved with products, all are some per cent faster.) 128 × 128 with 256 invocations leaves one workgroup per
/// compute unit there. The other sizes were not measured.
pub(super) const TILES_8X8: &[TileSize] = NVIDIA_TILES.split_at(1).1;

/// For any GPU: 4 × 4 elements per invocation.
pub(super) const DEFAULT_TILES: &[TileSize] = &[TileSize {
    min_groups: GroupCount::fixed(1),
    rows: 16,
    columns: 16,
    register_tile: [1, 1],
    slices: 1,
    depth: 32,
}];

/// For devices with workgroups of 128 invocations and 16 KiB of shared memory.
pub(super) const MINIMAL_TILES: &[TileSize] = &[TileSize {
    min_groups: GroupCount::fixed(1),
    rows: 8,
    columns: 8,
    register_tile: [1, 1],
    slices: 2,
    depth: 32,
}];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::TABLE;

    #[test]
    fn all_tile_sizes_divide_evenly() {
        let small = Traits {
            max_invocations: 256,
            shared_bytes: 32 << 10,
            ..Traits::minimal()
        };
        let sizes = || TABLE.iter().flat_map(|row| row.tile.sizes);
        assert!(sizes().all(TileSize::divides_evenly));
        let runs = || {
            [4, 8, 16, 32]
                .into_iter()
                .flat_map(|run| [1, 2, 3].map(|matrices| (run, matrices)))
        };
        for traits in [Traits::minimal(), small] {
            for size in sizes().filter(|size| size.fits_device(&traits)) {
                for (run, matrices) in runs() {
                    let size = size.for_matrices(matrices, run);
                    assert!(size.divides_evenly() && size.depth.is_multiple_of(run), "{size:?}");
                }
            }
            // The last size of a row is the fallback.
            let last = TABLE.iter().filter_map(|row| row.tile.sizes.last());
            for size in last.filter(|size| size.fits_device(&traits)) {
                for (run, matrices) in runs() {
                    let size = size.for_matrices(matrices, run).shrunk_to_fit(&traits, run as usize);
                    assert!(size.divides_evenly() && size.depth.is_multiple_of(run), "{size:?}");
                    assert!(size.fits_device(&traits), "{size:?}");
                }
            }
        }
    }

    #[test]
    fn tiles_shrink_with_the_number_of_tokens_and_rows() {
        let traits = Traits {
            compute_units: Some(132),
            max_invocations: 1024,
            shared_bytes: 48 << 10,
            ..Traits::minimal()
        };
        let tile = Tile {
            sizes: NVIDIA_TILES,
            max_splits: 1,
            target_groups: GroupCount::scaled(384, H200_UNITS),
        };
        let sized = |max_splits: u32, tokens: usize, rows: usize| {
            let tiles = |size: &TileSize| tokens.div_ceil(size.tile_rows()) * rows.div_ceil(size.tile_columns());
            let tile = Tile { max_splits, ..tile };
            let (size, splits) = tile.size(&traits, [tokens, 1, 8], tiles, |_, wanted| wanted as usize, |_| true);
            ([size.tile_rows(), size.tile_columns()], splits)
        };
        assert_eq!(sized(16, 128, 24_576), ([64, 128], 1));
        assert_eq!(sized(16, 128, 6144), ([64, 128], 4));
        assert_eq!(sized(16, 128, 4096), ([64, 128], 6));
        assert_eq!(sized(16, 512, 4096), ([128, 64], 1));
        assert_eq!(sized(16, 32, 4096), ([32, 64], 6));
        let size = |tokens, rows| sized(1, tokens, rows).0;
        assert_eq!(size(512, 24_576), [128, 128]);
        assert_eq!(size(256, 24_576), [64, 128]);
        assert_eq!(size(512, 6144), [64, 128]);
        assert_eq!(size(512, 4096), [128, 64]);
        assert_eq!(size(512, 1024), [64, 64]);
        assert_eq!(size(128, 24_576), [64, 128]);
        assert_eq!(size(128, 4096), [64, 64]);
        assert_eq!(size(32, 24_576), [32, 64]);
        assert_eq!(size(32, 4096), [32, 32]);
        assert_eq!(size(12, 24_576), [32, 64]);
        assert_eq!(size(12, 1024), [32, 32], "the last size applies to every product");
        // Two tiles of 128 would be nearly half empty.
        assert_eq!(size(129, 12_288), [64, 64]);
    }
}
