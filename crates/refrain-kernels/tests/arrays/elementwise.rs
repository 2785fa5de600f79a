//! Compares expressions on the device with the reference.

use refrain_kernels::elementwise::{self, BinaryOp, Expression, ExpressionStep, Scalar, UnaryOp};
use refrain_kernels::{DType, Layout, OperandSpec, Traits, Values};

use crate::common::{Random, assert_close, bytes_of, operand, run, tolerance, values, variants};

/// Runs an expression on contiguous inputs.
pub fn run_contiguous(traits: &Traits, expression: &Expression, inputs: &[Values]) -> Values {
    let count = inputs[0].len();
    let result = *expression.dtypes().expect("valid").last().expect("steps");
    let mut operands: Vec<OperandSpec> = Vec::new();
    let mut bytes = Vec::new();
    for (&dtype, input) in expression.inputs.iter().zip(inputs) {
        operands.push(OperandSpec::contiguous(dtype, &[count]));
        bytes.push(bytes_of(dtype, input));
    }
    let out = OperandSpec::contiguous(result, &[count]);
    bytes.push(vec![0; count * result.size()]);
    operands.push(out.clone());
    let references: Vec<&OperandSpec> = operands.iter().collect();
    let call = elementwise::call(traits, expression, &references).expect("supported");
    let found = run(&[call], &bytes, inputs.len());
    Values::load(result, &out.layout, &found)
}

/// Runs an expression on operands of random layouts, and compares with the reference.
fn check(random: &mut Random, expression: &Expression, shape: &[usize], tolerance: f32) {
    let result = *expression.dtypes().expect("valid").last().expect("steps");
    for traits in variants() {
        let mut operands = Vec::new();
        let mut bytes = Vec::new();
        let mut inputs = Vec::new();
        for &dtype in &expression.inputs {
            let (input, content) = operand(random, dtype, shape, 3.0, true);
            inputs.push(Values::load(dtype, &input.layout, &content));
            operands.push(input);
            bytes.push(content);
        }
        let (out, before) = operand(random, result, shape, 3.0, false);
        operands.push(out.clone());
        bytes.push(before.clone());
        let references: Vec<&OperandSpec> = operands.iter().collect();
        let call = elementwise::call(&traits, expression, &references).expect("supported");
        let after = run(&[call], &bytes, expression.inputs.len());
        let found = values(&out, &before, &after);
        let expected = elementwise::reference(expression, &inputs, out.layout.count());
        let what = format!("{expression} of {:?} in {shape:?}", expression.inputs);
        assert_close(&what, &found, &expected, tolerance);
    }
}

fn shape(random: &mut Random) -> Vec<usize> {
    let rank = random.below(5);
    (0..rank).map(|_| random.extent()).collect()
}

pub fn unary(op: UnaryOp, dtype: DType) -> Expression {
    Expression {
        inputs: vec![dtype],
        steps: vec![ExpressionStep::Input(0), ExpressionStep::Unary(op, 0)],
    }
}

pub fn binary(op: BinaryOp, dtype: DType) -> Expression {
    Expression {
        inputs: vec![dtype, dtype],
        steps: vec![
            ExpressionStep::Input(0),
            ExpressionStep::Input(1),
            ExpressionStep::Binary(op, 0, 1),
        ],
    }
}

#[test]
fn unary_ops_match_the_reference_on_any_layout() {
    if !refrain_testing::drawn(12) {
        return;
    }
    let mut random = Random::new(1);
    for dtype in DType::ALL {
        for op in UnaryOp::ALL {
            if op.output(dtype).is_some() {
                let shape = shape(&mut random);
                check(&mut random, &unary(op, dtype), &shape, tolerance(dtype));
            }
        }
    }
}

#[test]
fn binary_ops_match_the_reference_on_any_layout() {
    if !refrain_testing::drawn(12) {
        return;
    }
    let mut random = Random::new(2);
    for dtype in DType::ALL {
        for op in BinaryOp::ALL {
            if op.output(dtype).is_some() {
                let shape = shape(&mut random);
                check(&mut random, &binary(op, dtype), &shape, tolerance(dtype));
            }
        }
    }
}

