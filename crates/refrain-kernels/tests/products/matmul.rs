use crate::common::{Random, rows};
use crate::support::{FLOATS, all_traits, assert_close, device_traits, floats, outcome_of, padded, stored, swapped};
use crate::tiles::tile_rows;
use refrain_kernels::tuning::{self, GroupCount, Tuning};
use refrain_kernels::{DType, Layout, OperandSpec, Traits, Unsupported, Values, matmul};
use refrain_testing::sample;

struct Case<'a> {
    tuning: &'a Tuning,
    traits: &'a Traits,
    a: OperandSpec,
    b: OperandSpec,
    out: OperandSpec,
}

impl Case<'_> {
    fn check(&self) {
        let Case { a, b, out, .. } = self;
        let what = format!(
            "{} {} × {} {} → {} {} with subgroups of {}",
            a.dtype, a.layout, b.dtype, b.layout, out.dtype, out.layout, self.traits.subgroup_size
        );
        let mut random = Random::new(a.layout.count() as u64 + 7);
        let [x, y] = [a, b].map(|o| stored(o, &floats(&mut random, o.layout.count())));
        let [k, n] = b.layout.shape[b.layout.rank() - 2..] else {
            unreachable!()
        };
        let m = a.layout.shape[a.layout.rank() - 2];
        let batch = a.layout.shape[..a.layout.rank() - 2].iter().product();
        let expected = matmul::reference(&x, &y, batch, m, k, n);
        let made =
            matmul::call_tuned(self.tuning, self.traits, a, b, out).unwrap_or_else(|error| panic!("{what}: {error}"));
        let inputs = [(a, Values::F32(x)), (b, Values::F32(y))];
        let actual = outcome_of(&made, &inputs, out);
        assert_close(&actual, expected, out.dtype, &what);
    }
}

/// A weight `[n, k]` viewed as `[k, n]`.
fn weight(dtype: DType, k: usize, n: usize) -> OperandSpec {
    swapped(dtype, &[k, n], 0, 1)
}

#[test]
fn every_mix_of_dtypes_and_few_or_many_rows() {
    if !refrain_testing::drawn(6) {
        return;
    }
    for traits in sample(all_traits(), 3) {
        for (i, dtype) in FLOATS.into_iter().enumerate() {
            for m in [1, 3, 33] {
                let (b, c) = (FLOATS[(i + 1) % 3], FLOATS[(i + m) % 3]);
                Case {
                    tuning: tuning::choose(&traits),
                    traits: &traits,
                    a: OperandSpec::contiguous(dtype, &[m, 72]),
                    b: weight(b, 72, 45),
                    out: OperandSpec::contiguous(c, &[m, 45]),
                }
                .check();
            }
        }
    }
}

#[test]
fn supports_odd_sizes_and_any_strides() {
    if !refrain_testing::drawn(12) {
        return;
    }
    for traits in sample(all_traits(), 3) {
        for (m, k, n) in [(1, 1, 1), (2, 7, 5), (5, 70, 3), (40, 33, 67), (70, 5, 1), (1, 70, 130)] {
            for dtype in [DType::F32, DType::F16] {
                let operands = [
                    (padded(dtype, &[m, k]), padded(dtype, &[k, n]), padded(dtype, &[m, n])),
                    (
                        swapped(dtype, &[m, k], 0, 1),
                        weight(dtype, k, n),
                        swapped(dtype, &[m, n], 0, 1),
                    ),
                ];
                for (a, b, out) in operands {
                    Case {
                        tuning: tuning::choose(&traits),
                        traits: &traits,
                        a,
                        b,
                        out,
                    }
                    .check();
                }
            }
        }
    }
}

#[test]
fn batches_may_be_broadcast_and_permuted() {
    let traits = device_traits();
    for m in [1, 20] {
        let shape = [2, 3, m, 16];
        let row = Layout::contiguous(&[3, 1, 16, 9]);
        let mut shared = row.clone();
        shared.shape = vec![3, 4, 16, 9].into();
        shared.strides[1] = 0;
        let heads = OperandSpec {
            dtype: DType::F32,
            layout: shared.broadcast(&[3, 4, 16, 9]).expect("same shape"),
        };
        Case {
            tuning: tuning::choose(&traits),
            traits: &traits,
            a: swapped(DType::F32, &[3, 4, m, 16], 1, 2),
            b: heads,
            out: swapped(DType::F32, &[3, 4, m, 9], 1, 2),
        }
        .check();
        let once = OperandSpec {
            dtype: DType::F32,
            layout: Layout::contiguous(&[16, 9]).broadcast(&[2, 3, 16, 9]).expect("repeats"),
        };
        Case {
            tuning: tuning::choose(&traits),
            traits: &traits,
            a: OperandSpec::contiguous(DType::F32, &shape),
            b: once,
            out: OperandSpec::contiguous(DType::F32, &[2, 3, m, 9]),
        }
        .check();
    }
}

#[test]
fn every_tuning_row_computes_the_same_result() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let traits = device_traits();
    for tuning in rows(&traits) {
        for (m, k, n) in [(1, 1032, 77), (4, 1032, 77), (70, 65, 70)] {
            Case {
                tuning,
                traits: &traits,
                a: OperandSpec::contiguous(DType::F32, &[m, k]),
                b: weight(DType::BF16, k, n),
                out: OperandSpec::contiguous(DType::F32, &[m, n]),
            }
            .check();
        }
    }
}

