//! Projections fused with top-k.

use refrain_kernels::matmul::{SliceRows, WeightRows};
use refrain_kernels::projection::{self, Norm, Projection, ProjectionInputs, RouterProjection, Section, WeightStorage};
use refrain_kernels::quantised::QuantFormat;
use refrain_kernels::{DType, OperandSpec, Traits, Unsupported, Values, top_k, tuning};
use refrain_testing::sample;

use crate::common::Random;
use crate::projections::epilogue;
use crate::quantised::RandomWeights as Quantised;
use crate::support::{
    FLOATS, all_traits, assert_product_close, device_traits, floats, in_turn, outcomes_of, padded, stored,
};

struct Case {
    tokens: usize,
    columns: usize,
    /// Rows of each section, the index of the section with top-k, and k.
    rows: Vec<usize>,
    section: usize,
    count: usize,
    weights: WeightStorage,
    /// Types of x, of the matrices or scales, and of the result.
    dtypes: [DType; 3],
    /// Whether there is an epilogue.
    has_epilogue: bool,
}

const NORM: Norm = Norm {
    eps: 1e-6,
    weighted: true,
};

/// Adds an operand of coarse values, so that some sums are equal; the first `zeros` are zero. Returns the values as
/// stored.
fn add(given: &mut Vec<(OperandSpec, Values)>, operand: OperandSpec, random: &mut Random, zeros: usize) -> Vec<f32> {
    let coarse = floats(random, operand.layout.count()).into_iter().enumerate();
    let coarse = coarse.map(|(i, x)| if i < zeros { 0.0 } else { (2.0 * x).round() });
    let kept = stored(&operand, &coarse.collect::<Vec<_>>());
    given.push((operand, Values::F32(kept.clone())));
    kept
}

impl Case {
    fn router(&self) -> RouterProjection {
        let [.., out] = self.dtypes;
        let section = Section {
            parts: vec![self.weights],
            epilogue: epilogue(1, out),
        };
        let plain = Section::plain(self.weights, out);
        RouterProjection {
            projection: Projection {
                norm: Some(NORM),
                sections: vec![if self.has_epilogue { section } else { plain }; self.rows.len()],
            },
            section: self.section,
            count: self.count,
        }
    }

    /// Returns all operands except the results with their values, and the values of the matrices. With several tokens,
    /// the first is zero.
    fn inputs(&self, random: &mut Random) -> (Vec<(OperandSpec, Values)>, Vec<Vec<f32>>) {
        let [x, stored_as, out] = self.dtypes;
        let mut given = Vec::new();
        let zeros = if self.tokens > 1 { self.columns } else { 0 };
        add(&mut given, padded(x, &[self.tokens, self.columns]), random, zeros);
        add(
            &mut given,
            OperandSpec::contiguous(DType::F32, &[self.columns]),
            random,
            0,
        );
        let mut matrices = Vec::new();
        for &rows in &self.rows {
            let shape = [rows, self.columns];
            matrices.push(match self.weights {
                WeightStorage::Dense => add(&mut given, OperandSpec::contiguous(stored_as, &shape), random, 0),
                WeightStorage::Quantised(format) => {
                    let weights = Quantised::random(format, shape, stored_as);
                    let (quants, parameters) = weights.operands();
                    let planes = weights.inputs(&quants, &parameters).into_iter();
                    given.extend(planes.map(|(operand, plane)| (operand.clone(), plane)));
                    (0..rows).flat_map(|row| weights.expand(row)).collect()
                }
            });
        }
        for &rows in self.rows.iter().filter(|_| self.has_epilogue) {
            let operand = padded(out, &[self.tokens, rows]);
            let kept = stored(&operand, &floats(random, self.tokens * rows));
            given.push((operand, Values::F32(kept)));
        }
        (given, matrices)
    }

