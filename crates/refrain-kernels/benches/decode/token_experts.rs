//! Experts of a few tokens in two mixture-of-experts models, fused as in decode steps: norm, gate, up and activation;
//! down, weighted sum and residual.

use refrain_kernels::projection::{ExpertProjection, Norm, Routed, WeightStorage};
use refrain_kernels::quantised::QuantFormat;
use refrain_kernels::tuning::Tuning;
use refrain_kernels::{DType, OperandSpec, Traits};

use crate::hybrid::USED;
use crate::products::{Q4_K, fused_section, planes};
use crate::recorded::RecordedCalls;
use crate::workload::Workload;

/// The experts of Qwen3.5-35B-A3B and Qwen3-30B-A3B, with as many experts as the tokens use, so that all are read.
pub fn token_experts() -> impl Iterator<Item = Workload> {
    let models = [
        ("35b", WeightStorage::Quantised(QuantFormat::mlx(4, 64)), 512),
        ("30b", Q4_K, 768),
    ];
    models.into_iter().flat_map(|(model, weights, inner)| {
        let parts = [("gate+up", 2048, inner), ("down", inner, 2048)].into_iter();
        parts.flat_map(move |(part, columns, rows)| {
            [1, 2, 4, 8].map(|tokens| Workload::TokenExperts {
                model,
                part,
                weights,
                columns,
                rows,
                tokens,
            })
        })
    })
}

/// The planes of one matrix of all experts, as operands. `sizes` is K, rows of an expert, and tokens.
fn matrices(weights: WeightStorage, [columns, rows, tokens]: [usize; 3]) -> impl Iterator<Item = (bool, OperandSpec)> {
    planes(weights, tokens * USED * rows, columns)
        .into_iter()
        .map(|plane| (true, plane))
}

/// Bytes of one matrix of all experts.
pub fn matrix_bytes(weights: WeightStorage, sizes: [usize; 3]) -> usize {
    matrices(weights, sizes)
        .map(|(_, o)| o.layout.count() * o.dtype.size())
        .sum()
}

/// Number of matrices per expert.
pub fn parts(part: &str) -> usize {
    if part == "down" { 1 } else { 2 }
}

/// The tokens' experts, unordered.
pub fn expert_ids(tokens: usize) -> Vec<u32> {
    let all = (tokens * USED) as u32;
    (0..all).map(|pair| (5 * pair + 3) % all).collect()
}

/// Calls of the tokens' experts.
pub fn expert_calls(
    row: &Tuning,
    traits: &Traits,
    part: &str,
    weights: WeightStorage,
    [columns, rows, tokens]: [usize; 3],
) -> RecordedCalls {
    let float = |shape: &[usize]| (false, OperandSpec::contiguous(DType::F32, shape));
    let ids = (false, OperandSpec::contiguous(DType::U32, &[tokens, USED]));
    let section = fused_section(weights, part);
    let (projection, mut operands) = if part == "down" {
        let projection = ExpertProjection {
            norm: None,
            section,
            routed: Routed::Scored,
            between: rows,
        };
        (
            projection,
            vec![float(&[tokens * USED, columns]), ids, float(&[tokens, tokens * USED])],
        )
    } else {
        let projection = ExpertProjection {
            norm: Some(Norm {
                eps: 1e-6,
                weighted: true,
            }),
            section,
            routed: Routed::PerExpert,
            between: rows,
        };
        (projection, vec![float(&[tokens, columns]), ids, float(&[columns])])
    };
    for _ in 0..parts(part) {
        operands.extend(matrices(weights, [columns, rows, tokens]));
    }
    match part {
        "down" => operands.extend([float(&[tokens, rows]), float(&[tokens, rows])]),
        _ => operands.push(float(&[tokens * USED, rows])),
    }
    let traits = Traits {
        tuning: Some((*row).into()),
        ..traits.clone()
    };
    let all: Vec<&OperandSpec> = operands.iter().map(|(_, o)| o).collect();
    RecordedCalls::new(projection.calls(&traits, &all).expect("supported").calls, &operands)
}
