//! The delta rule in chunks, on matrix cores.

use refrain_kernels::DType;
use refrain_kernels::Traits;
use refrain_kernels::tuning::{self, Delta, Tuning};
use refrain_testing::sample;

use crate::delta_rules::DeltaCase;
use crate::recurrences::Places;
use crate::support::{FLOATS, with_matrix_cores, with_parts_of_fragments};

/// What chunks may differ by from tokens in turn, of the largest: queries, keys and the memory are halves in them.
const TOLERANCE: f32 = 2e-3;

/// Sequences that states are made for: of more than one workgroup's.
const STATES: usize = 11;

/// Tokens of sequences that go on, begin anew within a chunk or at its begin, take turns, or are not there, with padding.
fn places() -> Places {
    let run = |sequence: u32, from: i32, count: i32| (from..from + count).map(move |at| (at, sequence));
    let padding = |count: usize| std::iter::repeat_n((-1, 0), count);
    let turns = (0..30).map(|i| (9 + i / 2, [1, 2][i as usize % 2]));
    let tokens = run(1, 5, 70)
        .chain(padding(3))
        .chain(run(0, 0, 41))
        .chain(run(1, 0, 2))
        .chain(run(1, 2, 7))
        .chain(padding(70))
        .chain(turns)
        .chain(run(9, 4, 20))
        .chain(run(14, 3, 20))
        .chain(run(0, 0, 9))
        .chain(padding(5));
    Places::of(tokens)
}

/// The device's row of the table, but for chunks of so many tokens.
fn with_chunks(traits: &Traits, chunk: u32) -> Tuning {
    Tuning {
        delta: Delta {
            chunk,
            least_chunked: 1,
            ..tuning::choose(traits).delta
        },
        ..*tuning::choose(traits)
    }
}

#[test]
fn chunks_remember_what_their_tokens_would_in_turn() {
    let places = places();
    let all = [[2, 32, 4, 48], [2, 64, 2, 32], [1, 16, 3, 16], [1, 128, 2, 128]];
    for (number, traits) in with_matrix_cores().iter().chain(&with_parts_of_fragments()).enumerate() {
        // What is large takes software drivers long to compile: once is enough.
        for (i, sizes) in all.into_iter().enumerate().take(if number == 0 { 4 } else { 3 }) {
            let case = DeltaCase {
                sizes,
                dtypes: [0, 1, 2].map(|j| FLOATS[(i + j) % 3]),
                gaps: i % 2 == 1,
                scale: 1.0,
                places: &places,
                states: STATES,
            };
            for chunk in sample([16, 32], 2) {
                assert_eq!(case.check(&with_chunks(traits, chunk), traits, TOLERANCE), 2);
            }
        }
    }
}

#[test]
fn chunks_hold_values_that_no_half_holds() {
    let places = places();
    for traits in with_matrix_cores() {
        for scale in [1e6, 1e-9] {
            let case = DeltaCase {
                sizes: [1, 32, 2, 32],
                dtypes: [DType::F32; 3],
                gaps: false,
                scale,
                places: &places,
                states: STATES,
            };
            assert_eq!(case.check(&with_chunks(&traits, 32), &traits, TOLERANCE), 2);
        }
    }
}
