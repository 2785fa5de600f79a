mod matrix_cores;

use crate::common::{Random, rows};
use crate::quantised::RandomWeights as Quantised;
use crate::support::{FLOATS, all_traits, assert_product_close, device_traits, floats, outcome_of, padded, stored};
use refrain_kernels::elementwise::{BinaryOp, Expression, ExpressionStep, UnaryOp};
use refrain_kernels::matmul::{SliceRows, WeightRows};
use refrain_kernels::projection::{self, Norm, Projection, ProjectionInputs, Section, WeightStorage};
use refrain_kernels::quantised::QuantFormat;
use refrain_kernels::tuning::{self, GroupCount, Tuning};
use refrain_kernels::{DType, Layout, OperandSpec, Traits, Unsupported, Values};
use refrain_testing::sample;

/// The sections of a projection with their rows.
pub struct Case {
    pub tokens: usize,
    pub columns: usize,
    pub x: DType,
    pub out: DType,
    pub norm: Option<Norm>,
    pub sections: Vec<(Section, usize)>,
    /// Type of dense matrices and of scales.
    pub weights: DType,
}

/// Epilogues sum + bias, or silu(sum 0) · sum 1 + residual.
pub fn epilogue(parts: usize, dtype: DType) -> Expression {
    let sum = dtype;
    let steps = match parts {
        1 => vec![
            ExpressionStep::Input(0),
            ExpressionStep::Input(1),
            ExpressionStep::Binary(BinaryOp::Add, 0, 1),
        ],
        _ => vec![
            ExpressionStep::Input(0),
            ExpressionStep::Unary(UnaryOp::Sigmoid, 0),
            ExpressionStep::Binary(BinaryOp::Mul, 0, 1),
            ExpressionStep::Input(1),
            ExpressionStep::Binary(BinaryOp::Mul, 2, 3),
            ExpressionStep::Input(2),
            ExpressionStep::Binary(BinaryOp::Add, 4, 5),
        ],
    };
    Expression {
        inputs: vec![sum; parts + 1],
        steps,
    }
}

impl Case {
    /// A norm and one section.
    pub fn normed(tokens: usize, columns: usize, section: (Section, usize)) -> Case {
        Case {
            tokens,
            columns,
            x: DType::F32,
            out: DType::F32,
            norm: Some(NORM),
            sections: vec![section],
            weights: DType::F16,
        }
    }

    /// Compares the device's results with the reference.
    pub fn check(&self, tuning: &Tuning, traits: &Traits) {
        let mut random = Random::new(self.columns as u64);
        let (t, k) = (self.tokens, self.columns);
        let mut operands = vec![padded(self.x, &[t, k])];
        let x = stored(&operands[0], &floats(&mut random, t * k));
        let mut values = vec![Values::F32(x.clone())];
        let mut norm_weight = None;
        if self.norm.is_some_and(|n| n.weighted) {
            operands.push(OperandSpec::contiguous(FLOATS[t % 3], &[k]));
            norm_weight = Some(stored(&operands[1], &floats(&mut random, k)));
            values.extend(norm_weight.clone().map(Values::F32));
        }
        let mut matrices = Vec::new();
        for (section, rows) in &self.sections {
            for weights in &section.parts {
                matrices.push((self.matrix(*weights, *rows, &mut random, &mut operands, &mut values), k));
            }
        }
        let mut extras = Vec::new();
        for (section, rows) in &self.sections {
            for _ in 0..section.extras() {
                // The extra input is one row for all tokens, or one for each.
                let mut extra = padded(section.epilogue.inputs[section.parts.len()], &[t, *rows]);
                if section.parts.len() == 1 {
                    extra.layout.strides[0] = 0;
                }
                values.push(Values::F32(stored(&extra, &floats(&mut random, t * rows))));
                extras.extend(values.last().cloned());
                operands.push(extra);
            }
        }
        let width = self.sections.iter().map(|(_, rows)| rows).sum();
        // Aligned rows may be stored several values at a time.
        operands.push(if usize::is_multiple_of(width, 8) {
            OperandSpec::contiguous(self.out, &[t, width])
        } else {
            padded(self.out, &[t, width])
        });
        let projection = Projection {
            norm: self.norm,
            sections: self.sections.iter().map(|(s, _)| s.clone()).collect(),
        };
        let what = format!(
            "{projection} of {t} × {k}, x {}, subgroups of {}",
            self.x, traits.subgroup_size
        );
        let all: Vec<&OperandSpec> = operands.iter().collect();
        assert_eq!(projection::check(traits, &projection, &all), Ok(()), "{what}");
        let made = projection::calls_tuned(tuning, traits, &projection, &all).expect("checked");
        let rows: Vec<SliceRows<'_>> = matrices.iter().map(|(w, k)| SliceRows::new(w, *k)).collect();
        let expected = projection::reference(
            &projection,
            &ProjectionInputs {
                x: &x,
                norm_weight: norm_weight.as_deref(),
                parts: rows.iter().map(|r| r as &dyn WeightRows).collect(),
                extras,
                tokens: t,
            },
        );
        let (out, inputs) = operands.split_last().expect("there is a result");
        let inputs: Vec<(&OperandSpec, Values)> = inputs.iter().zip(values).collect();
        let actual = outcome_of(&made, &inputs, out);
        // Matrix cores use f16.
        let precision = if made.workspace.is_some() && self.out == DType::F32 {
            DType::F16
        } else {
            self.out
        };
        assert_product_close(&made.calls, &actual, expected.f32().to_vec(), precision, &what);
    }

