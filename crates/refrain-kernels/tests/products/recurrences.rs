use refrain_kernels::tuning::{self, Delta, Tuning};
use refrain_kernels::{DType, OperandSpec, Traits, Unsupported, Values, causal_conv, gated_delta};

use crate::common::Random;
use crate::support::{FLOATS, all_traits, assert_close, device_traits, floats, gappy, outcome_and_state, stored};
use refrain_testing::sample;

/// Where tokens belong: two sequences that go on, one that begins anew, one that is not there, padding
/// between and behind them.
fn places() -> (Vec<i32>, Vec<u32>) {
    let tokens = [
        (5, 1),
        (6, 1),
        (-1, 0),
        (0, 0),
        (1, 0),
        (2, 0),
        (9, 3),
        (-1, 1),
        (-2, 7),
        (-1, 0),
    ];
    tokens.into_iter().unzip()
}

/// Sequences that states are made for.
pub const STATES: usize = 4;

pub struct Places {
    pub positions: Vec<i32>,
    pub sequences: Vec<u32>,
    operands: [OperandSpec; 2],
}

impl Places {
    pub fn new() -> Places {
        let (positions, sequences) = places();
        let operands = [DType::I32, DType::U32].map(|dtype| OperandSpec::contiguous(dtype, &[positions.len()]));
        Places {
            positions,
            sequences,
            operands,
        }
    }

    pub fn inputs(&self) -> [(&OperandSpec, Values); 2] {
        let [positions, sequences] = &self.operands;
        [
            (positions, Values::I32(self.positions.clone())),
            (sequences, Values::U32(self.sequences.clone())),
        ]
    }
}

fn check_conv(traits: &Traits, in_turn: bool, x: &OperandSpec, weights: &OperandSpec, out: &OperandSpec) -> Values {
    let [channels, taps] = weights.layout.shape[..] else {
        unreachable!("weights are a matrix")
    };
    let what = format!(
        "{} {} by {taps} taps of {} → {} {}, in turn {in_turn}",
        x.dtype, x.layout, weights.dtype, out.dtype, out.layout
    );
    let random = &mut Random::new(channels as u64);
    let mut values = |operand: &OperandSpec| stored(operand, &floats(random, operand.layout.count()));
    let places = Places::new();
    let state = OperandSpec::contiguous(DType::F32, &[STATES, taps - 1, channels]);
    let (xs, ws, mut states) = (values(x), values(weights), values(&state));
    let [positions, sequences] = &places.operands;
    let tuning = Tuning {
        most_convolved_in_turn: if in_turn { usize::MAX } else { 0 },
        ..*tuning::choose(traits)
    };
    let calls = causal_conv::calls_tuned(&tuning, traits, [x, weights, out], [positions, sequences, &state])
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let [p, s] = places.inputs();
    let inputs = [
        (x, Values::F32(xs.clone())),
        (weights, Values::F32(ws.clone())),
        p,
        s,
        (&state, Values::F32(states.clone())),
    ];
    let expected = causal_conv::reference(
        &causal_conv::CausalConvInputs {
            x: &xs,
            weights: &ws,
            positions: &places.positions,
            sequences: &places.sequences,
            channels,
        },
        &mut states,
    );
    let [actual, state] = outcome_and_state((&calls, None), &inputs, 4, out);
    assert_close(&actual, expected, out.dtype, &what);
    assert_eq!(state, Values::F32(states), "{what}: the state");
    actual
}

#[test]
fn convolutions_go_on_where_their_sequences_stopped() {
    let tokens = places().0.len();
    for traits in sample(all_traits(), 3) {
        for (i, (channels, taps)) in [(1, 4), (70, 4), (33, 2), (5, 1), (64, 9)].into_iter().enumerate() {
            let dtype = |j: usize| FLOATS[(i + j) % 3];
            let weights = OperandSpec::contiguous(dtype(0), &[channels, taps]);
            let (x, out) = (
                OperandSpec::contiguous(dtype(1), &[tokens, channels]),
                gappy(dtype(2), &[tokens, channels]),
            );
            for (x, out) in [(&x, &out), (&gappy(DType::F32, &[tokens, channels]), &x)] {
                let [in_turn, at_once] = [true, false].map(|way| check_conv(&traits, way, x, &weights, out));
                assert_eq!(in_turn, at_once);
            }
        }
    }
}

/// The device's row of the table, but for values of the delta rule that are taken together.
fn with_values(traits: &Traits, values: u32) -> Tuning {
    Tuning {
        delta: Delta {
            values,
            least_tokens: 1,
            lanes: 2,
            tile: 2 * values,
            ..tuning::choose(traits).delta
        },
        ..*tuning::choose(traits)
    }
}

