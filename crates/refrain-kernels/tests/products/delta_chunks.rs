//! The chunked delta rule on matrix cores.

use refrain_kernels::DType;
use refrain_kernels::Traits;
use refrain_kernels::tuning::{self, DeltaTuning, Tuning};

use crate::delta_rules::DeltaCase;
use crate::recurrences::TokenSequences;
use crate::support::{FLOATS, in_turn_among, is_software, with_matrix_cores, with_split_fragments};

/// Tolerance relative to the largest value: chunks keep queries, keys and the state in f16.
const TOLERANCE: f32 = 2e-3;

/// Number of sequences with states: more than one workgroup handles.
const STATES: usize = 11;

/// Tokens of sequences that continue, restart within a chunk or at its start, alternate, or are missing, with padding.
fn batch() -> TokenSequences {
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
    TokenSequences::of(tokens)
}

/// The device's tuning row with the given tokens per chunk.
fn with_chunks(traits: &Traits, chunk: u32) -> Tuning {
    Tuning {
        delta: DeltaTuning {
            chunk,
            min_chunked_tokens: 1,
            ..tuning::choose(traits).delta
        },
        ..*tuning::choose(traits)
    }
}

#[test]
fn chunked_states_match_recurrent_states() {
    let batch = batch();
    let all = [[2, 32, 4, 48], [2, 64, 2, 32], [1, 16, 3, 16], [1, 128, 2, 128]];
    let layouts = with_matrix_cores().into_iter().chain(with_split_fragments());
    // Software drivers take long to compile the largest kernels: once is enough.
    let cases = (0..8).filter(|&case| case != 7 || !is_software());
    for (case, traits) in in_turn_among(layouts.collect(), cases) {
        let (i, chunk) = (case / 2, [16, 32][case % 2]);
        let delta = DeltaCase {
            sizes: all[i],
            dtypes: [0, 1, 2].map(|j| FLOATS[(i + j) % 3]),
            gaps: i % 2 == 1,
            scale: 1.0,
            batch: &batch,
            states: STATES,
        };
        assert_eq!(delta.check(&with_chunks(&traits, chunk), &traits, TOLERANCE), 2);
    }
}

#[test]
fn chunks_support_values_beyond_f16() {
    let batch = batch();
    for traits in with_matrix_cores() {
        for scale in [1e6, 1e-9] {
            let case = DeltaCase {
                sizes: [1, 32, 2, 32],
                dtypes: [DType::F32; 3],
                gaps: false,
                scale,
                batch: &batch,
                states: STATES,
            };
            assert_eq!(case.check(&with_chunks(&traits, 32), &traits, TOLERANCE), 2);
        }
    }
}
