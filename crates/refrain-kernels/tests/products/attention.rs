//! Attention against its reference.

mod case;
mod prompts;

use refrain_kernels::attention::{BlockFormat, BlockRows};
use refrain_kernels::matmul::WeightRows;
use refrain_kernels::tuning::{self, GroupCount, Tuning};
use refrain_kernels::{DType, OperandSpec, Traits, Unsupported, Values, attention};
use refrain_testing::sample;

use crate::common::{Random, rows};
use crate::decode::assert_within_steps;
use crate::support::{FLOATS, all_traits, device_traits, floats, in_turn, outcome_with, padded, stored, swapped};
use case::Case;

#[test]
fn supports_every_dtype_and_padding() {
    if !refrain_testing::drawn(6) {
        return;
    }
    for traits in sample(all_traits(), 3) {
        let tuning = tuning::choose(&traits);
        for i in 0..3 {
            let dtypes = [0, 1, 2, i].map(|j| FLOATS[(i + j) % 3]);
            Case {
                dtypes,
                ..Case::default()
            }
            .check(tuning, &traits);
        }
    }
}

#[test]
fn supports_even_head_dims_and_any_head_ratio() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let traits = device_traits();
    let sizes = [(1, 1, 2), (3, 1, 16), (6, 2, 34), (4, 4, 128), (7, 1, 256)];
    for (heads, kv_heads, head_dim) in sizes {
        let case = Case {
            heads,
            kv_heads,
            head_dim,
            ..Case::default()
        };
        case.check(tuning::choose(&traits), &traits);
    }
}

/// A case with random numbers of heads, and a tuning with one workgroup for all positions, or several splits.
fn varied(pick: &mut impl FnMut(usize) -> usize, traits: &Traits, [head_dim, value_dim]: [usize; 2]) -> (Tuning, Case) {
    let mut tuning = *tuning::choose(traits);
    tuning.attention.target_groups = GroupCount::fixed([1, 1000][pick(2)]);
    let kv_heads = 1 + pick(3);
    let case = Case {
        heads: kv_heads * (1 + pick(4)),
        kv_heads,
        head_dim,
        value_dim: Some(value_dim),
        ..Case::default()
    };
    (tuning, case)
}

#[test]
fn supports_values_of_another_size_than_keys() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let mut random = Random::new(7);
    let dims = [(192, 128), (24, 16), (16, 40), (2, 34), (254, 2), (50, 256)];
    for ((head_dim, value_dim), traits) in sample(in_turn(dims), 3) {
        let mut pick = |count: usize| random.bits() as usize % count;
        let (tuning, case) = varied(&mut pick, &traits, [head_dim, value_dim]);
        Case {
            dtypes: [0; 4].map(|_| FLOATS[pick(3)]),
            sequence_count: 2,
            slots: 2 * 12 * 64,
            pages: (0..24).map(|page| (page * 5 + 3) % 24).collect(),
            positions: vec![767, 300, 2, -1, 65, 64],
            sequences: vec![1, 0, 0, 1, 1, 0],
            sinks: [None, Some(DType::BF16)][pick(2)],
            params: attention::AttentionParams {
                scale: 0.2,
                page_size: 64,
                window: [None, Some(100)][pick(2)],
                decode: false,
                blocks: [None; 2],
            },
            ..case
        }
        .check(&tuning, &traits);
    }
}

#[test]
fn block_formats_match_the_reference() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let mut random = Random::new(31);
    let formats = BlockFormat::ALL.map(Some).into_iter().chain([None]);
    let pairs: Vec<_> = formats
        .clone()
        .flat_map(|a| formats.clone().map(move |b| [a, b]))
        .collect();
    let dims = [(32, 32), (128, 128), (192, 128), (96, 96)];
    let cases = pairs.into_iter().flat_map(|blocks| dims.map(|dims| (blocks, dims)));
    for ((blocks, (head_dim, value_dim)), traits) in sample(in_turn(cases), 3) {
        let mut pick = |count: usize| random.bits() as usize % count;
        let (tuning, case) = varied(&mut pick, &traits, [head_dim, value_dim]);
        Case {
            params: attention::AttentionParams { blocks, ..case.params },
            ..case
        }
        .check(&tuning, &traits);
    }
}