    /// Adds the planes of a random matrix to the operands; returns its values.
    fn matrix(
        &self,
        weights: WeightStorage,
        rows: usize,
        random: &mut Random,
        operands: &mut Vec<OperandSpec>,
        values: &mut Vec<Values>,
    ) -> Vec<f32> {
        match weights {
            WeightStorage::Dense => {
                let operand = OperandSpec::contiguous(self.weights, &[rows, self.columns]);
                let w = stored(&operand, &floats(random, rows * self.columns));
                operands.push(operand);
                values.push(Values::F32(w.clone()));
                w
            }
            WeightStorage::Quantised(format) => {
                let w = Quantised::random(format, [rows, self.columns], self.weights);
                let (quants, planes) = w.operands();
                for (operand, value) in w.inputs(&quants, &planes) {
                    operands.push(operand.clone());
                    values.push(value);
                }
                (0..rows).flat_map(|row| w.expand(row)).collect()
            }
        }
    }
}

pub const NORM: Norm = Norm {
    eps: 1e-6,
    weighted: true,
};

pub fn plain(weights: WeightStorage, rows: usize) -> (Section, usize) {
    (Section::plain(weights, DType::F32), rows)
}

pub fn with_epilogue(parts: &[WeightStorage], rows: usize) -> (Section, usize) {
    let section = Section {
        parts: parts.to_vec(),
        epilogue: epilogue(parts.len(), DType::F32),
    };
    (section, rows)
}

#[test]
fn sections_of_several_formats_are_side_by_side() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let [four, six] = [QuantFormat::Q4_K, QuantFormat::Q6_K].map(WeightStorage::Quantised);
    for (i, traits) in sample(all_traits().into_iter().enumerate(), 3) {
        Case {
            tokens: 1 + 2 * i,
            columns: 256,
            x: DType::F32,
            out: DType::F32,
            norm: Some(NORM),
            sections: vec![plain(four, 40), plain(four, 7), plain(six, 9)],
            weights: DType::F16,
        }
        .check(tuning::choose(&traits), &traits);
    }
}

#[test]
fn epilogues_match_the_reference() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let mlx = WeightStorage::Quantised(QuantFormat::mlx(4, 64));
    for (i, traits) in sample(all_traits().into_iter().enumerate(), 3) {
        for sections in [
            vec![
                with_epilogue(&[mlx], 20),
                with_epilogue(&[mlx], 6),
                with_epilogue(&[mlx], 5),
            ],
            vec![with_epilogue(&[WeightStorage::Dense; 2], 19)],
            vec![
                with_epilogue(&[WeightStorage::Dense], 3),
                plain(WeightStorage::Dense, 4),
            ],
        ] {
            Case {
                tokens: 3 - i,
                columns: 192,
                x: FLOATS[i],
                out: DType::F32,
                norm: (i != 1).then_some(NORM),
                sections,
                weights: FLOATS[2 - i],
            }
            .check(tuning::choose(&traits), &traits);
        }
    }
}

#[test]
fn supports_any_row_length_and_several_tiles_of_x() {
    if !refrain_testing::drawn(12) {
        return;
    }
    let traits = device_traits();
    // Incomplete chunks and quads, and x in several tiles.
    for (columns, tokens) in [(1, 1), (6, 2), (67, 5), (2500, 8), (20_000, 1)] {
        for weights in FLOATS {
            Case {
                tokens,
                columns,
                x: DType::F32,
                out: DType::BF16,
                norm: Some(Norm {
                    eps: 1e-5,
                    weighted: false,
                }),
                sections: vec![(Section::plain(WeightStorage::Dense, DType::BF16), 5)],
                weights,
            }
            .check(tuning::choose(&traits), &traits);
        }
    }
}