/// Sizes: HK, D, H, E.
fn check_delta(traits: &Traits, values: u32, sizes: [usize; 4], dtypes: [DType; 3], strided: bool) {
    let [key_heads, key_dim, heads, value_dim] = sizes;
    let what = format!(
        "{sizes:?} of {dtypes:?}, strided {strided}, {values} values together, subgroups of {}",
        traits.subgroup_size
    );
    let places = Places::new();
    let tokens = places.positions.len();
    let operand = |dtype, shape: &[usize]| match strided {
        true => gappy(dtype, shape),
        false => OperandSpec::contiguous(dtype, shape),
    };
    let keys = operand(dtypes[0], &[tokens, key_heads, key_dim]);
    let v = operand(dtypes[1], &[tokens, heads, value_dim]);
    let gate = OperandSpec::contiguous(dtypes[2], &[tokens, heads]);
    let state = OperandSpec::contiguous(DType::F32, &[STATES, heads, value_dim, key_dim]);
    let out = operand(dtypes[2], &[tokens, heads, value_dim]);
    let random = &mut Random::new(7 * key_dim as u64);
    // Keys about as long as one, as they are where they are normalised; gates between 0 and 1.
    let length = (3.0 / key_dim as f32).sqrt();
    let scaled = |random: &mut Random, operand: &OperandSpec, scale: f32, add: f32| {
        let values: Vec<f32> = floats(random, operand.layout.count())
            .iter()
            .map(|x| x * scale + add)
            .collect();
        stored(operand, &values)
    };
    let (qs, ks) = (scaled(random, &keys, length, 0.0), scaled(random, &keys, length, 0.0));
    let vs = scaled(random, &v, 1.0, 0.0);
    let (decays, betas) = (scaled(random, &gate, 0.5, 0.5), scaled(random, &gate, 0.5, 0.5));
    let mut states = scaled(random, &state, 1.0, 0.0);
    let [positions, sequences] = &places.operands;
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
    let (calls, workspace) = gated_delta::calls_tuned(&with_values(traits, values), traits, &operands)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let [p, s] = places.inputs();
    let f32s = |values: &[f32]| Values::F32(values.to_vec());
    let inputs = [
        (&keys, f32s(&qs)),
        (&keys, f32s(&ks)),
        (&v, f32s(&vs)),
        (&gate, f32s(&decays)),
        (&gate, f32s(&betas)),
        p,
        s,
        (&state, f32s(&states)),
    ];
    let expected = gated_delta::reference(
        &gated_delta::GatedDeltaInputs {
            q: &qs,
            k: &ks,
            v: &vs,
            decay: &decays,
            beta: &betas,
            positions: &places.positions,
            sequences: &places.sequences,
            sizes,
        },
        &mut states,
    );
    let [actual, state] = outcome_and_state((&calls, workspace.as_ref()), &inputs, 7, &out);
    assert_close(&actual, expected, out.dtype, &what);
    assert_close(&state, states, DType::F32, &format!("{what}: the state"));
}

#[test]
fn delta_rules_correct_what_their_sequences_remember() {
    for traits in sample(all_traits(), 3) {
        let all = [
            [1, 1, 1, 1],
            [2, 24, 4, 16],
            [1, 16, 3, 21],
            [2, 128, 2, 37],
            [1, 5, 2, 3],
        ];
        for (i, sizes) in all.into_iter().enumerate() {
            let dtypes = [0, 1, 2].map(|j| FLOATS[(i + j) % 3]);
            check_delta(&traits, 1, sizes, dtypes, i % 2 == 1);
            check_delta(&traits, 4, sizes, [DType::F32; 3], i % 2 == 0);
        }
    }
}

#[test]
fn delta_rules_leave_the_same_bits_however_tokens_are_cut_and_values_shared() {
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
            gated_delta::calls_tuned(&with_values(&traits, values), &traits, &operands).expect("supported");
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

#[test]
fn recurrences_refuse_what_does_not_fit() {
    let operand = |dtype, shape: &[usize]| OperandSpec::contiguous(dtype, shape);
    let traits = Traits::minimal();
    let (positions, sequences) = (operand(DType::I32, &[6]), operand(DType::U32, &[6]));
    let (x, weights) = (operand(DType::F32, &[6, 8]), operand(DType::F32, &[8, 4]));
    let conv =
        |state: &OperandSpec| causal_conv::calls(&traits, &x, &weights, [&positions, &sequences, state], &x).err();
    assert_eq!(conv(&operand(DType::F32, &[2, 3, 8])), None);
    for shape in [&[2, 4, 8][..], &[0, 3, 8], &[3, 8], &[]] {
        let error = conv(&operand(DType::F32, shape));
        assert!(matches!(error, Some(Unsupported::Size { .. })), "{shape:?}: {error:?}");
    }
    let error = conv(&operand(DType::F16, &[2, 3, 8]));
    assert_eq!(
        error,
        Some(Unsupported::DType {
            op: "causal_conv",
            dtype: DType::F16
        })
    );

    let (q, v, gate) = (
        operand(DType::F32, &[6, 2, 16]),
        operand(DType::F32, &[6, 3, 16]),
        operand(DType::F32, &[6, 3]),
    );
    let state = operand(DType::F32, &[1, 3, 16, 16]);
    let error = gated_delta::calls(
        &traits,
        &gated_delta::GatedDeltaOperands {
            q: &q,
            k: &q,
            v: &v,
            decay: &gate,
            beta: &gate,
            positions: &positions,
            sequences: &sequences,
            state: &state,
            out: &v,
        },
    );
    let error = error.expect_err("three heads do not share two").to_string();
    assert!(error.contains("3 value heads"), "{error}");
}