#[test]
fn block_formats_need_whole_blocks() {
    let traits = device_traits();
    let format = BlockFormat::Q8_0;
    let spec = |dtype, shape: &[usize]| OperandSpec::contiguous(dtype, shape);
    let (rows, slots) = (spec(DType::F32, &[3, 2, 48]), spec(DType::I32, &[3]));
    let state = spec(DType::U32, &[8, 2, format.words(48)]);
    let error = attention::store::call(&traits, [&rows, &slots, &state], format).expect_err("48 values");
    assert!(error.to_string().contains("multiple of 32"), "{error}");
}

/// Rows whose heads have gaps, at slots of which some do not exist.
#[test]
fn stored_blocks_match_the_reference() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let mut random = Random::new(5);
    for traits in sample(all_traits(), 3) {
        for format in BlockFormat::ALL {
            for dim in [32, 64, 96, 128, 256] {
                let (tokens, heads, slots) = (5, 3, 16);
                let rows = padded(FLOATS[dim / 32 % 3], &[tokens, heads, dim]);
                let values = stored(&rows, &floats(&mut random, tokens * heads * dim));
                let at = vec![3, -1, 15, 16, 0];
                let indices = OperandSpec::contiguous(DType::I32, &[tokens]);
                let state = OperandSpec::contiguous(DType::U32, &[slots, heads, format.words(dim)]);
                let call = attention::store::call(&traits, [&rows, &indices, &state], format).expect("supported");
                let inputs = [
                    (&rows, Values::F32(values.clone())),
                    (&indices, Values::I32(at.clone())),
                ];
                let Values::U32(found) = outcome_with(&[call], &inputs, &state, None) else {
                    unreachable!("words")
                };
                let width = heads * format.words(dim);
                let expected = format.encode(&values, dim);
                for (t, slot) in at.iter().enumerate().filter(|(_, slot)| (0..16).contains(*slot)) {
                    let decode = |words: &[u32]| {
                        let mut out = vec![0.0; heads * dim];
                        BlockRows::new(format, heads, dim, words).read(0, &mut out);
                        out
                    };
                    let found = decode(&found[*slot as usize * width..][..width]);
                    let expected = decode(&expected[t * width..][..width]);
                    assert_within_steps(format, &found, &expected, &format!("{} of {dim}", format.name));
                }
            }
        }
    }
}

#[test]
fn sliding_windows_match_the_reference() {
    for traits in sample(all_traits(), 3) {
        for window in [0, 1, 6, 1000] {
            let params = attention::AttentionParams {
                window: Some(window),
                decode: false,
                ..Case::default().params
            };
            Case {
                params,
                ..Case::default()
            }
            .check(tuning::choose(&traits), &traits);
        }
    }
}

#[test]
fn many_tokens_and_long_contexts_match_the_reference() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let traits = device_traits();
    for tuning in rows(&traits) {
        let tokens = 150;
        Case {
            heads: 8,
            kv_heads: 2,
            positions: (0..tokens).map(|t| t % 32).collect(),
            sequences: (0..tokens as u32).map(|t| t / 80).collect(),
            ..Case::default()
        }
        .check(tuning, &traits);
        let table = 40u32;
        Case {
            slots: 2 * 40 * 64,
            pages: (0..2 * table).map(|page| (page * 7 + 3) % 80).collect(),
            positions: vec![2559, 1234],
            sequences: vec![1, 0],
            params: attention::AttentionParams {
                scale: 2.0,
                page_size: 64,
                window: None,
                decode: false,
                blocks: [None; 2],
            },
            ..Case::default()
        }
        .check(tuning, &traits);
    }
}

#[test]
fn contexts_beyond_software_loop_limits_are_complete() {
    let traits = device_traits();
    // Contexts for which more rows suffice, and contexts for which loops must be unrolled.
    for (heads, head_dim, table) in [(4, 64, 140), (2, 32, 800)] {
        let last = table * 64 - 1;
        Case {
            heads,
            kv_heads: 1,
            head_dim,
            slots: table as usize * 64,
            pages: (0..2 * table as u32)
                .map(|page| (page * 9 + 4) % table as u32)
                .collect(),
            positions: vec![last, last - 70, 100],
            sequences: vec![1, 0, 0],
            params: attention::AttentionParams {
                scale: 1.0,
                page_size: 64,
                window: None,
                decode: false,
                blocks: [None; 2],
            },
            ..Case::default()
        }
        .check(tuning::choose(&traits), &traits);
    }
}

