//! Fused decode attention against its separate steps.

mod case;

use refrain_kernels::attention::{self, BlockFormat};
use refrain_kernels::rms_norm::Norm;
use refrain_kernels::tuning::{self, GroupCount, Tuning};
use refrain_kernels::{DType, OperandSpec, Traits, rope};
use refrain_testing::sample;

use crate::common::{Random, rows};
use crate::support::{FLOATS, all_traits, device_traits, in_turn};
pub use case::assert_within_steps;
use case::{Case, NORM, halves};

#[test]
fn fused_decode_matches_separate_steps() {
    for traits in sample(all_traits(), 3) {
        for (i, state) in FLOATS.into_iter().enumerate() {
            Case {
                state,
                // The first position, the end of a page, the start of a page; padding in between.
                positions: [vec![0], vec![31, 64, -1, 190], vec![100, 16]][i].clone(),
                ..Case::typical()
            }
            .check(tuning::choose(&traits), &traits);
        }
    }
}

/// A case with keys and values of these sizes. `pick` chooses the rest: a number below its argument.
fn varied(pick: &mut impl FnMut(usize) -> usize, [head_dim, value_dim]: [usize; 2]) -> Case {
    let kv_heads = 1 + pick(3);
    let norm = [None, NORM][pick(2)];
    Case {
        heads: kv_heads * (1 + pick(4)),
        kv_heads,
        head_dim,
        value_dim: Some(value_dim),
        positions: [vec![0], vec![31, 64, -1, 190], vec![100, 16]][pick(3)].clone(),
        window: [None, Some(40)][pick(2)],
        rope: [None, halves(head_dim / 4 * 2)][pick(2)],
        norms: [norm, norm],
        ..Case::typical()
    }
}

#[test]
fn block_formats_match_separate_steps() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let mut random = Random::new(23);
    let dims = [(32, 32), (64, 64), (128, 128), (96, 96), (192, 128), (256, 256)];
    let cases = BlockFormat::ALL
        .into_iter()
        .flat_map(|format| dims.map(|dims| (format, dims)));
    for ((format, (head_dim, value_dim)), traits) in sample(in_turn(cases), 3) {
        let mut pick = |count: usize| random.bits() as usize % count;
        let mut tuning = *tuning::choose(&traits);
        tuning.decode.target_groups = GroupCount::fixed([1, 1 << 20][pick(2)]);
        Case {
            blocks: Some(format),
            gated: pick(2) == 0,
            ..varied(&mut pick, [head_dim, value_dim])
        }
        .check(&tuning, &traits);
    }
}

#[test]
fn fused_steps_are_optional() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let traits = device_traits();
    let unweighted = Some(Norm {
        eps: 1e-5,
        weighted: false,
    });
    let interleaved = rope::RopeParams {
        dims: 16,
        interleaved: true,
        scale: 1.25,
    };
    for (rope, norms) in [
        (None, [None, None]),
        (halves(32), [None, NORM]),
        (Some(interleaved), [unweighted, None]),
    ] {
        Case {
            rope,
            norms,
            window: Some(40),
            ..Case::typical()
        }
        .check(tuning::choose(&traits), &traits);
    }
}

#[test]
fn gates_between_queries_are_skipped() {
    if !refrain_testing::drawn(6) {
        return;
    }
    for traits in sample(all_traits(), 3) {
        for positions in [vec![100], vec![31, -1, 190]] {
            Case {
                positions,
                gated: true,
                ..Case::typical()
            }
            .check(tuning::choose(&traits), &traits);
        }
    }
}

#[test]
fn sinks_match_with_one_and_several_splits() {
    if !refrain_testing::drawn(6) {
        return;
    }
    for traits in sample(all_traits(), 3) {
        for (target_groups, gated) in [(1, false), (1 << 20, false), (1 << 20, true)] {
            let mut tuning = *tuning::choose(&traits);
            tuning.decode.target_groups = GroupCount::fixed(target_groups);
            Case {
                positions: vec![100, -1, 3],
                norms: [None, None],
                sinks: true,
                gated,
                ..Case::typical()
            }
            .check(&tuning, &traits);
        }
    }
}

/// A result whose scores are infinite or NaN is NaN, never a finite mean of the values.
#[test]
fn infinite_keys_give_nan() {
    if !refrain_testing::drawn(6) {
        return;
    }
    for traits in sample(all_traits(), 3) {
        for (target_groups, sinks) in [(1, false), (1 << 20, false), (1 << 20, true)] {
            let mut tuning = *tuning::choose(&traits);
            tuning.decode.target_groups = GroupCount::fixed(target_groups);
            Case {
                infinite_keys: true,
                positions: vec![100, -1, 3],
                norms: [None, None],
                sinks,
                ..Case::typical()
            }
            .check(&tuning, &traits);
        }
    }
}

#[test]
fn supports_even_head_dims_and_any_head_ratio() {
    if !refrain_testing::drawn(6) {
        return;
    }
    for traits in [device_traits(), Traits::minimal()] {
        for (heads, kv_heads, head_dim) in [(3, 1, 2), (4, 4, 6), (6, 2, 80), (2, 1, 256), (5, 5, 128)] {
            Case {
                heads,
                kv_heads,
                head_dim,
                rope: halves(head_dim / 4 * 2),
                ..Case::typical()
            }
            .check(tuning::choose(&traits), &traits);
        }
    }
}

