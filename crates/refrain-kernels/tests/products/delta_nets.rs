use refrain_kernels::delta_net::{self, DeltaNetParams};
use refrain_kernels::rms_norm::Norm;
use refrain_kernels::{Architecture, DType, Layout, OperandSpec, RecurrenceForm, Traits, Unsupported, Values};
use refrain_testing::sample;

use crate::common::{self, Arena, Random};
use crate::recurrences::{STATES, TokenSequences};
use crate::support::{FLOATS, assert_close, device_traits, encode, floats, in_turn, padded, stored};

/// How states are kept.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Kept {
    Updated,
    /// So too, with at most one token of each sequence, whose states pass through registers in parts.
    OneToken,
    /// In memory for the next ones; the conv state has this dtype.
    Next(DType),
    /// So too, with one token of each sequence, whose conv state is joined with it and lies in that of the token before.
    Joined(DType),
}

impl Kept {
    /// Whether the states are updated where they are.
    fn is_updated(self) -> bool {
        matches!(self, Kept::Updated | Kept::OneToken)
    }

    fn tokens(self) -> TokenSequences {
        match self {
            Kept::Joined(_) => TokenSequences::of((0..STATES as u32).map(|sequence| (7, sequence))),
            // A sequence that continues and one that starts, and tokens of nobody, whose sequence is clamped to the last.
            Kept::OneToken => TokenSequences::of([(-1, 0), (7, STATES as u32 - 1), (-1, u32::MAX), (0, 0)]),
            _ => TokenSequences::new(),
        }
    }
}

/// Random inputs and states, in the order of the operands.
fn drawn(
    batch: &TokenSequences,
    sizes: [usize; 5],
    dtype: DType,
    weighted: bool,
    kept: Kept,
) -> Vec<(OperandSpec, Values)> {
    let [key_heads, key_dim, heads, value_dim, taps] = sizes;
    let tokens = batch.positions.len();
    let (channels, values) = (2 * key_heads * key_dim + heads * value_dim, heads * value_dim);
    let random = &mut Random::new(key_dim as u64);
    let mut given: Vec<(OperandSpec, Values)> = Vec::new();
    let mut add = |operand: OperandSpec, scale: f32, offset: f32| {
        let drawn = floats(random, operand.layout.count());
        let drawn: Vec<f32> = drawn.iter().map(|x| x * scale + offset).collect();
        let kept = stored(&operand, &drawn);
        given.push((operand, Values::F32(kept)));
    };
    add(padded(dtype, &[tokens, channels]), 2.0, 0.0);
    add(OperandSpec::contiguous(FLOATS[taps % 3], &[channels, taps]), 1.0, 0.0);
    add(padded(DType::F32, &[tokens, heads]), 0.5, 0.5);
    add(padded(dtype, &[tokens, heads]), 0.5, 0.5);
    add(padded(dtype, &[tokens, values]), 3.0, 0.0);
    let conv_state = match kept {
        Kept::Updated | Kept::OneToken => OperandSpec::contiguous(DType::F32, &[STATES, taps - 1, channels]),
        Kept::Next(dtype) => OperandSpec::contiguous(dtype, &[STATES, taps - 1, channels]),
        Kept::Joined(dtype) => {
            let before = Layout::contiguous(&[STATES, taps, channels]);
            let layout = before.slice(&[0, 1, 0], &[STATES, taps, channels], &[1; 3]);
            OperandSpec { dtype, layout }
        }
    };
    add(conv_state, 1.0, 0.0);
    let state = OperandSpec::contiguous(DType::F32, &[STATES, heads, value_dim, key_dim]);
    add(state, 1.0, 0.0);
    if weighted {
        add(OperandSpec::contiguous(dtype, &[value_dim]), 1.0, 1.0);
    }
    for (number, (operand, values)) in batch.inputs().into_iter().enumerate() {
        given.insert(5 + number, (operand.clone(), values));
    }
    given
}