#[test]
fn attention_sinks_match_the_reference() {
    if !refrain_testing::drawn(6) {
        return;
    }
    for traits in sample(all_traits(), 3) {
        for (sinks, target_groups) in FLOATS.into_iter().zip([1, 1000, 1]) {
            let mut tuning = *tuning::choose(&traits);
            tuning.attention.target_groups = GroupCount::fixed(target_groups);
            Case {
                sinks: Some(sinks),
                ..Case::default()
            }
            .check(&tuning, &traits);
        }
    }
}

#[test]
fn splits_of_positions_are_combined() {
    if !refrain_testing::drawn(6) {
        return;
    }
    for traits in sample(all_traits(), 3) {
        let mut tuning = *tuning::choose(&traits);
        tuning.attention.target_groups = GroupCount::fixed(1000);
        let case = Case {
            slots: 2 * 12 * 64,
            pages: (0..24).map(|page| (page * 5 + 3) % 24).collect(),
            positions: vec![767, 300, 2, -1],
            sequences: vec![1, 0, 0, 1],
            params: attention::AttentionParams {
                scale: 1.5,
                page_size: 64,
                window: None,
                decode: false,
                blocks: [None; 2],
            },
            ..Case::default()
        };
        for (window, dtype, sinks) in [
            (None, DType::F32, None),
            (Some(100), DType::F16, None),
            (Some(200), DType::F32, Some(DType::BF16)),
        ] {
            let params = attention::AttentionParams { window, ..case.params };
            let dtypes = [DType::F32, DType::F32, DType::BF16, dtype];
            Case {
                params,
                dtypes,
                sinks,
                ..case.clone()
            }
            .check(&tuning, &traits);
        }
    }
}

#[test]
fn out_of_range_indices_are_clamped() {
    for traits in sample(all_traits(), 3) {
        let case = Case {
            positions: vec![3, 9, i32::MAX, i32::MIN, 20],
            sequences: vec![1, u32::MAX, 0, 0, 1],
            pages: vec![7, 8, u32::MAX, 1 << 29, 3, u32::MAX, 0, 8],
            slots: 61,
            ..Case::default()
        };
        case.check(tuning::choose(&traits), &traits);
    }
}

#[test]
fn extreme_scores_do_not_overflow() {
    let traits = device_traits();
    let params = attention::AttentionParams {
        scale: 1e4,
        ..Case::default().params
    };
    Case {
        params,
        ..Case::default()
    }
    .check(tuning::choose(&traits), &traits);
}

/// A result whose scores are infinite or NaN is NaN, never a finite mean of the values.
#[test]
fn infinite_keys_give_nan() {
    if !refrain_testing::drawn(6) {
        return;
    }
    for traits in sample(all_traits(), 3) {
        for (groups, sinks) in [(1, None), (1000, None), (1000, Some(DType::F32))] {
            let mut tuning = *tuning::choose(&traits);
            tuning.attention.target_groups = GroupCount::fixed(groups);
            Case {
                infinite_keys: true,
                dtypes: [DType::F32, DType::F16, DType::F16, DType::F32],
                slots: 2 * 12 * 64,
                pages: (0..24).map(|page| (page * 5 + 3) % 24).collect(),
                positions: vec![767, 300, 2, -1, 65, 64],
                sequences: vec![1, 0, 0, 1, 1, 0],
                sinks,
                params: attention::AttentionParams {
                    page_size: 64,
                    ..Case::default().params
                },
                ..Case::default()
            }
            .check(&tuning, &traits);
        }
    }
}

#[test]
fn queries_and_results_need_contiguous_heads_only() {
    let traits = device_traits();
    let tuning = tuning::choose(&traits);
    let case = Case::default();
    let shape = &case.q().layout.shape;
    let (q, out) = (padded(DType::F32, shape), swapped(DType::F32, shape, 0, 1));
    case.check_into(tuning, &traits, &q, &out);
    let across = swapped(DType::F32, shape, 1, 2);
    let state = OperandSpec::contiguous(DType::F32, &[64, 2, 32]);
    let tokens = OperandSpec::contiguous(DType::U32, &[6]);
    let positions = OperandSpec {
        dtype: DType::I32,
        ..tokens.clone()
    };
    let pages = OperandSpec::contiguous(DType::U32, &[2, 4]);
    let operands = [&across, &state, &state, &positions, &tokens, &pages, &out];
    let error = attention::calls(&traits, operands, None, &case.params);
    let expected = Unsupported::NeedsContiguous {
        op: "attention",
        operand: 0,
    };
    assert_eq!(error.err(), Some(expected));
}