/// Returns a random expression over one dtype, with constants, an index and casts.
fn random_expression(random: &mut Random, dtype: DType) -> Expression {
    let mut steps = vec![
        ExpressionStep::Input(0),
        ExpressionStep::Input(1),
        ExpressionStep::Constant {
            value: Scalar::F32(random.unit()),
            dtype,
        },
        ExpressionStep::Constant {
            value: Scalar::I32(3),
            dtype,
        },
        ExpressionStep::Index,
        ExpressionStep::Cast(4, dtype),
    ];
    let mut same: Vec<usize> = vec![0, 1, 2, 3, 5];
    for _ in 0..8 {
        let (a, b) = (random.pick(&same), random.pick(&same));
        let step = match random.below(4) {
            0 => ExpressionStep::Unary(random.pick(&[UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Sign]), a),
            1 => {
                steps.push(ExpressionStep::Binary(BinaryOp::Lt, a, b));
                ExpressionStep::Select(steps.len() - 1, b, a)
            }
            _ => {
                use BinaryOp::{Add, Div, Max, Mul, Sub};
                ExpressionStep::Binary(random.pick(&[Add, Sub, Mul, Mul, Max, Div]), a, b)
            }
        };
        steps.push(step);
        same.push(steps.len() - 1);
    }
    Expression {
        inputs: vec![dtype, dtype],
        steps,
    }
}

/// Runs each step of the expression as its own kernel.
fn run_unfused(traits: &Traits, expression: &Expression, inputs: &[Values]) -> Values {
    let dtypes = expression.dtypes().expect("valid");
    let mut done: Vec<Values> = Vec::new();
    for step in &expression.steps {
        let (operands, step) = match *step {
            ExpressionStep::Unary(op, a) => (vec![a], ExpressionStep::Unary(op, 0)),
            ExpressionStep::Binary(op, a, b) => (vec![a, b], ExpressionStep::Binary(op, 0, 1)),
            ExpressionStep::Select(c, a, b) => (vec![c, a, b], ExpressionStep::Select(0, 1, 2)),
            ExpressionStep::Cast(a, to) => (vec![a], ExpressionStep::Cast(0, to)),
            ExpressionStep::Input(n) => {
                done.push(inputs[n].clone());
                continue;
            }
            // The input only gives the number of elements.
            leaf => (vec![0], leaf),
        };
        let mut steps: Vec<ExpressionStep> = (0..operands.len()).map(ExpressionStep::Input).collect();
        steps.push(step);
        let inputs = operands.iter().map(|&n| dtypes[n]).collect();
        let values: Vec<Values> = operands.iter().map(|&n| done[n].clone()).collect();
        done.push(run_contiguous(traits, &Expression { inputs, steps }, &values));
    }
    done.pop().expect("steps")
}

#[test]
fn fused_steps_are_bit_identical_to_separate_kernels() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let mut random = Random::new(7);
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::I32, DType::U8] {
        for _ in 0..2 {
            let expression = random_expression(&mut random, dtype);
            let inputs = [random.values(dtype, 500, 3.0), random.values(dtype, 500, 3.0)];
            let traits = &variants()[0];
            let fused = run_contiguous(traits, &expression, &inputs);
            let unfused = run_unfused(traits, &expression, &inputs);
            assert_close(&expression.to_string(), &fused, &unfused, 0.0);
            let expected = elementwise::reference(&expression, &inputs, 500);
            assert_close(&expression.to_string(), &fused, &expected, tolerance(dtype));
        }
    }
}

#[test]
fn fills_and_ranges_need_no_input() {
    let traits = &variants()[1];
    let out = OperandSpec::contiguous(DType::BF16, &[1000]);
    let mut steps = vec![ExpressionStep::Index, ExpressionStep::Cast(0, DType::BF16)];
    let numbers = Expression {
        inputs: vec![],
        steps: steps.clone(),
    };
    steps.push(ExpressionStep::Constant {
        value: Scalar::F32(0.1),
        dtype: DType::BF16,
    });
    let fill = Expression { inputs: vec![], steps };
    for expression in [numbers, fill] {
        let call = elementwise::call(traits, &expression, &[&out]).expect("supported");
        let found = run(&[call], &[vec![0; 2000]], 0);
        let expected = elementwise::reference(&expression, &[], 1000);
        assert_eq!(Values::load(DType::BF16, &out.layout, &found), expected);
    }
}

