use refrain_kernels::expert_matmul::{self, Matrices};
use refrain_kernels::expert_sum;
use refrain_kernels::matmul::{SliceRows, WeightRows};
use refrain_kernels::quantised::QuantFormat;
use refrain_kernels::tuning::{self, ExpertTuning, GroupCount, MatrixTile, SubgroupSplit, Tuning};
use refrain_kernels::{DType, Layout, OperandSpec, Traits, Unsupported, Values};

use crate::common::Random;
use crate::quantised::RandomWeights;
use crate::support::{
    FLOATS, all_traits, assert_close, floats, in_turn, in_turn_among, outcome, outcome_with, padded, stored,
    with_matrix_cores,
};
use refrain_testing::sample;

/// Experts, rows per expert, tokens, experts per token.
type Sizes = [usize; 4];

/// Random experts; one is out of range.
fn expert_ids([experts, _, tokens, used]: Sizes) -> Vec<u32> {
    let mut random = Random::new(tokens as u64);
    let mut chosen: Vec<u32> = (0..tokens * used).map(|_| random.below(experts) as u32).collect();
    if chosen.len() > 2 {
        chosen[1] = experts as u32;
    }
    chosen
}

fn check(
    traits: &Traits,
    sizes: Sizes,
    x: &OperandSpec,
    matrices: Matrices<'_>,
    planes: &[(&OperandSpec, Values)],
    rows: &dyn WeightRows,
    out: DType,
) {
    let routed = Routed {
        tuning: *tuning::choose(traits),
        sizes,
        ids: expert_ids(sizes),
        largest: 1.0,
    };
    routed.check(traits, x, matrices, planes, rows, out);
}

/// The experts, the kernel variant, and the size of the values of x.
struct Routed {
    tuning: Tuning,
    sizes: Sizes,
    ids: Vec<u32>,
    largest: f32,
}

impl Routed {
    fn check(
        &self,
        traits: &Traits,
        x: &OperandSpec,
        matrices: Matrices<'_>,
        planes: &[(&OperandSpec, Values)],
        rows: &dyn WeightRows,
        out: DType,
    ) {
        let [_, n, tokens, used] = self.sizes;
        let what = format!(
            "{:?}, x {} {}, columns {}",
            self.sizes,
            x.dtype,
            x.layout,
            rows.columns()
        );
        let (ids, out) = (
            OperandSpec::contiguous(DType::U32, &[tokens, used]),
            OperandSpec::contiguous(out, &[tokens, used, n]),
        );
        let values = floats(&mut Random::new(5), x.layout.count());
        let values = stored(x, &values.iter().map(|v| v * self.largest).collect::<Vec<_>>());
        let (calls, workspace) = expert_matmul::calls_tuned(&self.tuning, traits, [x, &ids, &out], matrices)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let expected = expert_matmul::reference(&values, &self.ids, rows, [n; 2]);
        let mut inputs = vec![(x, Values::F32(values)), (&ids, Values::U32(self.ids.clone()))];
        inputs.extend(planes.iter().cloned());
        // Matrix cores use f16.
        let precision = match (&workspace, out.dtype) {
            (Some(_), DType::F32) => DType::F16,
            (_, dtype) => dtype,
        };
        let actual = outcome_with(&calls, &inputs, &out, workspace.as_ref());
        assert_close(&actual, expected, precision, &what);
    }
}

/// A vector that all experts of a token share.
fn shared(dtype: DType, [_, _, tokens, used]: Sizes, k: usize) -> OperandSpec {
    let layout = Layout {
        shape: vec![tokens, used, k].into(),
        strides: vec![k, 0, 1].into(),
        offset: 0,
    };
    OperandSpec { dtype, layout }
}

#[test]
fn expert_products_match_the_reference() {
    if !refrain_testing::drawn(6) {
        return;
    }
    for traits in sample(all_traits(), 3) {
        for (i, (sizes, k)) in [
            ([4, 5, 1, 2], 64),
            ([3, 33, 7, 3], 40),
            ([1, 1, 2, 1], 7),
            ([6, 10, 3, 6], 129),
        ]
        .into_iter()
        .enumerate()
        {
            for j in 0..3 {
                let dtype = |n: usize| FLOATS[(i + j + n) % 3];
                let rows = sizes[0] * sizes[1];
                let w = OperandSpec::contiguous(dtype(0), &[rows, k]);
                let values = stored(&w, &floats(&mut Random::new(9), rows * k));
                let x = match j {
                    0 => shared(dtype(1), sizes, k),
                    _ => OperandSpec::contiguous(dtype(1), &[sizes[2], sizes[3], k]),
                };
                let planes = [(&w, Values::F32(values.clone()))];
                let rows = SliceRows::new(&values, k);
                check(&traits, sizes, &x, Matrices::Dense(&w), &planes, &rows, dtype(2));
            }
        }
    }
}