/// Checks the sizes HK, D, H, E, taps.
fn check(traits: &Traits, sizes: [usize; 5], dtype: DType, weighted: bool, kept: Kept) {
    let [key_heads, key_dim, heads, value_dim, taps] = sizes;
    let what = format!("{sizes:?} of {dtype}, {kept:?}, subgroups of {}", traits.subgroup_size);
    let batch = kept.tokens();
    let tokens = batch.positions.len();
    let (channels, values) = (2 * key_heads * key_dim + heads * value_dim, heads * value_dim);
    let params = DeltaNetParams {
        eps: 1e-6,
        scales: [0.25, (key_dim as f32).powf(-0.5)],
        norm: Norm { eps: 1e-5, weighted },
    };
    let given = drawn(&batch, sizes, dtype, weighted, kept);
    let out = padded(DType::F32, &[tokens, values]);
    let mut states = [7, 8].map(|number| given[number].0.clone());
    if let Kept::Joined(dtype) = kept {
        states[0] = OperandSpec::contiguous(dtype, &[STATES, taps, channels]);
    }
    let mut all: Vec<&OperandSpec> = given.iter().map(|(operand, _)| operand).chain([&out]).collect();
    let operands = if kept.is_updated() {
        delta_net::DeltaNetOperands {
            one_token: kept == Kept::OneToken,
            ..delta_net::DeltaNetOperands::of(&all)
        }
    } else {
        all.extend(&states);
        delta_net::DeltaNetOperands::with_next_states(&all)
    };
    let (call, tickets) = delta_net::call(traits, &operands, &params).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(kept.is_updated() || tickets == 0, "{what}: {tickets} counters");

    let mut arena = Arena::new();
    given
        .iter()
        .for_each(|(operand, values)| arena.add(&encode(operand, values)));
    let blank = vec![0xff; out.layout.end() * 4];
    arena.add(&blank);
    if kept.is_updated() {
        arena.add(&vec![0; tickets * 4]);
    } else {
        states
            .iter()
            .for_each(|state| arena.add(&encode(state, &Values::F32(vec![f32::NAN; state.layout.count()]))));
    }
    // Runs twice: counters must be zero again, and states must continue, or be computed again from the same.
    arena.run(&[call.clone(), call]);
    let of = |number: usize| given[number].1.f32();
    let [mut window, mut memory] = [7, 8].map(|number| of(number).to_vec());
    let inputs = delta_net::DeltaNetInputs {
        x: of(0),
        weights: of(1),
        decay: of(2),
        beta: of(3),
        z: of(4),
        positions: &batch.positions,
        sequences: &batch.sequences,
        norm_weight: weighted.then(|| of(9)),
        sizes: [key_heads, key_dim, heads, value_dim],
    };
    if kept.is_updated() {
        delta_net::reference(&inputs, &params, &mut window, &mut memory);
    }
    let before = window.clone();
    let expected = delta_net::reference(&inputs, &params, &mut window, &mut memory);
    if let Kept::Joined(_) = kept {
        let part = |all: &[f32], each: usize, sequence: usize| all[sequence * each..][..each].to_vec();
        let joined = |sequence| {
            [
                part(&before, (taps - 1) * channels, sequence),
                part(of(0), channels, sequence),
            ]
            .concat()
        };
        window = (0..STATES).flat_map(joined).collect();
    }
    let actual = common::values(&out, &blank, &arena.read(given.len()));
    assert_close(&actual, expected, DType::F32, &what);
    assert_states(&arena, &given, &states, [window, memory], kept, &what);
}

/// Checks what became of the states: those in `states`, updated or in memory of their own.
fn assert_states(
    arena: &Arena,
    given: &[(OperandSpec, Values)],
    states: &[OperandSpec; 2],
    expected: [Vec<f32>; 2],
    kept: Kept,
    what: &str,
) {
    let first = if kept.is_updated() { 7 } else { given.len() + 1 };
    for ((number, operand), expected) in (first..).zip(states).zip(expected) {
        let found = Values::load(operand.dtype, &operand.layout, &arena.read(number));
        assert_close(&found, expected, operand.dtype, &format!("{what}, state {number}"));
    }
    if kept.is_updated() {
        assert!(arena.read(given.len() + 1).iter().all(|&b| b == 0), "{what}: counters");
        return;
    }
    for number in [7, 8] {
        let (operand, values) = &given[number];
        assert!(
            arena.read(number) == encode(operand, values),
            "{what}: state {number} was written"
        );
    }
}

#[test]
fn fused_delta_nets_match_separate_steps() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let sizes = [
        [1, 1, 1, 1, 1],
        [2, 24, 4, 16, 4],
        [1, 16, 3, 21, 2],
        [2, 128, 4, 128, 4],
        [3, 5, 3, 70, 3],
    ];
    let kept = |i: usize, way: usize| match way {
        0 => Kept::Updated,
        3 => Kept::OneToken,
        1 => Kept::Next(FLOATS[i % 3]),
        _ => Kept::Joined(FLOATS[i % 3]),
    };
    let cases: Vec<_> = (0..4).flat_map(|way| (0..5).map(move |i| (i, way))).collect();
    let scarce = Traits {
        architecture: Architecture::Gcn,
        ..device_traits()
    };
    let scarce = (0..5).map(|i| ((i, i % 4), scarce.clone()));
    for ((i, way), traits) in sample(in_turn(cases).chain(scarce), 16) {
        // Without counters, value heads cannot share the window of a key head.
        let shared = sizes[i][0] != sizes[i][2];
        let way = if shared && !traits.tickets { 1 + way % 2 } else { way };
        check(
            &traits,
            sizes[i],
            FLOATS[(i + way) % 3],
            (i + way) % 2 == 1,
            kept(i, way),
        );
    }
}

