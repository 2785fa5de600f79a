use refrain_kernels::tuning::{self, Tuning};
use refrain_kernels::{DType, OperandSpec, RecurrenceForm, Traits, Unsupported, Values, causal_conv, gated_delta};

use crate::common::Random;
use crate::support::{FLOATS, all_traits, assert_close, floats, outcome_and_state, padded, stored};
use refrain_testing::sample;

/// Sequences and positions of tokens.
pub struct TokenSequences {
    pub positions: Vec<i32>,
    pub sequences: Vec<u32>,
    operands: [OperandSpec; 2],
}

impl TokenSequences {
    /// Two sequences that continue, one that restarts, one that is missing, with padding between and after them.
    pub fn new() -> TokenSequences {
        TokenSequences::of([
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
        ])
    }

    /// Sets position and sequence of each token.
    pub fn of(tokens: impl IntoIterator<Item = (i32, u32)>) -> TokenSequences {
        let (positions, sequences): (Vec<i32>, Vec<u32>) = tokens.into_iter().unzip();
        let operands = [DType::I32, DType::U32].map(|dtype| OperandSpec::contiguous(dtype, &[positions.len()]));
        TokenSequences {
            positions,
            sequences,
            operands,
        }
    }

    pub fn operands(&self) -> [&OperandSpec; 2] {
        self.operands.each_ref()
    }

    pub fn inputs(&self) -> [(&OperandSpec, Values); 2] {
        let [positions, sequences] = self.operands();
        [
            (positions, Values::I32(self.positions.clone())),
            (sequences, Values::U32(self.sequences.clone())),
        ]
    }
}

/// Number of sequences with states.
pub const STATES: usize = 4;

/// All forms of a recurrence.
pub const FORMS: [RecurrenceForm; 3] = [
    RecurrenceForm::Full,
    RecurrenceForm::ResultsOnly,
    RecurrenceForm::StateOnly,
];

/// Checks that other forms compute the same bits as the full one: either the results, or the next state.
pub fn check_forms(what: &str, before: &Values, mut run: impl FnMut(RecurrenceForm) -> [Values; 2]) -> [Values; 2] {
    let bits = |values: &Values| values.f32().iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
    let full = run(RecurrenceForm::Full);
    let [results, unchanged] = run(RecurrenceForm::ResultsOnly);
    assert_eq!(bits(&results), bits(&full[0]), "{what}: results only");
    assert_eq!(bits(&unchanged), bits(before), "{what}: the state is only read");
    let [_, state] = run(RecurrenceForm::StateOnly);
    assert_eq!(bits(&state), bits(&full[1]), "{what}: the state only");
    full
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
    let batch = TokenSequences::new();
    let state = OperandSpec::contiguous(DType::F32, &[STATES, taps - 1, channels]);
    let (xs, ws, mut states) = (values(x), values(weights), values(&state));
    let [positions, sequences] = batch.operands();
    let tuning = Tuning {
        max_serial_conv_tokens: if in_turn { usize::MAX } else { 0 },
        ..*tuning::choose(traits)
    };
    let [p, s] = batch.inputs();
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
            positions: &batch.positions,
            sequences: &batch.sequences,
            channels,
        },
        &mut states,
    );
    let [actual, state] = check_forms(&what, &inputs[4].1, |form| {
        let places = [positions, sequences, &state];
        let calls = causal_conv::calls_tuned(&tuning, traits, form, [x, weights, out], places)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        outcome_and_state((&calls, None), &inputs, 4, out)
    });
    assert_close(&actual, expected, out.dtype, &what);
    assert_eq!(state, Values::F32(states), "{what}: the state");
    actual
}

#[test]
fn convolutions_continue_their_sequences() {
    if !refrain_testing::drawn(12) {
        return;
    }
    let tokens = TokenSequences::new().positions.len();
    for traits in sample(all_traits(), 3) {
        for (i, (channels, taps)) in [(1, 4), (70, 4), (33, 2), (5, 1), (64, 9)].into_iter().enumerate() {
            let dtype = |j: usize| FLOATS[(i + j) % 3];
            let weights = OperandSpec::contiguous(dtype(0), &[channels, taps]);
            let (x, out) = (
                OperandSpec::contiguous(dtype(1), &[tokens, channels]),
                padded(dtype(2), &[tokens, channels]),
            );
            for (x, out) in [(&x, &out), (&padded(DType::F32, &[tokens, channels]), &x)] {
                let [in_turn, at_once] = [true, false].map(|way| check_conv(&traits, way, x, &weights, out));
                assert_eq!(in_turn, at_once);
            }
        }
    }
}

#[test]
fn rejects_mismatched_recurrences() {
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
