//! How products without matrix cores are divided.

use super::matrix_tiles::H200_UNITS;
use super::{GroupCount, lanes};
use crate::Traits;

/// Tiled matrix product, of many tokens where there are no matrix cores.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tile {
    /// Of these the first that suits a product; the last is for any.
    pub sizes: &'static [TileSize],
    /// The most workgroups that share a tile's sums over k, where there are too few tiles and the device keeps tickets.
    pub most_parts: u32,
    /// Workgroups that keep the device busy.
    pub enough_groups: GroupCount,
}

/// What a workgroup computes of a product, and by how many invocations ([`TileSize::is_even`] says which numbers fit).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TileSize {
    /// The fewest workgroups for which it is used.
    pub least_groups: GroupCount,
    /// Invocations along the result's rows.
    pub rows: u32,
    /// Invocations along the result's columns.
    pub columns: u32,
    /// Fours of rows, and of columns, of which an invocation computes the elements.
    pub fours: [u32; 2],
    /// Such invocations for each element, which take its products in turn.
    pub slices: u32,
    /// Products per element between two barriers.
    pub depth: u32,
}

impl Tile {
    /// How a product of `rows` rows with `parts` matrices at once is divided, the values of which come by so many as
    /// `run`; `results` tells the tiles that it has of a size, `shared` how many workgroups may share one, `completes`
    /// whether the device's driver lets its loops come to their ends. And how many share each.
    pub(crate) fn size(
        &self,
        traits: &Traits,
        [rows, parts, run]: [usize; 3],
        results: impl Fn(&TileSize) -> usize,
        shared: impl Fn(&TileSize, u32) -> usize,
        completes: impl Fn(&TileSize) -> bool,
    ) -> (TileSize, usize) {
        let sizes = self.sizes.iter().map(|size| size.of_parts(parts as u32, run as u32));
        let last = sizes.clone().next_back().expect("a row has sizes");
        // Half as much again as the smallest tiles compute, where rows fill no tile.
        let computed = |size: &TileSize| rows.next_multiple_of(size.tile_rows());
        let sharing = |size: &TileSize| {
            let wanted = self.enough_groups.on(traits) / results(size).max(1);
            shared(size, wanted.clamp(1, self.most_parts as usize) as u32)
        };
        let suits = |size: &TileSize| {
            2 * computed(size) <= 3 * computed(&last)
                && results(size) * sharing(size) >= size.least_groups.on(traits)
                && size.has_room(traits)
                && completes(size)
        };
        let size = sizes.clone().find(suits).unwrap_or_else(|| last.with_room(traits, run));
        (size, sharing(&size))
    }
}

impl TileSize {
    /// Invocations of a workgroup.
    pub fn threads(&self) -> u32 {
        self.rows * self.columns * self.slices
    }

    /// Rows of a tile.
    pub fn tile_rows(&self) -> usize {
        (4 * self.rows * self.fours[0]) as usize
    }

    /// Columns of a tile, of all matrices.
    pub fn tile_columns(&self) -> usize {
        (4 * self.columns * self.fours[1]) as usize
    }

    /// Whether invocations have equal parts of what is loaded and computed, as they must.
    pub fn is_even(&self) -> bool {
        let fours = self.depth / 4;
        self.rows.is_multiple_of(2)
            && self.columns.is_multiple_of(8)
            && self.threads().is_multiple_of(16 * fours)
            && self.tile_rows().is_multiple_of((self.threads() / fours) as usize)
            && self.depth.is_multiple_of(4 * self.slices)
            && (4 * self.fours[0]).is_multiple_of(self.slices)
            // Sums of slices meet in the memory of both sides.
            && self.threads() * self.fours[1] <= self.depth * self.line()
    }

    /// Whether a workgroup is none that the device cannot run.
    pub(super) fn has_room(&self, traits: &Traits) -> bool {
        let threads = lanes(traits)..=traits.max_invocations;
        self.shared_bytes() <= traits.shared_bytes && threads.contains(&self.threads())
    }

    /// Shared memory of a workgroup: both sides, a vec4 between lines; a factor for each row, and a number.
    pub fn shared_bytes(&self) -> u32 {
        16 * self.line() * self.depth + 4 * self.tile_rows() as u32 + 16
    }

    fn line(&self) -> u32 {
        2 + (self.tile_rows() + self.tile_columns()) as u32 / 4
    }

    /// The same with a four of columns of each matrix at least, and runs of values whole.
    fn of_parts(&self, parts: u32, run: u32) -> TileSize {
        let [rows, columns] = self.fours;
        TileSize {
            fours: [rows, (columns / parts).max(1) * parts],
            depth: self.depth.max(run),
            ..*self
        }
    }

    /// The same, less deep or with fewer rows, if it needs too much shared memory.
    fn with_room(mut self, traits: &Traits, run: usize) -> TileSize {
        while self.shared_bytes() > traits.shared_bytes {
            let shallower = TileSize {
                depth: self.depth / 2,
                ..self
            };
            let lower = TileSize {
                rows: self.rows / 2,
                slices: 2 * self.slices,
                ..self
            };
            let possible = |size: &TileSize| size.depth as usize >= run && size.rows > 0 && size.is_even();
            match [shallower, lower].into_iter().find(possible) {
                Some(size) => self = size,
                None => break,
            }
        }
        self
    }
}