/// Checks the forms without updates or results, of sizes HK, D, H, E, taps.
fn check_forms(traits: &Traits, sizes: [usize; 5], dtype: DType, weighted: bool) {
    let [key_heads, key_dim, heads, value_dim, _] = sizes;
    let what = format!("{sizes:?} of {dtype}, subgroups of {}", traits.subgroup_size);
    let batch = TokenSequences::new();
    let params = DeltaNetParams {
        eps: 1e-6,
        scales: [0.25, (key_dim as f32).powf(-0.5)],
        norm: Norm { eps: 1e-5, weighted },
    };
    let given = drawn(&batch, sizes, dtype, weighted, Kept::Updated);
    let out = padded(DType::F32, &[batch.positions.len(), heads * value_dim]);
    let blank = vec![0xff; out.layout.end() * 4];
    let of = |number: usize| given[number].1.f32();
    let [mut window, mut memory] = [7, 8].map(|number| of(number).to_vec());
    let inputs = delta_net::DeltaNetInputs {
        x: of(0),
        weights: of(1),
        decay: of(2),
        beta: of(3),
        z: of(4),
        positions: &batch.positions,
        sequences: &batch.sequences,
        norm_weight: weighted.then(|| of(9)),
        sizes: [key_heads, key_dim, heads, value_dim],
    };
    let expected = delta_net::reference(&inputs, &params, &mut window, &mut memory);
    for form in [RecurrenceForm::ResultsOnly, RecurrenceForm::StateOnly] {
        let what = format!("{what}, {form:?}");
        let has_results = form == RecurrenceForm::ResultsOnly;
        let results = has_results.then_some(&out);
        let all: Vec<&OperandSpec> = given.iter().map(|(operand, _)| operand).chain(results).collect();
        let operands = delta_net::DeltaNetOperands::of_form(form, &all);
        let (call, tickets) =
            delta_net::call(traits, &operands, &params).unwrap_or_else(|error| panic!("{what}: {error}"));
        let mut arena = Arena::new();
        let before: Vec<Vec<u8>> = given.iter().map(|(operand, values)| encode(operand, values)).collect();
        before.iter().for_each(|bytes| arena.add(bytes));
        if has_results {
            assert_eq!(tickets, 0, "{what}");
            arena.add(&blank);
        }
        arena.add(&vec![0; tickets * 4]);
        arena.run(&[call]);
        for (number, before) in before.iter().enumerate() {
            let is_updated = !has_results && (7..=8).contains(&number);
            assert!(
                is_updated || arena.read(number) == *before,
                "{what}: {number} was written"
            );
        }
        if has_results {
            let actual = common::values(&out, &blank, &arena.read(given.len()));
            assert_close(&actual, expected.clone(), DType::F32, &what);
            continue;
        }
        for (number, expected) in [(7, &window), (8, &memory)] {
            let operand = &given[number].0;
            let found = Values::load(operand.dtype, &operand.layout, &arena.read(number));
            assert_close(&found, expected.clone(), DType::F32, &format!("{what}, state {number}"));
        }
    }
}

#[test]
fn delta_nets_match_without_updates_or_results() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let sizes = [
        [1, 1, 1, 1, 1],
        [2, 24, 4, 16, 4],
        [1, 16, 3, 21, 2],
        [2, 128, 2, 128, 4],
    ];
    let scarce = Traits {
        architecture: Architecture::Gcn,
        ..device_traits()
    };
    let cases = in_turn(sizes).chain([(sizes[1], scarce)]);
    for (i, (sizes, traits)) in sample(cases.enumerate(), 4) {
        // Without counters, value heads cannot share the window of a key head.
        if sizes[0] == sizes[2] || traits.tickets {
            check_forms(&traits, sizes, FLOATS[i % 3], i % 2 == 1);
        }
    }
}

#[test]
fn rejects_mismatched_delta_nets() {
    let f32s = |shape: &[usize]| OperandSpec::contiguous(DType::F32, shape);
    let check = |traits: &Traits, heads: usize, key_dim: usize| {
        let channels = 4 * key_dim + heads * 16;
        let operands = [
            f32s(&[2, channels]),
            f32s(&[channels, 4]),
            f32s(&[2, heads]),
            f32s(&[2, heads]),
            f32s(&[2, heads * 16]),
            OperandSpec::contiguous(DType::I32, &[2]),
            OperandSpec::contiguous(DType::U32, &[2]),
            f32s(&[1, 3, channels]),
            f32s(&[1, heads, 16, key_dim]),
            f32s(&[2, heads * 16]),
        ];
        let params = DeltaNetParams {
            eps: 0.0,
            scales: [1.0; 2],
            norm: Norm {
                eps: 0.0,
                weighted: false,
            },
        };
        let operands: Vec<&OperandSpec> = operands.iter().collect();
        delta_net::call(traits, &delta_net::DeltaNetOperands::of(&operands), &params).map(|(_, tickets)| tickets)
    };
    let own = Traits {
        tickets: true,
        ..device_traits()
    };
    let minimal = Traits::minimal();
    assert_eq!(check(&own, 4, 16), Ok(2));
    assert_eq!(check(&minimal, 2, 16), Ok(0));
    for (traits, heads, key_dim) in [(&minimal, 4, 16), (&own, 3, 16), (&own, 4, 1 << 20)] {
        let error = check(traits, heads, key_dim);
        assert!(
            matches!(error, Err(Unsupported::Size { .. })),
            "{heads} {key_dim}: {error:?}"
        );
    }
}
