use refrain_kernels::delta_net::{self, DeltaNetParams};
use refrain_kernels::rms_norm::Norm;
use refrain_kernels::{Architecture, DType, OperandSpec, Traits, Unsupported, Values};
use refrain_testing::sample;

use crate::common::{self, Arena, Random};
use crate::recurrences::{STATES, TokenSequences};
use crate::support::{FLOATS, all_traits, assert_close, device_traits, encode, floats, padded, stored};

/// Checks the sizes HK, D, H, E, taps.
fn check(traits: &Traits, sizes: [usize; 5], dtype: DType, weighted: bool) {
    let [key_heads, key_dim, heads, value_dim, taps] = sizes;
    let what = format!("{sizes:?} of {dtype}, subgroups of {}", traits.subgroup_size);
    let batch = TokenSequences::new();
    let tokens = batch.positions.len();
    let (channels, values) = (2 * key_heads * key_dim + heads * value_dim, heads * value_dim);
    let params = DeltaNetParams {
        eps: 1e-6,
        scales: [0.25, (key_dim as f32).powf(-0.5)],
        norm: Norm { eps: 1e-5, weighted },
    };
    let random = &mut Random::new(key_dim as u64);
    let mut given: Vec<(OperandSpec, Values)> = Vec::new();
    let mut add = |operand: OperandSpec, scale: f32, offset: f32| {
        let drawn: Vec<f32> = floats(random, operand.layout.count())
            .iter()
            .map(|x| x * scale + offset)
            .collect();
        let kept = stored(&operand, &drawn);
        given.push((operand, Values::F32(kept.clone())));
        kept
    };
    let x = add(padded(dtype, &[tokens, channels]), 2.0, 0.0);
    let weights = add(OperandSpec::contiguous(FLOATS[taps % 3], &[channels, taps]), 1.0, 0.0);
    let decay = add(padded(DType::F32, &[tokens, heads]), 0.5, 0.5);
    let beta = add(padded(dtype, &[tokens, heads]), 0.5, 0.5);
    let z = add(padded(dtype, &[tokens, values]), 3.0, 0.0);
    let mut window = add(
        OperandSpec::contiguous(DType::F32, &[STATES, taps - 1, channels]),
        1.0,
        0.0,
    );
    let mut memory = add(
        OperandSpec::contiguous(DType::F32, &[STATES, heads, value_dim, key_dim]),
        1.0,
        0.0,
    );
    let norm_weight = weighted.then(|| add(OperandSpec::contiguous(dtype, &[value_dim]), 1.0, 1.0));
    for (number, (operand, values)) in batch.inputs().into_iter().enumerate() {
        given.insert(5 + number, (operand.clone(), values));
    }
    let out = padded(DType::F32, &[tokens, values]);
    let all: Vec<&OperandSpec> = given.iter().map(|(operand, _)| operand).chain([&out]).collect();
    let (call, tickets) = delta_net::call(traits, &delta_net::DeltaNetOperands::of(&all), &params)
        .unwrap_or_else(|error| panic!("{what}: {error}"));

    let mut arena = Arena::new();
    given
        .iter()
        .for_each(|(operand, values)| arena.add(&encode(operand, values)));
    let blank = vec![0xff; out.layout.end() * 4];
    arena.add(&blank);
    arena.add(&vec![0; tickets * 4]);
    // Runs twice: counters must be zero again, and states must continue.
    arena.run(&[call.clone(), call]);
    let inputs = delta_net::DeltaNetInputs {
        x: &x,
        weights: &weights,
        decay: &decay,
        beta: &beta,
        z: &z,
        positions: &batch.positions,
        sequences: &batch.sequences,
        norm_weight: norm_weight.as_deref(),
        sizes: [key_heads, key_dim, heads, value_dim],
    };
    delta_net::reference(&inputs, &params, &mut window, &mut memory);
    let expected = delta_net::reference(&inputs, &params, &mut window, &mut memory);
    let actual = common::values(&out, &blank, &arena.read(given.len()));
    assert_close(&actual, expected, DType::F32, &what);
    for (number, expected) in [(7, window), (8, memory)] {
        let operand = &given[number].0;
        let found = Values::load(operand.dtype, &operand.layout, &arena.read(number));
        assert_close(&found, expected, DType::F32, &format!("{what}, state {number}"));
    }
    assert!(arena.read(given.len() + 1).iter().all(|&b| b == 0), "{what}: counters");
}

#[test]
fn fused_delta_nets_match_separate_steps() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let all = [
        [1, 1, 1, 1, 1],
        [2, 24, 4, 16, 4],
        [1, 16, 3, 21, 2],
        [2, 128, 4, 128, 4],
        [3, 5, 3, 70, 3],
    ];
    let scarce = Traits {
        architecture: Architecture::Gcn,
        ..device_traits()
    };
    for traits in sample(all_traits(), 3).into_iter().chain([scarce]) {
        for (i, sizes) in all.into_iter().enumerate() {
            // Without counters, value heads cannot share the window of a key head.
            if traits.tickets || sizes[0] == sizes[2] {
                check(&traits, sizes, FLOATS[i % 3], i % 2 == 1);
            }
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
