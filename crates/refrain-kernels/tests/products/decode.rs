//! Attention of single tokens against its pieces, one after another.

mod case;

use refrain_kernels::attention;
use refrain_kernels::rms_norm::Norm;
use refrain_kernels::tuning::{self, GroupCount, Tuning};
use refrain_kernels::{DType, OperandSpec, Traits, rope};
use refrain_testing::sample;

use crate::common::{Random, rows};
use crate::support::{FLOATS, all_traits, device_traits};
use case::{Case, NORM, halves};

#[test]
fn queries_and_keys_are_made_kept_and_attended_with() {
    for traits in sample(all_traits(), 3) {
        for (i, state) in FLOATS.into_iter().enumerate() {
            Case {
                state,
                // The first position, the end of a page, its start; padding beside others.
                positions: [vec![0], vec![31, 64, -1, 190], vec![100, 16]][i].clone(),
                ..Case::usual()
            }
            .check(tuning::choose(&traits), &traits);
        }
    }
}

#[test]
fn pieces_may_be_missing() {
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
            ..Case::usual()
        }
        .check(tuning::choose(&traits), &traits);
    }
}

#[test]
fn gates_lie_between_queries() {
    for traits in sample(all_traits(), 3) {
        for positions in [vec![100], vec![31, -1, 190]] {
            Case {
                positions,
                gated: true,
                ..Case::usual()
            }
            .check(tuning::choose(&traits), &traits);
        }
    }
}

#[test]
fn sinks_take_their_share_of_one_part_and_of_several() {
    for traits in sample(all_traits(), 3) {
        for (enough_groups, gated) in [(1, false), (1 << 20, false), (1 << 20, true)] {
            let mut tuning = *tuning::choose(&traits);
            tuning.decode.enough_groups = GroupCount::fixed(enough_groups);
            Case {
                positions: vec![100, -1, 3],
                norms: [None, None],
                sinks: true,
                gated,
                ..Case::usual()
            }
            .check(&tuning, &traits);
        }
    }
}

#[test]
fn heads_of_any_even_size_and_ratio() {
    for traits in [device_traits(), Traits::minimal()] {
        for (heads, kv_heads, head_dim) in [(3, 1, 2), (4, 4, 6), (6, 2, 80), (2, 1, 256), (5, 5, 128)] {
            Case {
                heads,
                kv_heads,
                head_dim,
                rope: halves(head_dim / 4 * 2),
                ..Case::usual()
            }
            .check(tuning::choose(&traits), &traits);
        }
    }
}

#[test]
fn values_of_another_size_than_keys() {
    let mut random = Random::new(11);
    let dims = [(192, 128), (24, 16), (16, 40), (2, 34), (254, 2), (50, 256)];
    for traits in sample(all_traits(), 3) {
        for (i, (head_dim, value_dim)) in dims.into_iter().enumerate() {
            let mut pick = |count: usize| random.bits() as usize % count;
            let mut tuning = *tuning::choose(&traits);
            tuning.decode.enough_groups = GroupCount::fixed([1, 1 << 20][pick(2)]);
            let kv_heads = 1 + pick(3);
            let norm = [None, NORM][pick(2)];
            let [sinks, gated] = [[false, false], [true, false], [false, true]][pick(3)];
            Case {
                heads: kv_heads * (1 + pick(4)),
                kv_heads,
                head_dim,
                value_dim: Some(value_dim),
                positions: [vec![0], vec![31, 64, -1, 190], vec![100, 16]][pick(3)].clone(),
                window: [None, Some(40)][pick(2)],
                rope: [None, halves(head_dim / 4 * 2)][pick(2)],
                norms: [norm, norm],
                state: FLOATS[i % 3],
                sinks,
                gated,
                ..Case::usual()
            }
            .check(&tuning, &traits);
        }
    }
}

#[test]
fn every_tuning_row_joins_parts_of_long_contexts() {
    let traits = device_traits();
    for tuning in rows(&traits) {
        for enough_groups in [1, 1 << 20] {
            let mut tuning = *tuning;
            tuning.decode.enough_groups = GroupCount::fixed(enough_groups);
            // Less than one tile, a full one, and more than there are parts.
            for (positions, table) in [(vec![tuning.decode.positions as i32 - 1, 5], 12), (vec![1999], 130)] {
                Case {
                    positions,
                    table,
                    ..Case::usual()
                }
                .check(&tuning, &traits);
            }
        }
    }
}

#[test]
fn workgroups_for_many_sequences_attend_as_those_for_few() {
    let traits = device_traits();
    for tuning in rows(&traits) {
        for mut many in tuning.decode_many.iter().copied() {
            many.enough_groups = GroupCount::fixed(1);
            let tuning = Tuning {
                decode_many: vec![many].leak(),
                ..*tuning
            };
            for (positions, table) in [(vec![many.positions as i32 - 1, 5], 12), (vec![300, 0, 1999], 130)] {
                Case {
                    positions,
                    table,
                    ..Case::usual()
                }
                .check(&tuning, &traits);
            }
        }
    }
}

#[test]
fn a_second_call_joins_parts_where_tickets_are_not_promised() {
    let traits = Traits {
        tickets: false,
        ..device_traits()
    };
    let mut tuning = *tuning::choose(&traits);
    tuning.decode.enough_groups = GroupCount::fixed(1 << 20);
    for (positions, table) in [(vec![tuning.decode.positions as i32 - 1, 5], 12), (vec![1999], 130)] {
        Case {
            positions,
            table,
            ..Case::usual()
        }
        .check(&tuning, &traits);
    }
}

#[test]
fn contexts_too_long_for_loops_of_software_drivers_are_shared_by_more_parts() {
    let traits = device_traits();
    Case {
        page_size: 64,
        table: 800,
        positions: vec![51_150],
        ..Case::usual()
    }
    .check(tuning::choose(&traits), &traits);
}

#[test]
fn what_does_not_exist_is_neither_read_nor_written() {
    let traits = device_traits();
    let case = Case {
        positions: vec![500, 3],
        ..Case::usual()
    };
    // A position beyond the table is attended from as far as the table goes.
    case.check(tuning::choose(&traits), &traits);
    let operands = case.operands();
    let out = OperandSpec::contiguous(DType::F32, &[2, 8, 16]);
    let all: Vec<&OperandSpec> = operands.iter().map(|(o, _)| o).chain([&out]).collect();
    let error = attention::check_decode(&traits, &all, &case.params()).expect_err("heads of 16");
    assert!(error.to_string().contains("[2, 8, 32]"), "{error}");
    assert!(attention::check_decode(&traits, &all[..5], &case.params()).is_err());
}
