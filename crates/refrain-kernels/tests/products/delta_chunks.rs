//! The delta rule in chunks, on matrix cores.

use refrain_kernels::tuning::{self, Delta, Tuning};
use refrain_kernels::{DType, OperandSpec, Traits, Values, gated_delta};
use refrain_testing::sample;

use crate::common::{self, Random};
use crate::support::{FLOATS, floats, gappy, outcome_and_state, stored, with_matrix_cores, with_parts_of_fragments};

/// What chunks may differ by from tokens in turn, of the largest: queries, keys and the memory are halves in them.
const TOLERANCE: f32 = 2e-3;

/// Sequences that states are made for: of more than one workgroup's.
const STATES: usize = 11;

/// Tokens of sequences that go on, begin anew within a chunk or at its begin, take turns, or are not there, with padding.
fn places() -> (Vec<i32>, Vec<u32>) {
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
    tokens.unzip()
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

/// What a call is given.
struct Case {
    /// HK, D, H, E.
    sizes: [usize; 4],
    /// Of keys, values, gates and results.
    dtypes: [DType; 3],
    gaps: bool,
    /// By what values and the memory are larger than one.
    scale: f32,
}

fn check(traits: &Traits, chunk: u32, case: &Case) {
    let &Case {
        sizes,
        dtypes,
        gaps,
        scale,
    } = case;
    let [key_heads, key_dim, heads, value_dim] = sizes;
    let what = format!(
        "{sizes:?} of {dtypes:?}, chunks of {chunk}, gaps {gaps}, {:?}",
        traits.matrix_cores
    );
    let (positions, sequences) = places();
    let tokens = positions.len();
    let operand = |dtype, shape: &[usize]| match gaps {
        true => gappy(dtype, shape),
        false => OperandSpec::contiguous(dtype, shape),
    };
    let keys = operand(dtypes[0], &[tokens, key_heads, key_dim]);
    let v = operand(dtypes[1], &[tokens, heads, value_dim]);
    let gate = OperandSpec::contiguous(dtypes[2], &[tokens, heads]);
    let state = OperandSpec::contiguous(DType::F32, &[STATES, heads, value_dim, key_dim]);
    let out = operand(dtypes[2], &[tokens, heads, value_dim]);
    let places = [DType::I32, DType::U32].map(|dtype| OperandSpec::contiguous(dtype, &[tokens]));
    let random = &mut Random::new(11 * key_dim as u64);
    let length = (3.0 / key_dim as f32).sqrt();
    let mut drawn = |operand: &OperandSpec, scale: f32, add: f32| {
        let values = floats(random, operand.layout.count());
        stored(operand, &values.iter().map(|x| x * scale + add).collect::<Vec<f32>>())
    };
    let (q, k) = (drawn(&keys, length, 0.0), drawn(&keys, length, 0.0));
    let values = drawn(&v, scale, 0.0);
    let (decay, beta) = (drawn(&gate, 0.2, 0.8), drawn(&gate, 0.5, 0.5));
    let mut states = drawn(&state, scale, 0.0);
    // The first sequence begins anew: what its memory held is of no account.
    states[..heads * value_dim * key_dim].fill(f32::NAN);
    let operands = gated_delta::GatedDeltaOperands {
        q: &keys,
        k: &keys,
        v: &v,
        decay: &gate,
        beta: &gate,
        positions: &places[0],
        sequences: &places[1],
        state: &state,
        out: &out,
    };
    let (calls, workspace) = gated_delta::calls_tuned(&with_chunks(traits, chunk), traits, &operands)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(calls.len(), 2, "{what}: there are no chunks");
    let given = |values: &[f32]| Values::F32(values.to_vec());
    let inputs = [
        (&keys, given(&q)),
        (&keys, given(&k)),
        (&v, given(&values)),
        (&gate, given(&decay)),
        (&gate, given(&beta)),
        (&places[0], Values::I32(positions.clone())),
        (&places[1], Values::U32(sequences.clone())),
        (&state, given(&states)),
    ];
    let expected = gated_delta::reference(
        &gated_delta::GatedDeltaInputs {
            q: &q,
            k: &k,
            v: &values,
            decay: &decay,
            beta: &beta,
            positions: &positions,
            sequences: &sequences,
            sizes,
        },
        &mut states,
    );
    let [actual, state] = outcome_and_state((&calls, workspace.as_ref()), &inputs, 7, &out);
    let tolerance = common::tolerance(out.dtype).max(TOLERANCE);
    common::assert_close(&what, &actual, &Values::F32(expected), tolerance);
    common::assert_close(&format!("{what}: the state"), &state, &Values::F32(states), TOLERANCE);
}

#[test]
fn chunks_remember_what_their_tokens_would_in_turn() {
    let all = [[2, 32, 4, 48], [2, 64, 2, 32], [1, 16, 3, 16], [1, 128, 2, 128]];
    for (number, traits) in with_matrix_cores().iter().chain(&with_parts_of_fragments()).enumerate() {
        // What is large takes software drivers long to compile: once is enough.
        for (i, sizes) in all.into_iter().enumerate().take(if number == 0 { 4 } else { 3 }) {
            let case = Case {
                sizes,
                dtypes: [0, 1, 2].map(|j| FLOATS[(i + j) % 3]),
                gaps: i % 2 == 1,
                scale: 1.0,
            };
            for chunk in sample([16, 32], 2) {
                check(traits, chunk, &case);
            }
        }
    }
}

#[test]
fn chunks_hold_values_that_no_half_holds() {
    for traits in with_matrix_cores() {
        for scale in [1e6, 1e-9] {
            let case = Case {
                sizes: [1, 32, 2, 32],
                dtypes: [DType::F32; 3],
                gaps: false,
                scale,
            };
            check(&traits, 32, &case);
        }
    }
}
