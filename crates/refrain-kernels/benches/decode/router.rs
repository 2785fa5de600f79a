//! Routers of two mixture-of-experts models, with top-k.

use std::fmt;

use refrain_kernels::projection::{self, Norm, Projection, RouterProjection, Section, WeightStorage};
use refrain_kernels::quantised::QuantFormat;
use refrain_kernels::tuning::Tuning;
use refrain_kernels::{DType, OperandSpec, Push, Traits, top_k};

use crate::hybrid::USED;
use crate::products::planes;
use crate::recorded::RecordedCalls;
use crate::workload::Workload;

/// Hidden size.
pub const HIDDEN: usize = 2048;

/// Storage of a router's matrices.
#[derive(Clone, Copy)]
pub enum RouterStorage {
    Dense(DType),
    Quantised(QuantFormat),
}

impl RouterStorage {
    pub fn format(self) -> Option<QuantFormat> {
        match self {
            RouterStorage::Dense(_) => None,
            RouterStorage::Quantised(format) => Some(format),
        }
    }

    /// The operands of a matrix.
    pub fn planes(self, rows: usize) -> Vec<OperandSpec> {
        match self {
            RouterStorage::Dense(dtype) => vec![OperandSpec::contiguous(dtype, &[rows, HIDDEN])],
            RouterStorage::Quantised(format) => planes(WeightStorage::Quantised(format), rows, HIDDEN),
        }
    }
}

impl fmt::Display for RouterStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RouterStorage::Dense(dtype) => dtype.fmt(f),
            RouterStorage::Quantised(format) => format.fmt(f),
        }
    }
}

/// Routers of Qwen3.5-35B-A3B (with the gate of its shared expert) and of Qwen3-30B-A3B: in f32 as in GGUF files, in 4
/// or 8 bits as in MLX files, and in 16 bits.
pub fn routers() -> impl Iterator<Item = Workload> {
    let stored = [
        RouterStorage::Dense(DType::F32),
        RouterStorage::Dense(DType::BF16),
        RouterStorage::Dense(DType::F16),
        RouterStorage::Quantised(QuantFormat::mlx(4, 64)),
        RouterStorage::Quantised(QuantFormat::mlx(8, 64)),
    ];
    let models: [(_, &[usize]); 2] = [("35b", &[256, 1]), ("30b", &[128])];
    models.into_iter().flat_map(move |(model, rows)| {
        stored.into_iter().flat_map(move |stored| {
            [false, true].map(|separate| Workload::Router {
                model,
                stored,
                rows,
                separate,
            })
        })
    })
}

/// Calls of the projection and top-k, fused or separate.
pub fn router_calls(
    row: &Tuning,
    traits: &Traits,
    stored: RouterStorage,
    rows: &[usize],
    separate: bool,
) -> RecordedCalls {
    let weights = stored.format().map_or(WeightStorage::Dense, WeightStorage::Quantised);
    let projection = Projection {
        norm: Some(Norm {
            eps: 1e-6,
            weighted: true,
        }),
        sections: vec![Section::plain(weights, DType::F32); rows.len()],
    };
    let float = |shape: &[usize]| (false, OperandSpec::contiguous(DType::F32, shape));
    let mut operands = vec![float(&[1, HIDDEN]), float(&[HIDDEN])];
    let matrices = rows.iter().flat_map(|&rows| stored.planes(rows));
    operands.extend(matrices.map(|plane| (true, plane)));
    operands.push(float(&[1, rows.iter().sum()]));
    operands.push((false, OperandSpec::contiguous(DType::U32, &[1, USED])));
    let all: Vec<&OperandSpec> = operands.iter().map(|(_, operand)| operand).collect();
    if separate {
        let [projected @ .., indices] = &all[..] else {
            unreachable!("the indices are last")
        };
        let mut recorded = projection::calls_tuned(row, traits, &projection, projected).expect("supported");
        let mut scores = projected[projected.len() - 1].clone();
        scores.layout.shape[1] = rows[0];
        let (mut choice, _) = top_k::calls(traits, &scores, indices, None).expect("supported");
        for push in choice.iter_mut().flat_map(|call| &mut call.push) {
            if let Push::Address { operand, .. } = push {
                *operand += projected.len() - 1;
            }
        }
        recorded.calls.extend(choice);
        return RecordedCalls::new(recorded.calls, &operands);
    }
    let router = RouterProjection {
        projection,
        section: 0,
        count: USED,
    };
    let recorded = router.calls_tuned(row, traits, &all).expect("supported");
    operands.extend(recorded.workspace.map(|workspace| (false, workspace)));
    operands.push((false, OperandSpec::contiguous(DType::U32, &[recorded.tickets])));
    RecordedCalls::new(recorded.calls, &operands)
}