#[test]
fn every_tuning_row_computes_the_same_projection() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let traits = device_traits();
    for tuning in rows(&traits) {
        for max_groups in [2, 65_535] {
            let mut tuning = *tuning;
            for gemv in [&mut tuning.dense, &mut tuning.four_bit, &mut tuning.eight_bit] {
                gemv.max_groups = GroupCount::fixed(max_groups);
            }
            let eight = WeightStorage::Quantised(QuantFormat::Q8_0);
            Case {
                tokens: 2,
                columns: 1056,
                x: DType::F32,
                out: DType::F32,
                norm: Some(NORM),
                sections: vec![plain(eight, 150), plain(eight, 31)],
                weights: DType::F16,
            }
            .check(&tuning, &traits);
        }
    }
}

#[test]
fn rejects_mismatched_operands_with_a_reason() {
    let dense = |rows, columns| OperandSpec::contiguous(DType::F32, &[rows, columns]);
    let projection = Projection {
        norm: None,
        sections: vec![plain(WeightStorage::Dense, 4).0],
    };
    let refused = |operands: &[&OperandSpec]| projection::check_operands(&projection, operands).expect_err("refused");
    let (x, w, out) = (dense(2, 8), dense(4, 8), dense(2, 4));
    assert!(
        refused(&[&x, &out])
            .to_string()
            .contains("expected 3 operands, found 2")
    );
    assert!(
        refused(&[&x, &dense(4, 9), &out])
            .to_string()
            .contains("expected 8 columns")
    );
    assert!(refused(&[&x, &w, &dense(2, 5)]).to_string().contains("expected [2, 4]"));
    let across = OperandSpec {
        layout: Layout::contiguous(&[8, 4]).permute(&[1, 0]),
        ..w.clone()
    };
    let expected = Unsupported::NeedsContiguous {
        op: "projection",
        operand: 1,
    };
    assert_eq!(refused(&[&x, &across, &out]), expected);
    let many = vec![plain(WeightStorage::Dense, 1).0; 15];
    let wide = Projection {
        norm: None,
        sections: many,
    };
    let row = dense(1, 8);
    let result = dense(2, 15);
    let operands: Vec<&OperandSpec> = [&x].into_iter().chain([&row; 15]).chain([&result]).collect();
    let error = projection::check_operands(&wide, &operands).expect_err("17 addresses");
    assert!(error.to_string().contains("the maximum is 128"), "{error}");
}

/// Cases with alternating formats and floats, and all kinds of epilogues.
fn many_tokens_case(i: usize) -> Case {
    let format = QuantFormat::ALL[i % QuantFormat::ALL.len()];
    let (quantised, dense) = (WeightStorage::Quantised(format), WeightStorage::Dense);
    let sections = match i % 4 {
        0 => vec![plain(quantised, 37 + i), plain(quantised, 5)],
        1 => vec![with_epilogue(&[quantised], 70), with_epilogue(&[quantised], 6)],
        2 => vec![with_epilogue(&[quantised; 2], 65)],
        _ => vec![with_epilogue(&[dense; 2], 33), plain(dense, 4 + i)],
    };
    let columns = match i % 4 {
        3 => [31, 64, 100][i % 3],
        _ if format.has_records() => 256,
        _ => format.group as usize * (1 + i % 3),
    };
    let out = FLOATS[i % 3];
    let epilogue_of_kind = |(mut section, rows): (Section, usize)| {
        section.epilogue.inputs.iter_mut().for_each(|dtype| *dtype = out);
        (section, rows)
    };
    Case {
        tokens: [9, 33, 64, 70, 130][i % 5],
        columns,
        x: FLOATS[(i + 1) % 3],
        out,
        norm: (!i.is_multiple_of(3)).then_some(Norm {
            weighted: i.is_multiple_of(2),
            ..NORM
        }),
        sections: sections.into_iter().map(epilogue_of_kind).collect(),
        weights: FLOATS[i % 3],
    }
}

#[test]
fn tiled_gemm_supports_norms_and_epilogues() {
    if !refrain_testing::drawn(6) {
        return;
    }
    // Each epilogue with all traits, each format with one of them.
    let counts = [QuantFormat::ALL.len() + 4].into_iter().chain(std::iter::repeat(4));
    for (traits, count) in sample(all_traits().into_iter().zip(counts), 3) {
        let traits = Traits {
            matrix_cores: None,
            ..traits
        };
        for i in sample(0..count, 6) {
            many_tokens_case(i).check(tuning::choose(&traits), &traits);
        }
    }
}