/// 8 × 8 elements to an invocation: where there are registers for them. The larger a tile, the less is loaded for a
/// product; smaller ones are more, and their `threads` invocations take an element's products in turn.
const fn eights(least_groups: usize, [rows, columns]: [u32; 2], threads: u32, depth: u32) -> TileSize {
    TileSize {
        least_groups: GroupCount::of_units(least_groups, H200_UNITS),
        rows,
        columns,
        fours: [2, 2],
        slices: threads / (rows * columns),
        depth,
    }
}

/// Of cards that give an invocation 255 registers: 8 × 16 elements to one before [`CARD_TILES`]. Gate and up of 512 tokens take
/// 2,542 µs, but 1,671 of 256 (1,319), and down 1,488 (1,267): there are too few. AMD's compilers keep some in memory.
pub(super) const NVIDIA_TILES: &[TileSize] = &[
    TileSize {
        fours: [2, 4],
        ..eights(768, [16, 8], 128, 16)
    },
    eights(384, [8, 16], 128, 16),
    eights(250, [16, 8], 128, 16),
    eights(120, [8, 8], 256, 32),
    eights(120, [4, 8], 256, 64),
    // 32 × 32, as few tokens meet few rows.
    TileSize {
        fours: [2, 1],
        ..eights(1, [4, 8], 256, 64)
    },
];

/// Of cards with 128 registers for each of 512 invocations. Those of 128 invocations are measured on an H200 with 8B's Q4_0
/// matrices, µs of gate and up by 512 tokens: 64 × 128 2,605, 128 × 64 2,621; down on an H100 1,400, 1,267 (some per cent
/// more than since loads stand among products). 128 × 128 by 256 invocations are one to a processor there. The others are
/// measured on none.
pub(super) const CARD_TILES: &[TileSize] = NVIDIA_TILES.split_at(1).1;

/// Of any device: 4 × 4 elements to an invocation.
pub(super) const USUAL_TILES: &[TileSize] = &[TileSize {
    least_groups: GroupCount::fixed(1),
    rows: 16,
    columns: 16,
    fours: [1, 1],
    slices: 1,
    depth: 32,
}];

/// Of devices with workgroups of 128 invocations and 16 KiB of shared memory.
pub(super) const LEAST_TILES: &[TileSize] = &[TileSize {
    least_groups: GroupCount::fixed(1),
    rows: 8,
    columns: 8,
    fours: [1, 1],
    slices: 2,
    depth: 32,
}];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::TABLE;

    #[test]
    fn invocations_have_equal_parts_of_every_tile_with_room() {
        let small = Traits {
            max_invocations: 256,
            shared_bytes: 32 << 10,
            ..Traits::minimal()
        };
        let sizes = || TABLE.iter().flat_map(|row| row.tile.sizes);
        assert!(sizes().all(TileSize::is_even));
        let runs = || {
            [4, 8, 16, 32]
                .into_iter()
                .flat_map(|run| [1, 2, 3].map(|parts| (run, parts)))
        };
        for traits in [Traits::minimal(), small] {
            for size in sizes().filter(|size| size.has_room(&traits)) {
                for (run, parts) in runs() {
                    let size = size.of_parts(parts, run);
                    assert!(size.is_even() && size.depth.is_multiple_of(run), "{size:?}");
                }
            }
            // The last of a row is taken where none has room.
            let last = TABLE.iter().filter_map(|row| row.tile.sizes.last());
            for size in last.filter(|size| size.has_room(&traits)) {
                for (run, parts) in runs() {
                    let size = size.of_parts(parts, run).with_room(&traits, run as usize);
                    assert!(size.is_even() && size.depth.is_multiple_of(run), "{size:?}");
                    assert!(size.has_room(&traits), "{size:?}");
                }
            }
        }
    }

    #[test]
    fn tiles_are_smaller_where_tokens_or_rows_of_weights_are_few() {
        let traits = Traits {
            compute_units: Some(132),
            max_invocations: 1024,
            shared_bytes: 48 << 10,
            ..Traits::minimal()
        };
        let tile = Tile {
            sizes: NVIDIA_TILES,
            most_parts: 1,
            enough_groups: GroupCount::of_units(384, H200_UNITS),
        };
        let divided = |most_parts: u32, tokens: usize, rows: usize| {
            let results = |size: &TileSize| tokens.div_ceil(size.tile_rows()) * rows.div_ceil(size.tile_columns());
            let tile = Tile { most_parts, ..tile };
            let (size, parts) = tile.size(&traits, [tokens, 1, 8], results, |_, wanted| wanted as usize, |_| true);
            ([size.tile_rows(), size.tile_columns()], parts)
        };
        assert_eq!(divided(16, 128, 24_576), ([64, 128], 1));
        assert_eq!(divided(16, 128, 6144), ([64, 128], 4));
        assert_eq!(divided(16, 128, 4096), ([64, 128], 6));
        assert_eq!(divided(16, 512, 4096), ([128, 64], 1));
        assert_eq!(divided(16, 32, 4096), ([32, 64], 6));
        let size = |tokens, rows| divided(1, tokens, rows).0;
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
        assert_eq!(size(12, 1024), [32, 32], "the last is for any number");
        // They would leave nearly half of two tiles of 128 empty.
        assert_eq!(size(129, 12_288), [64, 64]);
    }
}
