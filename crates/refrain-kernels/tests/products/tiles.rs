//! Products of many tokens without matrix cores, by every size of tiles.

use std::collections::HashSet;

use crate::projections::{Case, ended, plain};
use crate::support::device_traits;
use refrain_kernels::Traits;
use refrain_kernels::projection::WeightStorage;
use refrain_kernels::quantised::QuantFormat;
use refrain_kernels::tuning::{self, GroupCount, TileSize, Tuning};

/// Rows with each size of tiles of the table alone.
pub fn tile_rows(traits: &Traits) -> Vec<Tuning> {
    let mut tried = HashSet::new();
    let sizes = tuning::TABLE.iter().flat_map(|row| row.tile.sizes);
    let alone = |size: &TileSize| {
        let mut tuning = *tuning::choose(traits);
        tuning.tile.sizes = Box::leak(Box::new([TileSize {
            least_groups: GroupCount::fixed(1),
            ..*size
        }]));
        tuning
    };
    let rows = sizes.map(alone).filter(|row| row.fits(traits));
    rows.filter(|row| tried.insert(row.tile.sizes[0])).collect()
}

#[test]
fn every_tile_without_matrix_cores_gives_the_same_projection_by_one_workgroup_and_by_several() {
    let traits = Traits {
        matrix_cores: None,
        ..device_traits()
    };
    for mut tuning in tile_rows(&traits) {
        tuning.tile.enough_groups = GroupCount::fixed(65_535);
        let [four, five, eight] =
            [QuantFormat::Q4_0, QuantFormat::Q5_1, QuantFormat::Q8_0].map(WeightStorage::Quantised);
        for most_parts in [1, 3] {
            tuning.tile.most_parts = most_parts;
            // One matrix and two, by words and by larger runs; ends of k that no tile is whole with, one and several tiles.
            for (tokens, section, columns) in [
                (13, plain(four, 75), 160),
                (37, ended(&[five; 2], 41), 2080),
                (140, ended(&[four; 2], 150), 32),
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
}