#[test]
fn constants_do_not_change_the_kernel_identity() {
    let with = |value: f32| Expression {
        inputs: vec![DType::F32],
        steps: vec![
            ExpressionStep::Input(0),
            ExpressionStep::Constant {
                value: Scalar::F32(value),
                dtype: DType::F32,
            },
            ExpressionStep::Binary(BinaryOp::Mul, 0, 1),
        ],
    };
    let x = OperandSpec::contiguous(DType::F32, &[10]);
    let identity = |value| {
        let call = elementwise::call(&variants()[0], &with(value), &[&x, &x]);
        call.expect("supported").kernel.identity()
    };
    assert_eq!(identity(2.0), identity(3.0));
    assert_ne!(with(2.0), with(3.0));
}

#[test]
fn elements_beyond_one_grid_dimension_are_computed() {
    let count = 9_000_001;
    let expression = Expression {
        inputs: vec![],
        steps: vec![ExpressionStep::Index, ExpressionStep::Cast(0, DType::U8)],
    };
    let out = OperandSpec::contiguous(DType::U8, &[count]);
    let traits = Traits {
        max_invocations: 32,
        ..variants()[0].clone()
    };
    let call = elementwise::call(&traits, &expression, &[&out]).expect("supported");
    assert!(call.groups[1] > 1);
    let found = run(&[call], &[vec![7; count]], 0);
    let expected: Vec<u8> = (0..count).map(|i| i as u8).collect();
    assert!(found == expected);
}

#[test]
fn large_arrays_in_another_order_are_accessed_by_fours() {
    let mut random = Random::new(7);
    let shape = [3, 8, 100, 112];
    let count: usize = shape.iter().product();
    for traits in variants() {
        for (from, to) in [
            (DType::F32, DType::BF16),
            (DType::BF16, DType::F16),
            (DType::F16, DType::F32),
            (DType::F32, DType::I32),
        ] {
            // Tokens before heads, with a gap behind each token, to heads before tokens.
            let apart = if from == DType::F16 { 6 } else { 16 };
            let strides = [100 * (8 * 112 + apart), 112, 8 * 112 + apart, 1];
            let x = OperandSpec {
                dtype: from,
                layout: Layout {
                    shape: shape.into(),
                    strides: strides.into(),
                    offset: 8,
                },
            };
            let mut expression = Expression::cast(from, to);
            let steps = [
                ExpressionStep::Index,
                ExpressionStep::Cast(2, to),
                ExpressionStep::Binary(BinaryOp::Max, 1, 3),
            ];
            if to == DType::F16 {
                expression.steps.extend(steps);
            }
            let floats: Vec<f32> = (0..x.layout.end()).map(|_| 200.0 * random.unit()).collect();
            let bytes = bytes_of(from, &Values::F32(floats));
            let out = OperandSpec::contiguous(to, &shape);
            let call = elementwise::call(&traits, &expression, &[&x, &out]).expect("supported");
            assert_eq!(
                call.kernel.name.contains("wide4"),
                from != DType::F16 && to != DType::I32,
                "{from} to {to}"
            );
            let input = Values::load(from, &x.layout, &bytes);
            let found = run(&[call], &[bytes, vec![0; count * to.size()]], 1);
            let found = Values::load(to, &out.layout, &found);
            let expected = elementwise::reference(&expression, &[input], count);
            assert_close(&format!("{from} to {to}"), &found, &expected, 0.0);
        }
    }
}

#[test]
fn rejects_mismatched_operands() {
    let (x, y) = (
        OperandSpec::contiguous(DType::F32, &[3]),
        OperandSpec::contiguous(DType::F32, &[4]),
    );
    let copy = Expression::cast(DType::F32, DType::F32);
    let error = elementwise::call(&Traits::minimal(), &copy, &[&x, &y]).expect_err("shapes differ");
    assert_eq!(
        error.to_string(),
        "elementwise: operands have different shapes [3] and [4]"
    );
    let half = OperandSpec::contiguous(DType::F16, &[3]);
    assert!(elementwise::call(&Traits::minimal(), &copy, &[&x, &half]).is_err());
}
