//! Projections of many tokens on matrix cores.

use std::collections::HashSet;

use refrain_kernels::DType;
use refrain_kernels::projection::WeightStorage;
use refrain_kernels::quantised::QuantFormat;
use refrain_kernels::tuning::{self, GroupCount, MatrixTile, SubgroupSplit, Tuning};
use refrain_testing::sample;

use super::{Case, NORM, plain, with_epilogue};
use crate::support::{FLOATS, in_turn_among, with_matrix_cores, with_split_fragments};

#[test]
fn every_matrix_core_tile_computes_the_same_projection() {
    for traits in with_matrix_cores() {
        let mut tried = HashSet::new();
        for row in tuning::TABLE.iter().filter(|row| row.fits(&traits)) {
            let split_rows = row.matrix.iter().filter(|tile| tile.split == SubgroupSplit::Rows);
            let split_k = split_rows.flat_map(|tile| [3, 64].map(|splits| MatrixTile { splits, ..*tile }));
            for tile in row.matrix.iter().copied().chain(split_k) {
                let tile = MatrixTile {
                    max_tokens: usize::MAX,
                    min_depth: 0,
                    max_depth: usize::MAX,
                    min_groups: GroupCount::fixed(1),
                    ..tile
                };
                if !tried.insert(tile) {
                    continue;
                }
                let tuning = Tuning {
                    matrix: Box::leak(Box::new([tile])),
                    ..*row
                };
                let four = WeightStorage::Quantised(QuantFormat::Q4_K);
                for (tokens, section) in [
                    (5, plain(four, 17)),
                    (13, plain(four, 75)),
                    (37, with_epilogue(&[four; 2], 41)),
                ] {
                    Case::normed(tokens, 2304, section).check(&tuning, &traits);
                }
            }
        }
    }
}

#[test]
fn matrix_cores_support_every_format() {
    let formats = in_turn_among(with_matrix_cores(), QuantFormat::ALL.into_iter().enumerate());
    for ((i, format), traits) in sample(formats, 12) {
        let weights = WeightStorage::Quantised(format);
        let columns = if format.has_records() {
            256 * (1 + i % 3)
        } else {
            format.group as usize * (3 + i % 4)
        };
        Case {
            tokens: [9, 33, 5, 64, 70, 20, 130][i % 7],
            columns,
            x: FLOATS[i % 3],
            out: DType::F32,
            norm: (i % 2 == 0).then_some(NORM),
            sections: vec![plain(weights, 37 + i)],
            weights: DType::F16,
        }
        .check(tuning::choose(&traits), &traits);
    }
}

#[test]
fn tiles_for_three_quarters_of_a_power_of_two_match() {
    for traits in with_matrix_cores() {
        let row = tuning::choose(&traits);
        for (subgroups, tile_tokens, tokens) in [(2, 4, 48), (4, 8, 96), (1, 4, 192)] {
            let tile = MatrixTile {
                max_tokens: usize::MAX,
                min_groups: GroupCount::fixed(1),
                split: SubgroupSplit::Rows,
                subgroups,
                tokens: tile_tokens,
                unrolled: false,
                two_phase: false,
                x_terms: 1,
                ..*row.matrix.last().expect("some")
            };
            let tuning = Tuning {
                matrix: vec![tile].leak(),
                ..*row
            };
            let weights = WeightStorage::Quantised(QuantFormat::Q4_0);
            Case::normed(tokens, 512, plain(weights, 45)).check(&tuning, &traits);
            Case::normed(tokens, 256, with_epilogue(&[weights; 2], 20)).check(&tuning, &traits);
        }
    }
}

#[test]
fn fragments_of_several_instructions_match() {
    let Some(traits) = with_split_fragments() else {
        return;
    };
    for (i, weights) in [WeightStorage::Dense, WeightStorage::Quantised(QuantFormat::Q4_K)]
        .into_iter()
        .enumerate()
    {
        for split in [SubgroupSplit::Rows, SubgroupSplit::Depth] {
            let row = tuning::choose(&traits);
            let tile = MatrixTile {
                split,
                subgroups: 2,
                rows: 1,
                tokens: 1,
                prefetch: i == 1,
                unrolled: false,
                ..*row.matrix.last().expect("some")
            };
            let tuning = Tuning {
                matrix: vec![tile].leak(),
                ..*row
            };
            Case {
                norm: (i == 0).then_some(NORM),
                ..Case::normed(37, 512, plain(weights, 45))
            }
            .check(&tuning, &traits);
        }
    }
}

#[test]
fn matrix_cores_support_sections_gates_and_residuals() {
    for traits in with_matrix_cores() {
        let [four, six] = [QuantFormat::Q4_K, QuantFormat::Q6_K].map(WeightStorage::Quantised);
        let dense = WeightStorage::Dense;
        for (i, sections) in [
            vec![plain(four, 140), plain(four, 7), plain(six, 90)],
            vec![
                with_epilogue(&[four], 20),
                with_epilogue(&[four], 6),
                with_epilogue(&[four], 5),
            ],
            vec![with_epilogue(&[four; 2], 190)],
            vec![with_epilogue(&[dense; 2], 33), plain(dense, 4)],
        ]
        .into_iter()
        .enumerate()
        {
            for tokens in [12, 65] {
                Case {
                    tokens,
                    columns: 512,
                    x: DType::F32,
                    out: FLOATS[i % 3],
                    norm: (i != 1).then_some(NORM),
                    sections: sections
                        .clone()
                        .into_iter()
                        .map(|(mut s, n)| {
                            // All sections have the result's type.
                            s.epilogue.inputs.iter_mut().for_each(|d| *d = FLOATS[i % 3]);
                            (s, n)
                        })
                        .collect(),
                    weights: FLOATS[1 + i % 2],
                }
                .check(tuning::choose(&traits), &traits);
            }
        }
    }
}
