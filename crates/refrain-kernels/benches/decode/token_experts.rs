//! Experts of one token in two mixture-of-experts models, fused as in decode steps: norm, gate, up and activation;
//! down, weighted sum and residual.

use refrain_kernels::projection::{ExpertProjection, Norm, Routed, WeightStorage};
use refrain_kernels::quantised::QuantFormat;
use refrain_kernels::tuning::Tuning;
use refrain_kernels::{DType, OperandSpec, Traits};

use crate::hybrid::USED;
use crate::products::{Q4_K, fused_section, planes};
use crate::recorded::RecordedCalls;
use crate::workload::Workload;

/// The experts of Qwen3.5-35B-A3B and Qwen3-30B-A3B, with as many experts as a token uses, so that all are read.
pub fn token_experts() -> impl Iterator<Item = Workload> {
    let models = [
        ("35b", WeightStorage::Quantised(QuantFormat::mlx(4, 64)), 512),
        ("30b", Q4_K, 768),
    ];
    models.into_iter().flat_map(|(model, weights, inner)| {
        [("gate+up", 2048, inner), ("down", inner, 2048)].map(|(part, columns, rows)| Workload::TokenExperts {
            model,
            part,
            weights,
            columns,
            rows,
        })
    })
}

/// The planes of one matrix of all experts, as operands.
fn matrices(weights: WeightStorage, rows: usize, columns: usize) -> impl Iterator<Item = (bool, OperandSpec)> {
    planes(weights, USED * rows, columns)
        .into_iter()
        .map(|plane| (true, plane))
}

/// Bytes of one matrix of all experts.
pub fn matrix_bytes(weights: WeightStorage, rows: usize, columns: usize) -> usize {
    matrices(weights, rows, columns)
        .map(|(_, o)| o.layout.count() * o.dtype.size())
        .sum()
}

/// Number of matrices per expert.
pub fn parts(part: &str) -> usize {
    if part == "down" { 1 } else { 2 }
}

/// The token's experts, unordered.
pub fn expert_ids() -> Vec<u32> {
    (0..USED as u32).map(|u| (5 * u + 3) % USED as u32).collect()
}

/// Calls of a token's experts.
pub fn expert_calls(
    row: &Tuning,
    traits: &Traits,
    part: &str,
    weights: WeightStorage,
    [columns, rows]: [usize; 2],
) -> RecordedCalls {
    let float = |shape: &[usize]| (false, OperandSpec::contiguous(DType::F32, shape));
    let ids = (false, OperandSpec::contiguous(DType::U32, &[1, USED]));
    let section = fused_section(weights, part);
    let (projection, mut operands) = if part == "down" {
        let projection = ExpertProjection {
            norm: None,
            section,
            routed: Routed::Scored,
            between: rows,
        };
        (projection, vec![float(&[USED, columns]), ids, float(&[1, USED])])
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
        (projection, vec![float(&[1, columns]), ids, float(&[columns])])
    };
    for _ in 0..parts(part) {
        operands.extend(matrices(weights, rows, columns));
    }
    match part {
        "down" => operands.extend([float(&[1, rows]), float(&[1, rows])]),
        _ => operands.push(float(&[USED, rows])),
    }
    let traits = Traits {
        tuning: Some((*row).into()),
        ..traits.clone()
    };
    let all: Vec<&OperandSpec> = operands.iter().map(|(_, o)| o).collect();
    RecordedCalls::new(projection.calls(&traits, &all).expect("supported"), &operands)
}