#[test]
fn quantised_expert_products_match_the_reference() {
    if !refrain_testing::drawn(12) {
        return;
    }
    for ((i, format), traits) in in_turn(QuantFormat::ALL.into_iter().enumerate()) {
        let (sizes, k) = ([3, 13, 2 + i % 3, 2], if format.has_records() { 768 } else { 384 });
        let weights = RandomWeights::random(format, [sizes[0] * sizes[1], k], FLOATS[i % 3]);
        let (quants, parameters) = weights.operands();
        let biases = format.has_biases().then_some(&parameters);
        let planes = weights.inputs(&quants, &parameters);
        let values: Vec<f32> = (0..sizes[0] * sizes[1]).flat_map(|row| weights.expand(row)).collect();
        let matrices = Matrices::Quantised(format, [&quants, &parameters], biases);
        let rows = SliceRows::new(&values, k);
        for x in [
            shared(FLOATS[i % 3], sizes, k),
            OperandSpec::contiguous(FLOATS[(i + 1) % 3], &[sizes[2], sizes[3], k]),
        ] {
            check(&traits, sizes, &x, matrices, &planes, &rows, FLOATS[(i + 2) % 3]);
        }
    }
}

/// Tiles that cover all kernel variants.
fn tiles() -> Vec<MatrixTile> {
    let kinds = [
        (SubgroupSplit::Rows, [4, 1, 1, 1]),
        (SubgroupSplit::Rows, [4, 2, 2, 1]),
        (SubgroupSplit::Depth, [2, 1, 1, 2]),
        (SubgroupSplit::Depth, [4, 2, 2, 1]),
    ];
    let tile = |(split, [subgroups, rows, tokens, x_terms]): (SubgroupSplit, [u32; 4])| MatrixTile {
        max_tokens: usize::MAX,
        min_depth: 0,
        max_depth: usize::MAX,
        min_groups: GroupCount::fixed(1),
        split,
        subgroups,
        rows,
        tokens,
        narrow: false,
        x_terms,
        splits: 1,
        two_phase: false,
        prefetch: false,
        unrolled: false,
    };
    kinds.map(tile).to_vec()
}

/// The device's tuning row with one tile for any number of tokens.
fn tuned(traits: &Traits, tile: MatrixTile) -> Tuning {
    Tuning {
        experts: ExpertTuning {
            max_experts_per_pair: usize::MAX,
            tiles: Box::leak(Box::new([tile])),
            skip_empty: tile.rows > 1,
        },
        ..*tuning::choose(traits)
    }
}

#[test]
fn grouped_gemm_supports_every_format() {
    // The tokens of x are shared by the experts of each, or each expert has its own.
    let cases = QuantFormat::ALL
        .into_iter()
        .enumerate()
        .flat_map(|case| [true, false].map(|is_shared| (case, is_shared)));
    for (((i, format), is_shared), traits) in sample(in_turn_among(with_matrix_cores(), cases), 12) {
        let columns = if format.has_records() {
            256 * (1 + i % 3)
        } else {
            format.group as usize * (3 + i % 4)
        };
        let sizes = [5, 37 + i, [9, 33, 64, 70, 100][i % 5], 3];
        let weights = RandomWeights::random(format, [sizes[0] * sizes[1], columns], DType::F16);
        let (quants, parameters) = weights.operands();
        let biases = format.has_biases().then_some(&parameters);
        let planes = weights.inputs(&quants, &parameters);
        let values: Vec<f32> = (0..sizes[0] * sizes[1]).flat_map(|row| weights.expand(row)).collect();
        let matrices = Matrices::Quantised(format, [&quants, &parameters], biases);
        let rows = SliceRows::new(&values, columns);
        let routed = Routed {
            tuning: tuned(&traits, tiles()[i % 4]),
            sizes,
            ids: expert_ids(sizes),
            largest: 1.0,
        };
        let x = if is_shared {
            shared(FLOATS[i % 3], sizes, columns)
        } else {
            OperandSpec::contiguous(FLOATS[(i + 1) % 3], &[sizes[2], sizes[3], columns])
        };
        routed.check(&traits, &x, matrices, &planes, &rows, FLOATS[(i + 2) % 3]);
    }
}

#[test]
fn grouped_gemm_supports_any_routing() {
    for traits in with_matrix_cores() {
        let columns = 80;
        for (i, (sizes, only)) in [
            ([4, 5, 1, 1], None),
            ([7, 33, 1, 3], None),
            ([3, 64, 17, 1], Some(1)),
            ([600, 3, 150, 2], None),
            ([2, 129, 100, 3], Some(0)),
            ([1, 17, 50, 4], None),
            // All experts are out of range.
            ([3, 9, 20, 2], Some(7)),
        ]
        .into_iter()
        .enumerate()
        {
            let ids = match only {
                Some(expert) => vec![expert; sizes[2] * sizes[3]],
                None => expert_ids(sizes),
            };
            let w = OperandSpec::contiguous(FLOATS[1 + i % 2], &[sizes[0] * sizes[1], columns]);
            let values = stored(&w, &floats(&mut Random::new(9), w.layout.count()));
            let planes = [(&w, Values::F32(values.clone()))];
            let rows = SliceRows::new(&values, columns);
            for (j, tile) in tiles().into_iter().enumerate() {
                let routed = Routed {
                    tuning: tuned(&traits, tile),
                    sizes,
                    ids: ids.clone(),
                    largest: [1.0, 1e5, 1e-6][(i + j) % 3],
                };
                // 1e5 exceeds the range of f16.
                let dtype = if routed.largest > 1.0 { DType::BF16 } else { DType::F32 };
                let x = match (i + j) % 2 {
                    0 => shared(dtype, sizes, columns),
                    _ => OperandSpec::contiguous(dtype, &[sizes[2], sizes[3], columns]),
                };
                routed.check(&traits, &x, Matrices::Dense(&w), &planes, &rows, DType::F32);
            }
        }
    }
}

