//! Every variant's shader compiles to valid SPIR-V.

use refrain_kernels::combine_rows::{self, Combine};
use refrain_kernels::elementwise::{self, BinaryOp, Expression, ExpressionStep, Scalar, UnaryOp};
use refrain_kernels::reduce::{self, ReduceOp};
use refrain_kernels::{Call, DType, OperandSpec, Traits, argmax, softmax, take, take_along, top_k, write_rows};

use crate::common::{both_traits, check_texts};

const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

fn elementwise_call(traits: &Traits, expression: &Expression) -> Call {
    let result = *expression.dtypes().expect("valid").last().expect("steps");
    let mut operands: Vec<OperandSpec> = expression
        .inputs
        .iter()
        .map(|&dtype| OperandSpec::contiguous(dtype, &[4, 5]))
        .collect();
    operands.push(OperandSpec::contiguous(result, &[4, 5]));
    let operands: Vec<&OperandSpec> = operands.iter().collect();
    elementwise::call(traits, expression, &operands).expect("supported")
}

/// Returns one expression that applies every op of `dtype` and combines their results.
fn every_op(dtype: DType) -> Expression {
    let value = Scalar::F32(1.5);
    let mut steps = vec![
        ExpressionStep::Input(0),
        ExpressionStep::Constant { value, dtype },
        ExpressionStep::Index,
    ];
    let mut truths = Vec::new();
    for op in UnaryOp::ALL.into_iter().filter(|op| op.output(dtype).is_some()) {
        steps.push(ExpressionStep::Unary(op, 0));
        truths.push(steps.len() - 1);
    }
    for op in BinaryOp::ALL.into_iter().filter(|op| op.output(dtype).is_some()) {
        steps.push(ExpressionStep::Binary(op, 0, 1));
        truths.push(steps.len() - 1);
    }
    let mut combined = None;
    for step in truths {
        steps.push(ExpressionStep::Cast(step, DType::Bool));
        let truth = steps.len() - 1;
        combined = Some(match combined {
            None => truth,
            Some(earlier) => {
                steps.push(ExpressionStep::Select(truth, earlier, truth));
                steps.len() - 1
            }
        });
    }
    Expression {
        inputs: vec![dtype],
        steps,
    }
}

#[test]
fn expressions_of_every_op_and_cast_compile() {
    let mut calls = Vec::new();
    for traits in both_traits() {
        for from in DType::ALL {
            calls.push(elementwise_call(&traits, &every_op(from)));
            for to in DType::ALL {
                calls.push(elementwise_call(&traits, &Expression::cast(from, to)));
            }
        }
    }
    check_texts(calls);
}

#[test]
fn row_kernels_of_every_dtype_compile() {
    let mut calls = Vec::new();
    for traits in both_traits() {
        for dtype in DType::ALL {
            let x = OperandSpec::contiguous(dtype, &[3, 4, 5]);
            for op in ReduceOp::ALL {
                if let Some(result) = reduce::output_dtype(op, dtype) {
                    let out = OperandSpec::contiguous(result, &[3]);
                    calls.extend(reduce::calls(&traits, op, &x, 2, &out).expect("supported").0);
                    let (long, out) = (
                        OperandSpec::contiguous(dtype, &[1 << 22]),
                        OperandSpec::contiguous(result, &[]),
                    );
                    let (split, _) = reduce::calls(&traits, op, &long, 1, &out).expect("supported");
                    assert_eq!(split.len(), 2);
                    calls.extend(split);
                }
            }
            let index_out = OperandSpec::contiguous(DType::U32, &[3, 4]);
            calls.extend(argmax::calls(&traits, &x, &index_out).expect("supported").0);
            let indices = OperandSpec::contiguous(DType::U32, &[3, 4, 2]);
            calls.extend(top_k::calls(&traits, &x, &indices, None).expect("supported").0);
            let (long, few) = (
                OperandSpec::contiguous(dtype, &[1 << 22]),
                OperandSpec::contiguous(DType::U32, &[5]),
            );
            let one = OperandSpec::contiguous(DType::U32, &[]);
            calls.extend(argmax::calls(&traits, &long, &one).expect("supported").0);
            let (split, _) = top_k::calls(&traits, &long, &few, None).expect("supported");
            assert_eq!(split.len(), 2);
            calls.extend(split);
        }
        for x in FLOATS {
            for y in FLOATS {
                let (x, y) = (OperandSpec::contiguous(x, &[3, 5]), OperandSpec::contiguous(y, &[3, 5]));
                calls.push(softmax::call(&traits, &x, &y).expect("supported"));
            }
        }
    }
    check_texts(calls);
}

#[test]
fn gathers_and_row_writes_of_every_dtype_compile() {
    let mut calls = Vec::new();
    for traits in both_traits() {
        for dtype in DType::ALL {
            let table = OperandSpec::contiguous(dtype, &[7, 5]);
            let out = OperandSpec::contiguous(dtype, &[7, 3]);
            for index in [DType::I32, DType::U32] {
                let picked = OperandSpec::contiguous(index, &[3]);
                calls.push(take::call(&traits, &table, &picked, 1, &out).expect("supported"));
                let along = OperandSpec::contiguous(index, &[7, 3]);
                calls.push(take_along::call(&traits, &table, &along, &out).expect("supported"));
            }
            let slots = OperandSpec::contiguous(DType::I32, &[7]);
            for other in DType::ALL {
                if other != dtype && !(other.is_float() && dtype.is_float()) {
                    continue;
                }
                let state = OperandSpec::contiguous(other, &[9, 5]);
                calls.push(write_rows::call(&traits, &table, &slots, &state).expect("supported"));
            }
            for combine in [Combine::Add, Combine::Multiply, Combine::Max, Combine::Min] {
                let operands = [&table, &table, &slots, &table];
                calls.push(combine_rows::call(&traits, combine, operands).expect("supported"));
            }
        }
    }
    check_texts(calls);
}