    fn check(&self, traits: &Traits) {
        let router = self.router();
        let (inputs, matrices) = self.inputs(&mut Random::new((self.columns + self.rows[0]) as u64));
        let width = self.rows.iter().sum();
        let out = padded(self.dtypes[2], &[self.tokens, width]);
        let places = OperandSpec::contiguous(DType::U32, &[self.tokens, self.count]);
        let all: Vec<&OperandSpec> = inputs.iter().map(|(o, _)| o).chain([&out, &places]).collect();
        let what = format!("{router} of {} × {}, rows {:?}", self.tokens, self.columns, self.rows);
        assert_eq!(router.check(traits, &all), Ok(()), "{what}");
        let made = router.calls(traits, &all).expect("checked");
        assert_eq!(made.calls.len(), 1, "{what}");

        let f32s = |number: usize| inputs[number].1.f32();
        let rows: Vec<SliceRows<'_>> = matrices.iter().map(|w| SliceRows::new(w, self.columns)).collect();
        let extras = if self.has_epilogue { self.rows.len() } else { 0 };
        let expected = projection::reference(
            &router.projection,
            &ProjectionInputs {
                x: f32s(0),
                norm_weight: Some(f32s(1)),
                parts: rows.iter().map(|rows| rows as &dyn WeightRows).collect(),
                extras: inputs[inputs.len() - extras..].iter().map(|(_, v)| v.clone()).collect(),
                tokens: self.tokens,
            },
        );
        let given: Vec<(&OperandSpec, Values)> = inputs.iter().map(|(o, values)| (o, values.clone())).collect();
        let results = outcomes_of(&made, &given, &[&out, &places]);
        assert_product_close(&made.calls, &results[0], expected.f32().to_vec(), self.dtypes[2], &what);
        // The top-k is that of the rounded scores.
        let first: usize = self.rows[..self.section].iter().sum();
        let of_token = |row: &[f32]| row[first..first + self.rows[self.section]].to_vec();
        let scores = Values::F32(results[0].f32().chunks(width).flat_map(of_token).collect());
        let largest = top_k::reference(&scores, self.rows[self.section], self.count);
        assert_eq!(results[1], Values::U32(largest), "{what}");
    }
}

#[test]
fn router_top_k_picks_the_largest_and_first_of_equals() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let dense = |experts: usize, tokens: usize| Case {
        tokens,
        columns: 96,
        rows: vec![experts],
        section: 0,
        count: 1 + (3 * tokens).min(experts - 1),
        weights: WeightStorage::Dense,
        dtypes: [DType::F32, FLOATS[tokens % 3], DType::F32],
        has_epilogue: tokens.is_multiple_of(2),
    };
    if !device_traits().tickets {
        return;
    }
    let sizes = [1, 2, 3, 8, 61, 128, 255, 256, 257, 511, 512];
    let cases = sizes.into_iter().flat_map(|n| (1..=8).map(move |t| (n, t)));
    for ((experts, tokens), traits) in sample(in_turn(cases), 12) {
        let traits = &Traits {
            tickets: true,
            ..traits
        };
        let max_vectors = tuning::choose(traits).dense.max_vectors as usize;
        dense(experts, tokens.min(max_vectors)).check(traits);
    }
    for traits in all_traits() {
        let traits = &Traits {
            tickets: true,
            ..traits
        };
        // All of them, sorted.
        Case {
            count: 67,
            ..dense(67, 2)
        }
        .check(traits);
    }
}

#[test]
fn router_top_k_supports_every_format_and_other_sections() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let traits = device_traits();
    for (i, format) in sample(QuantFormat::ALL.into_iter().enumerate(), 8) {
        Case {
            tokens: 1 + i % 8,
            columns: if format.has_records() { 768 } else { 384 },
            rows: if i % 2 == 0 { vec![77, 1] } else { vec![3, 130, 5] },
            section: i % 2,
            count: 8,
            weights: WeightStorage::Quantised(format),
            dtypes: [FLOATS[i % 3], FLOATS[(i + 1) % 3], FLOATS[(i / 2) % 3]],
            // There are as many operands as the push constants have room for.
            has_epilogue: i % 4 == 0,
        }
        .check(&traits);
    }
}

#[test]
fn rejects_routers_that_need_several_dispatches() {
    let own = device_traits();
    let check = |traits: &Traits, tokens: usize, experts: usize, count: usize| {
        let case = Case {
            tokens,
            columns: 32,
            rows: vec![experts],
            section: 0,
            count,
            weights: WeightStorage::Dense,
            dtypes: [DType::F32; 3],
            has_epilogue: false,
        };
        let (inputs, _) = case.inputs(&mut Random::new(1));
        let out = OperandSpec::contiguous(DType::F32, &[tokens, experts]);
        let places = OperandSpec::contiguous(DType::U32, &[tokens, count]);
        let all: Vec<&OperandSpec> = inputs.iter().map(|(o, _)| o).chain([&out, &places]).collect();
        case.router().check(traits, &all)
    };
    assert_eq!(check(&own, 8, 512, 8), Ok(()));
    let without = Traits {
        tickets: false,
        ..own.clone()
    };
    for error in [
        check(&without, 1, 64, 8),
        check(&own, 9, 64, 8),
        check(&own, 1, 513, 8),
        check(&own, 1, 64, 65),
        check(&own, 1, 64, 0),
    ] {
        assert!(matches!(error, Err(Unsupported::Size { .. })), "{error:?}");
    }
}