#[test]
fn expert_sum_matches_the_reference() {
    let f32s = |shape: &[usize]| OperandSpec::contiguous(DType::F32, shape);
    for traits in sample(all_traits(), 2) {
        for (tokens, used, columns) in [(1, 1, 4), (3, 5, 20), (70, 8, 36), (0, 2, 8)] {
            for weights in [f32s(&[tokens, used]), padded(DType::F32, &[tokens, used])] {
                let what = format!(
                    "{tokens} tokens, {used} experts, {columns} columns, weights {}",
                    weights.layout
                );
                let (x, out) = (f32s(&[tokens, used, columns]), f32s(&[tokens, columns]));
                let random = &mut Random::new((used + columns) as u64);
                let [xs, ws] = [tokens * used * columns, tokens * used].map(|count| floats(random, count));
                let call =
                    expert_sum::call(&traits, [&x, &weights, &out], None).unwrap_or_else(|e| panic!("{what}: {e}"));
                let expected = expert_sum::reference(&xs, &ws, used, columns);
                let actual = outcome(&[call], &[(&x, Values::F32(xs)), (&weights, Values::F32(ws))], &out);
                assert_close(&actual, expected, DType::F32, &what);
            }
        }
    }
}

#[test]
fn expert_sums_by_scores_match_the_reference() {
    let f32s = |shape: &[usize]| OperandSpec::contiguous(DType::F32, shape);
    for traits in sample(all_traits(), 2) {
        for (tokens, used, columns, experts) in [(1, 1, 4, 1), (3, 5, 20, 9), (70, 8, 36, 64), (0, 2, 8, 3)] {
            let what = format!("{tokens} tokens, {used} of {experts} experts, {columns} columns");
            let (x, out) = (f32s(&[tokens, used, columns]), f32s(&[tokens, columns]));
            let scores = padded(DType::F32, &[tokens, experts]);
            let ids = OperandSpec::contiguous(DType::U32, &[tokens, used]);
            let random = &mut Random::new((used + columns) as u64);
            let xs = floats(random, tokens * used * columns);
            let given: Vec<f32> = floats(random, tokens * experts).iter().map(|x| 40.0 * x).collect();
            let chosen = expert_ids([experts, 0, tokens, used]);
            let weights = expert_sum::reference_weights(&given, &chosen, used, experts);
            let expected = expert_sum::reference(&xs, &weights, used, columns);
            let call = expert_sum::call(&traits, [&x, &scores, &out], Some(&ids));
            let operands = [
                (&x, Values::F32(xs)),
                (&scores, Values::F32(given)),
                (&ids, Values::U32(chosen)),
            ];
            let actual = outcome(&[call.unwrap_or_else(|e| panic!("{what}: {e}"))], &operands, &out);
            assert_close(&actual, expected, DType::F32, &what);
        }
    }
}

#[test]
fn rejects_mismatched_experts() {
    let operand = |dtype, shape: &[usize]| OperandSpec::contiguous(dtype, shape);
    let (x, ids, out) = (
        operand(DType::F32, &[2, 3, 8]),
        operand(DType::U32, &[2, 3]),
        operand(DType::F32, &[2, 3, 5]),
    );
    let call = |w: &OperandSpec| expert_matmul::calls(&Traits::minimal(), &x, &ids, Matrices::Dense(w), &out).err();
    assert_eq!(call(&operand(DType::F16, &[20, 8])), None);
    for shape in [&[20, 9][..], &[21, 8], &[4, 5, 8]] {
        let error = call(&operand(DType::F16, shape));
        assert!(matches!(error, Some(Unsupported::Size { .. })), "{shape:?}: {error:?}");
    }
    let (weights, sum) = (operand(DType::F32, &[2, 3]), operand(DType::F32, &[2, 8]));
    let added = |x: &OperandSpec| expert_sum::call(&Traits::minimal(), [x, &weights, &sum], None).err();
    assert_eq!(added(&x), None);
    let permuted = OperandSpec {
        layout: Layout::contiguous(&[3, 2, 8]).permute(&[1, 0, 2]),
        ..x
    };
    assert!(matches!(added(&permuted), Some(Unsupported::NeedsContiguous { .. })));
    assert!(matches!(
        added(&operand(DType::F32, &[2, 3, 10])),
        Some(Unsupported::Size { .. })
    ));
}
