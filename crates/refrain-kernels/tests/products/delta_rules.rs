//! The gated delta rule against its reference.

use refrain_kernels::tuning::{self, DeltaTuning, Tuning};
use refrain_kernels::{DType, OperandSpec, RecurrenceForm, Traits, Values, gated_delta};
use refrain_testing::sample;

use crate::common::{self, Random};
use crate::recurrences::{STATES, TokenSequences, check_forms};
use crate::support::{FLOATS, all_traits, device_traits, floats, outcome_and_state, padded, stored};

/// Operands of a call.
pub struct DeltaCase<'p> {
    /// Sizes HK, D, H, E.
    pub sizes: [usize; 4],
    /// Types of keys, values, gates and results.
    pub dtypes: [DType; 3],
    pub gaps: bool,
    /// Scale of the values and the state.
    pub scale: f32,
    pub batch: &'p TokenSequences,
    /// Number of sequences with states; the first of them restarts.
    pub states: usize,
}

/// Random numbers within ± `scale` around `add`, as the operand stores them.
fn random_values(random: &mut Random, operand: &OperandSpec, scale: f32, add: f32) -> Vec<f32> {
    let values = floats(random, operand.layout.count());
    stored(operand, &values.iter().map(|x| x * scale + add).collect::<Vec<f32>>())
}

impl DeltaCase<'_> {
    /// Compares results and states with the reference. They may differ by the tolerance of their types or by
    /// `tolerance`, whichever is larger. Returns the number of calls.
    pub fn check(&self, tuning: &Tuning, traits: &Traits, tolerance: f32) -> usize {
        let &DeltaCase {
            sizes,
            dtypes,
            gaps,
            scale,
            batch,
            states,
        } = self;
        let [key_heads, key_dim, heads, value_dim] = sizes;
        let what = format!(
            "{sizes:?} of {dtypes:?}, gaps {gaps}, {:?}, subgroups of {}, {:?}",
            tuning.delta, traits.subgroup_size, traits.matrix_cores
        );
        let tokens = batch.positions.len();
        let contiguous = |dtype, shape: &[usize]| OperandSpec::contiguous(dtype, shape);
        let operand = if gaps { padded } else { contiguous };
        let keys = operand(dtypes[0], &[tokens, key_heads, key_dim]);
        let v = operand(dtypes[1], &[tokens, heads, value_dim]);
        let gate = OperandSpec::contiguous(dtypes[2], &[tokens, heads]);
        let state = OperandSpec::contiguous(DType::F32, &[states, heads, value_dim, key_dim]);
        let out = operand(dtypes[2], &[tokens, heads, value_dim]);
        let random = &mut Random::new(7 * key_dim as u64);
        // Keys have about unit length, as if normalised; gates are between 0 and 1.
        let length = (3.0 / key_dim as f32).sqrt();
        let mut values = |operand: &OperandSpec, scale: f32, add: f32| random_values(random, operand, scale, add);
        let (qs, ks) = (values(&keys, length, 0.0), values(&keys, length, 0.0));
        let vs = values(&v, scale, 0.0);
        let (decays, betas) = (values(&gate, 0.5, 0.5), values(&gate, 0.5, 0.5));
        let mut memory = values(&state, scale, 0.0);
        // The initial state of a sequence that restarts is ignored.
        memory[..heads * value_dim * key_dim].fill(f32::NAN);
        let [positions, sequences] = batch.operands();
        let operands = gated_delta::GatedDeltaOperands {
            q: &keys,
            k: &keys,
            v: &v,
            decay: &gate,
            beta: &gate,
            positions,
            sequences,
            state: &state,
            out: &out,
        };
        let calls_of = |form| {
            gated_delta::calls_tuned(tuning, traits, form, &operands).unwrap_or_else(|error| panic!("{what}: {error}"))
        };
        let [p, s] = batch.inputs();
        let f32s = |values: &[f32]| Values::F32(values.to_vec());
        let inputs = [
            (&keys, f32s(&qs)),
            (&keys, f32s(&ks)),
            (&v, f32s(&vs)),
            (&gate, f32s(&decays)),
            (&gate, f32s(&betas)),
            p,
            s,
            (&state, f32s(&memory)),
        ];
        let expected = self.reference([&qs, &ks, &vs, &decays, &betas], &mut memory);
        let run = |form| {
            let (calls, workspace) = calls_of(form);
            outcome_and_state((&calls, workspace.as_ref()), &inputs, 7, &out)
        };
        let count = calls_of(RecurrenceForm::Full).0.len();
        // Only the full form may be in chunks, which round otherwise.
        let [actual, state] = match count {
            1 => check_forms(&what, &inputs[7].1, run),
            _ => run(RecurrenceForm::Full),
        };
        let near = |dtype| common::tolerance(dtype).max(tolerance);
        common::assert_close(&what, &actual, &Values::F32(expected), near(out.dtype));
        let what = format!("{what}: the state");
        common::assert_close(&what, &state, &Values::F32(memory), near(DType::F32));
        count
    }

    /// Computes results on the host, and the next states in place.
    fn reference(&self, [q, k, v, decay, beta]: [&[f32]; 5], states: &mut [f32]) -> Vec<f32> {
        let inputs = gated_delta::GatedDeltaInputs {
            q,
            k,
            v,
            decay,
            beta,
            positions: &self.batch.positions,
            sequences: &self.batch.sequences,
            sizes: self.sizes,
        };
        gated_delta::reference(&inputs, states)
    }
}

