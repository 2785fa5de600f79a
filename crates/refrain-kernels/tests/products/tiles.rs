//! Tiled GEMM of many tokens without matrix cores, with every tile size.

use std::collections::HashSet;

use crate::projections::{Case, plain, with_epilogue};
use crate::support::device_traits;
use refrain_kernels::Traits;
use refrain_kernels::projection::WeightStorage;
use refrain_kernels::quantised::QuantFormat;
use refrain_kernels::tuning::{self, GroupCount, TileSize, Tuning};
use refrain_testing::sample;

/// Tuning rows with a single tile size, for each size of the table.
pub fn tile_rows(traits: &Traits) -> Vec<Tuning> {
    let mut tried = HashSet::new();
    let sizes = tuning::TABLE.iter().flat_map(|row| row.tile.sizes);
    let alone = |size: &TileSize| {
        let mut tuning = *tuning::choose(traits);
        tuning.tile.sizes = Box::leak(Box::new([TileSize {
            min_groups: GroupCount::fixed(1),
            ..*size
        }]));
        tuning
    };
    let rows = sizes.map(alone).filter(|row| row.fits(traits));
    rows.filter(|row| tried.insert(row.tile.sizes[0])).collect()
}

#[test]
fn every_tile_size_matches_with_and_without_split_k() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let traits = Traits {
        matrix_cores: None,
        ..device_traits()
    };
    let both = |tuning| [1, 3].map(|max_splits| (tuning, max_splits));
    for (mut tuning, max_splits) in sample(tile_rows(&traits).into_iter().flat_map(both), 8) {
        tuning.tile.target_groups = GroupCount::fixed(65_535);
        tuning.tile.max_splits = max_splits;
        let [four, five, eight] =
            [QuantFormat::Q4_0, QuantFormat::Q5_1, QuantFormat::Q8_0].map(WeightStorage::Quantised);
        // One and two matrices, small and large runs, incomplete last tiles of k, one and several tiles.
        for (tokens, section, columns) in [
            (13, plain(four, 75), 160),
            (37, with_epilogue(&[five; 2], 41), 2080),
            (140, with_epilogue(&[four; 2], 150), 32),
            (140, plain(WeightStorage::Dense, 150), 83),
        ] {
            Case::normed(tokens, columns, section).check(&tuning, &traits);
        }
        Case {
            sections: vec![plain(four, 40), plain(eight, 30)],
            ..Case::normed(70, 2080, plain(four, 1))
        }
        .check(&tuning, &traits);
    }
}