#[test]
fn every_tile_matches_with_and_without_split_k() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let traits = device_traits();
    let both = |tuning| [1, 3].map(|max_splits| (tuning, max_splits));
    for (mut tuning, max_splits) in sample(tile_rows(&traits).into_iter().flat_map(both), 6) {
        tuning.tile.max_splits = max_splits;
        tuning.tile.target_groups = GroupCount::fixed(65_535);
        Case {
            tuning: &tuning,
            traits: &traits,
            a: OperandSpec::contiguous(DType::F32, &[70, 1032]),
            b: weight(DType::BF16, 1032, 77),
            out: OperandSpec::contiguous(DType::F32, &[70, 77]),
        }
        .check();
    }
}

#[test]
fn split_k_matches_the_reference() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let traits = device_traits();
    let row = tuning::choose(&traits);
    for max_splits in [2, 5, 64] {
        let mut tuning = *row;
        tuning.tile.max_splits = max_splits;
        tuning.tile.target_groups = GroupCount::fixed(65_535);
        for (m, k, n) in [(70, 1032, 77), (20, 2048, 128), (33, 129, 1)] {
            let case = Case {
                tuning: &tuning,
                traits: &traits,
                a: OperandSpec::contiguous(DType::F32, &[m, k]),
                b: weight(DType::F32, k, n),
                out: OperandSpec::contiguous(DType::F32, &[m, n]),
            };
            case.check();
            let made = matmul::call_tuned(&tuning, &traits, &case.a, &case.b, &case.out).expect("checked");
            let shared = made.tickets > 0 && made.workspace.is_some();
            assert_eq!(shared, n > 1 && k.div_ceil(128) > 1, "{m} × {k} × {n}");
        }
    }
}

#[test]
fn empty_sums_are_zero_and_empty_results_need_no_call() {
    let traits = device_traits();
    for m in [1, 50] {
        Case {
            tuning: tuning::choose(&traits),
            traits: &traits,
            a: OperandSpec::contiguous(DType::F32, &[m, 0]),
            b: weight(DType::F32, 0, 5),
            out: OperandSpec::contiguous(DType::F32, &[m, 5]),
        }
        .check();
    }
    let [a, b] = [[0, 8], [8, 5]].map(|shape| OperandSpec::contiguous(DType::F32, &shape));
    let out = OperandSpec::contiguous(DType::F32, &[0, 5]);
    assert!(
        matmul::call(&traits, &a, &b, &out)
            .expect("nothing to do")
            .calls
            .is_empty()
    );
}

#[test]
fn rejects_invalid_products_with_a_reason() {
    let traits = Traits::minimal();
    let float = |shape: &[usize]| OperandSpec::contiguous(DType::F32, shape);
    let refused = |a: &OperandSpec, b: &OperandSpec, out: &OperandSpec| {
        matmul::call(&traits, a, b, out).expect_err("unsupported")
    };
    let error = refused(&float(&[2, 3]), &float(&[4, 5]), &float(&[2, 5]));
    assert!(error.to_string().contains("[2, 3] times [4, 5]"), "{error}");
    let integers = OperandSpec::contiguous(DType::I32, &[2, 3]);
    let error = refused(&integers, &float(&[3, 5]), &float(&[2, 5]));
    assert_eq!(
        error,
        Unsupported::DType {
            op: "matmul",
            dtype: DType::I32
        }
    );
    let mut apart = padded(DType::F32, &[2, 2, 2, 2, 3]);
    let (b, out) = (float(&[2, 2, 2, 3, 5]), float(&[2, 2, 2, 2, 5]));
    let error = refused(&apart, &b, &out);
    assert_eq!(
        error,
        Unsupported::NeedsContiguous {
            op: "matmul",
            operand: 0
        }
    );
    apart.layout = Layout::contiguous(&apart.layout.shape);
    assert!(matmul::call(&traits, &apart, &b, &out).is_ok());
}

/// Operands of a product over `k`, with or without padding between rows.
fn long(dtype: DType, [m, k, n]: [usize; 3], gaps: bool) -> [OperandSpec; 3] {
    let (mut a, mut b) = (OperandSpec::contiguous(DType::F32, &[m, k]), weight(dtype, k, n));
    if gaps {
        (a.layout.strides[0], b.layout.strides[1]) = (k + 1, k + 1);
    }
    [a, b, OperandSpec::contiguous(DType::F32, &[m, n])]
}

#[test]
fn every_tuning_row_supports_the_depths_of_models() {
    let traits = device_traits();
    for tuning in rows(&traits) {
        for (m, gaps) in [(1, false), (1, true), (8, true), (8, false), (512, false)] {
            for dtype in FLOATS {
                let [a, b, out] = long(dtype, [m, 32_768, 4096], gaps);
                let made = matmul::call_tuned(tuning, &traits, &a, &b, &out);
                assert!(made.is_ok(), "{m} rows of {dtype}: {made:?}");
            }
        }
    }
}

#[test]
fn long_sums_are_complete_or_rejected() {
    let traits = device_traits();
    let tuning = tuning::choose(&traits);
    for (m, gaps) in [(1, false), (1, true), (8, false), (12, true)] {
        let call = |k: usize| {
            let [a, b, out] = long(DType::F16, [m, k, 12], gaps);
            matmul::call_tuned(tuning, &traits, &a, &b, &out)
        };
        let lengths = (1..=16).map(|i| i * 4096);
        let (possible, refused): (Vec<usize>, Vec<usize>) = lengths.partition(|&k| call(k).is_ok());
        let longest = *possible.last().expect("short sums are possible");
        assert!(refused.iter().all(|&k| k > longest), "{longest}");
        let [a, b, out] = long(DType::F16, [m, longest, 12], gaps);
        let traits = &traits;
        Case {
            tuning,
            traits,
            a,
            b,
            out,
        }
        .check();
        for k in refused {
            let error = call(k).expect_err("refused");
            assert!(
                error.to_string().contains(&format!("sums over {k} products")),
                "{error}"
            );
        }
    }
}
