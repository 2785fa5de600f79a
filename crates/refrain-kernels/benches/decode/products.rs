//! Projections of a layer, and the output head, of two models at their real sizes.

use refrain_kernels::elementwise::{BinaryOp, Expression, ExpressionStep, UnaryOp};
use refrain_kernels::projection::{self, Norm, Projection, Section, WeightStorage};
use refrain_kernels::quantised::QuantFormat;
use refrain_kernels::tuning::Tuning;
use refrain_kernels::{DType, OperandSpec, Traits};

use crate::recorded::RecordedCalls;
use crate::workload::Workload;

const TOKENS: [usize; 14] = [1, 2, 3, 8, 16, 24, 32, 40, 48, 64, 128, 256, 512, 2048];

/// The format of most matrices in most GGUF files.
pub const Q4_K: WeightStorage = WeightStorage::Quantised(QuantFormat::Q4_K);

/// The projections of a layer and the head, in common formats.
pub fn projections() -> impl Iterator<Item = Workload> {
    let formats = [
        WeightStorage::Quantised(QuantFormat::Q4_0),
        WeightStorage::Quantised(QuantFormat::mlx(4, 64)),
        Q4_K,
        WeightStorage::Quantised(QuantFormat::Q6_K),
        WeightStorage::Quantised(QuantFormat::Q8_0),
        WeightStorage::Dense,
    ];
    let models = [("0.6b", 1024, 2048, 1024, 3072), ("8b", 4096, 4096, 1024, 12_288)];
    formats.into_iter().flat_map(move |weights| {
        models.into_iter().flat_map(move |(model, hidden, q, kv, inner)| {
            let parts = [
                ("qkv", hidden, vec![q, kv, kv]),
                ("o", q, vec![hidden]),
                ("gate+up", hidden, vec![inner, inner]),
                ("down", inner, vec![hidden]),
                ("head", hidden, vec![151_936]),
            ];
            parts.into_iter().flat_map(move |(part, columns, rows)| {
                TOKENS.map(|tokens| Workload::Projection {
                    model,
                    part,
                    weights,
                    columns,
                    rows: rows.clone(),
                    tokens,
                })
            })
        })
    })
}

/// The operands of a matrix.
pub fn planes(weights: WeightStorage, rows: usize, columns: usize) -> Vec<OperandSpec> {
    match weights {
        WeightStorage::Dense => vec![OperandSpec::contiguous(DType::BF16, &[rows, columns])],
        WeightStorage::Quantised(format) => {
            let dtype = DType::of_scales(format, DType::F16);
            let parameters = OperandSpec::contiguous(dtype, &[rows, format.scales(columns)]);
            let quants = OperandSpec::contiguous(DType::U32, &[rows, format.words(columns)]);
            let biases = format.has_biases().then(|| parameters.clone());
            [quants, parameters].into_iter().chain(biases).collect()
        }
    }
}

/// Gate and up fused with the activation; any other part is one matrix fused with the residual sum.
pub fn fused_section(weights: WeightStorage, part: &str) -> Section {
    use ExpressionStep::{Binary, Input, Unary};
    let gated = vec![
        Input(0),
        Unary(UnaryOp::Sigmoid, 0),
        Binary(BinaryOp::Mul, 0, 1),
        Input(1),
        Binary(BinaryOp::Mul, 2, 3),
    ];
    let added = vec![Input(0), Input(1), Binary(BinaryOp::Add, 0, 1)];
    let (parts, steps) = if part == "gate+up" { (2, gated) } else { (1, added) };
    Section {
        parts: vec![weights; parts],
        epilogue: Expression {
            inputs: vec![DType::F32; 2],
            steps,
        },
    }
}

/// Calls of a projection of `tokens` tokens.
pub fn projection_calls(
    row: &Tuning,
    traits: &Traits,
    part: &str,
    weights: WeightStorage,
    columns: usize,
    rows: &[usize],
    tokens: usize,
) -> RecordedCalls {
    let normed = !matches!(part, "o" | "down");
    let norm = normed.then_some(Norm {
        eps: 1e-6,
        weighted: true,
    });
    let (sections, width) = match part {
        "o" | "down" | "gate+up" => (vec![fused_section(weights, part)], rows[0]),
        _ => (vec![Section::plain(weights, DType::F32); rows.len()], rows.iter().sum()),
    };
    let mut operands = vec![(false, OperandSpec::contiguous(DType::F32, &[tokens, columns]))];
    if normed {
        operands.push((false, OperandSpec::contiguous(DType::F32, &[columns])));
    }
    let matrices = rows.iter().flat_map(|&rows| planes(weights, rows, columns));
    operands.extend(matrices.map(|plane| (true, plane)));
    let result = OperandSpec::contiguous(DType::F32, &[tokens, width]);
    if !normed {
        operands.push((false, result.clone()));
    }
    operands.push((false, result));
    let all: Vec<&OperandSpec> = operands.iter().map(|(_, o)| o).collect();
    let recorded = projection::calls_tuned(row, traits, &Projection { norm, sections }, &all).expect("supported");
    operands.extend(recorded.workspace.map(|workspace| (false, workspace)));
    operands.extend((recorded.tickets > 0).then(|| (false, OperandSpec::contiguous(DType::U32, &[recorded.tickets]))));
    RecordedCalls::new(recorded.calls, &operands)
}