#[test]
fn supports_values_of_another_size_than_keys() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let mut random = Random::new(11);
    let dims = [(192, 128), (24, 16), (16, 40), (2, 34), (254, 2), (50, 256)];
    for traits in sample(all_traits(), 3) {
        for (i, (head_dim, value_dim)) in sample(dims.into_iter().enumerate(), 3) {
            let mut pick = |count: usize| random.bits() as usize % count;
            let mut tuning = *tuning::choose(&traits);
            tuning.decode.target_groups = GroupCount::fixed([1, 1 << 20][pick(2)]);
            let [sinks, gated] = [[false, false], [true, false], [false, true]][pick(3)];
            Case {
                state: FLOATS[i % 3],
                sinks,
                gated,
                ..varied(&mut pick, [head_dim, value_dim])
            }
            .check(&tuning, &traits);
        }
    }
}

#[test]
fn every_tuning_row_combines_splits_of_long_contexts() {
    if !refrain_testing::drawn(12) {
        return;
    }
    let traits = device_traits();
    let settings = |tuning: &Tuning| tuning.decode_short.into_iter().chain([tuning.decode]);
    let rows = rows(&traits)
        .into_iter()
        .flat_map(|tuning| settings(tuning).map(move |decode| (tuning, decode)));
    for (tuning, decode) in rows {
        for target_groups in [1, 1 << 20] {
            let mut tuning = *tuning;
            (tuning.decode, tuning.decode_short) = (decode, None);
            tuning.decode.target_groups = GroupCount::fixed(target_groups);
            // Less than one tile, a full tile, and more than the maximum number of splits.
            for (positions, table) in [(vec![tuning.decode.positions as i32 - 1, 5], 12), (vec![1999], 130)] {
                Case {
                    positions,
                    table,
                    ..Case::typical()
                }
                .check(&tuning, &traits);
            }
        }
    }
}

/// Queries that share a key head or do not, heads of few and of many values, tiles of which the last is not full.
#[test]
fn subgroups_attend_to_positions_of_their_own() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let traits = device_traits();
    if !traits.exchanges_lanes() {
        println!("skipped: the lanes of this device's subgroups do not exchange values");
        return;
    }
    let mut random = Random::new(29);
    let formats = FLOATS.map(|state| (state, None)).into_iter();
    let formats = formats.chain(BlockFormat::ALL.map(|format| (DType::F16, Some(format))));
    let cases = formats.flat_map(|format| [16, 32, 64, 128].map(|head_dim| (format, head_dim)));
    let cases = cases.filter(|((_, blocks), head_dim)| blocks.is_none() || head_dim % 32 == 0);
    for ((state, blocks), head_dim) in sample(cases, 2) {
        let mut pick = |count: usize| random.bits() as usize % count;
        let mut tuning = *tuning::choose(&traits);
        (tuning.decode_many, tuning.decode_short) = (&[], None);
        tuning.decode.by_subgroups = true;
        tuning.decode.unrolled = pick(2) == 0;
        tuning.decode.threads = [traits.subgroup_size, 32, 64][pick(3)];
        tuning.decode.positions = [16, 64][pick(2)];
        tuning.decode.max_heads = [1, 2, 8][pick(3)];
        tuning.decode.target_groups = GroupCount::fixed([1, 1 << 20][pick(2)]);
        let [sinks, gated, infinite_keys] = [0, 0, 0].map(|_| pick(3) == 0);
        Case {
            state,
            blocks,
            sinks,
            gated: gated && !sinks,
            infinite_keys: infinite_keys && blocks.is_none(),
            ..varied(&mut pick, [head_dim, head_dim])
        }
        .check(&tuning, &traits);
    }
}

#[test]
fn settings_for_many_sequences_match_those_for_few() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let traits = device_traits();
    for tuning in rows(&traits) {
        for mut many in tuning.decode_many.iter().copied() {
            many.target_groups = GroupCount::fixed(1);
            let tuning = Tuning {
                decode_many: vec![many].leak(),
                ..*tuning
            };
            for (positions, table) in [(vec![many.positions as i32 - 1, 5], 12), (vec![300, 0, 1999], 130)] {
                Case {
                    positions,
                    table,
                    ..Case::typical()
                }
                .check(&tuning, &traits);
            }
        }
    }
}

#[test]
fn a_second_call_combines_splits_without_tickets() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let traits = Traits {
        tickets: false,
        ..device_traits()
    };
    let mut tuning = *tuning::choose(&traits);
    tuning.decode.target_groups = GroupCount::fixed(1 << 20);
    for (positions, table) in [(vec![tuning.decode.positions as i32 - 1, 5], 12), (vec![1999], 130)] {
        Case {
            positions,
            table,
            ..Case::typical()
        }
        .check(&tuning, &traits);
    }
}

#[test]
fn contexts_beyond_software_loop_limits_get_more_splits() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let traits = device_traits();
    Case {
        page_size: 64,
        table: 800,
        positions: vec![51_150],
        ..Case::typical()
    }
    .check(tuning::choose(&traits), &traits);
}

#[test]
fn out_of_range_operands_are_neither_read_nor_written() {
    let traits = device_traits();
    let case = Case {
        positions: vec![500, 3],
        ..Case::typical()
    };
    // A position beyond the page table attends up to the table's end.
    case.check(tuning::choose(&traits), &traits);
    let operands = case.operands();
    let out = OperandSpec::contiguous(DType::F32, &[2, 8, 16]);
    let all: Vec<&OperandSpec> = operands.iter().map(|(o, _)| o).chain([&out]).collect();
    let error = attention::check_decode(&traits, &all, &case.params()).expect_err("heads of 16");
    assert!(error.to_string().contains("[2, 8, 32]"), "{error}");
    assert!(attention::check_decode(&traits, &all[..5], &case.params()).is_err());
}