/// The device's tuning row with the given values per row of lanes.
fn with_values(traits: &Traits, values: u32) -> Tuning {
    Tuning {
        delta: DeltaTuning {
            values,
            min_tokens: 1,
            lanes: 2,
            tile: 2 * values,
            ..tuning::choose(traits).delta
        },
        ..*tuning::choose(traits)
    }
}

#[test]
fn delta_rules_match_the_reference() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let batch = TokenSequences::new();
    for traits in sample(all_traits(), 3) {
        let all = [
            [1, 1, 1, 1],
            [2, 24, 4, 16],
            [1, 16, 3, 21],
            [2, 128, 2, 37],
            [1, 5, 2, 3],
        ];
        for (i, sizes) in sample(all.into_iter().enumerate(), 3) {
            let dtypes = [0, 1, 2].map(|j| FLOATS[(i + j) % 3]);
            for (values, dtypes, gaps) in [(1, dtypes, i % 2 == 1), (4, [DType::F32; 3], i % 2 == 0)] {
                let case = DeltaCase {
                    sizes,
                    dtypes,
                    gaps,
                    scale: 1.0,
                    batch: &batch,
                    states: STATES,
                };
                assert_eq!(case.check(&with_values(&traits, values), &traits, 0.0), 1);
            }
        }
    }
}

#[test]
fn delta_rules_are_bit_identical_for_any_batching_and_tuning() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let traits = device_traits();
    let (tokens, [key_heads, key_dim, heads, value_dim]) = (20, [2, 128, 4, 37]);
    let random = &mut Random::new(3);
    let mut values = |count: usize, add: f32| -> Vec<f32> {
        let values = floats(random, count).into_iter();
        values.map(|x| 0.2 * x + add).collect()
    };
    let [q, k] = [(); 2].map(|()| values(tokens * key_heads * key_dim, 0.0));
    let v = values(tokens * heads * value_dim, 0.0);
    let [decay, beta] = [(); 2].map(|()| values(tokens * heads, 0.7));
    let begun = values(heads * value_dim * key_dim, 0.0);
    let run = |[from, to]: [usize; 2], values: u32, state: Vec<f32>| -> [Values; 2] {
        let n = to - from;
        let part = |values: &[f32], width: usize| Values::F32(values[from * width..to * width].to_vec());
        let operand = |shape: &[usize]| OperandSpec::contiguous(DType::F32, shape);
        let (keys, gate) = (operand(&[n, key_heads, key_dim]), operand(&[n, heads]));
        let (vs, states) = (
            operand(&[n, heads, value_dim]),
            operand(&[1, heads, value_dim, key_dim]),
        );
        let (positions, sequences) = (
            OperandSpec::contiguous(DType::I32, &[n]),
            OperandSpec::contiguous(DType::U32, &[n]),
        );
        let operands = gated_delta::GatedDeltaOperands {
            q: &keys,
            k: &keys,
            v: &vs,
            decay: &gate,
            beta: &gate,
            positions: &positions,
            sequences: &sequences,
            state: &states,
            out: &vs,
        };
        let (calls, workspace) =
            gated_delta::calls_tuned(&with_values(&traits, values), &traits, RecurrenceForm::Full, &operands)
                .expect("supported");
        let inputs = [
            (&keys, part(&q, key_heads * key_dim)),
            (&keys, part(&k, key_heads * key_dim)),
            (&vs, part(&v, heads * value_dim)),
            (&gate, part(&decay, heads)),
            (&gate, part(&beta, heads)),
            (&positions, Values::I32((from..to).map(|t| t as i32 + 1).collect())),
            (&sequences, Values::U32(vec![0; n])),
            (&states, Values::F32(state)),
        ];
        outcome_and_state((&calls, workspace.as_ref()), &inputs, 7, &vs)
    };
    let [whole, end] = run([0, tokens], 4, begun.clone());
    for (cut, [first, second]) in [(1, [1, 4]), (13, [4, 1]), (19, [1, 1])] {
        let [before, state] = run([0, cut], first, begun.clone());
        let [behind, state] = run([cut, tokens], second, state.f32().to_vec());
        let both = [before.f32(), behind.f32()].concat();
        assert_eq!(both, whole.f32().to_vec(), "cut at {cut}");
        assert_eq!(state, end, "cut at {cut}: the state");
    }
}
