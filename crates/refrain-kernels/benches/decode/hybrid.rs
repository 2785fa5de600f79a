//! Experts and delta nets of a hybrid mixture-of-experts model at real sizes.

use refrain_kernels::expert_matmul::{self, Matrices};
use refrain_kernels::projection::WeightStorage;
use refrain_kernels::quantised::QuantFormat;
use refrain_kernels::tuning::{DeltaTuning, Tuning};
use refrain_kernels::{DType, OperandSpec, RecurrenceForm, Traits, causal_conv, gated_delta};

use crate::products::{Q4_K, planes};
use crate::recorded::RecordedCalls;
use crate::workload::Workload;

/// Experts of the model, and experts per token.
pub const EXPERTS: usize = 256;
pub const USED: usize = 8;

/// The projections of a layer of Qwen3.5-35B-A3B, without those of its experts.
pub fn projections() -> impl Iterator<Item = Workload> {
    let formats = [WeightStorage::Quantised(QuantFormat::mlx(4, 64)), Q4_K];
    let parts = [
        ("qkvabz", 2048, vec![8192, 32, 32, 4096]),
        ("qkv", 2048, vec![8192, 512, 512]),
        ("out", 4096, vec![2048]),
        ("router", 2048, vec![256, 1]),
        ("gate+up", 2048, vec![512, 512]),
        ("shared_down", 512, vec![2048]),
    ];
    formats.into_iter().flat_map(move |weights| {
        let parts = parts.clone().into_iter();
        parts.flat_map(move |(part, columns, rows)| {
            [1, 2, 4, 8].map(|tokens| Workload::Projection {
                model: "35b",
                part,
                weights,
                columns,
                rows: rows.clone(),
                tokens,
            })
        })
    })
}

/// The experts of a layer of Qwen3.5-35B-A3B.
pub fn experts() -> impl Iterator<Item = Workload> {
    let formats = [
        WeightStorage::Quantised(QuantFormat::mlx(4, 64)),
        Q4_K,
        WeightStorage::Quantised(QuantFormat::Q8_0),
        WeightStorage::Dense,
    ];
    let parts = [("up", 2048, 1024), ("down", 512, 2048)];
    formats.into_iter().flat_map(move |weights| {
        parts.into_iter().flat_map(move |(part, columns, rows)| {
            [4, 8, 12, 16, 32, 64, 128, 256, 512, 2048].map(|tokens| Workload::Experts {
                part,
                weights,
                columns,
                rows,
                tokens,
            })
        })
    })
}

/// The gated delta rule and the convolution of a layer of the same model, for one sequence.
pub fn deltas() -> impl Iterator<Item = Workload> {
    let both = |tokens| [Workload::Delta { tokens }, Workload::Convolution { tokens }];
    [1, 8, 64, 512, 2048].into_iter().flat_map(both)
}

/// Key heads, value heads, and head dimension.
const HEADS: [usize; 3] = [16, 32, 128];

/// Bytes of a sequence's state.
pub fn state_bytes() -> usize {
    let [_, heads, size] = HEADS;
    4 * heads * size * size
}

/// Calls of the gated delta rule.
pub fn delta_calls(row: &Tuning, traits: &Traits, tokens: usize) -> RecordedCalls {
    let [key_heads, heads, size] = HEADS;
    let float = |shape: &[usize]| OperandSpec::contiguous(DType::F32, shape);
    let all = [
        float(&[tokens, key_heads, size]),
        float(&[tokens, key_heads, size]),
        float(&[tokens, heads, size]),
        float(&[tokens, heads]),
        float(&[tokens, heads]),
        OperandSpec::contiguous(DType::I32, &[tokens]),
        OperandSpec::contiguous(DType::U32, &[tokens]),
        float(&[1, heads, size, size]),
        float(&[tokens, heads, size]),
    ];
    let [q, k, v, decay, beta, positions, sequences, state, out] = &all;
    let operands = gated_delta::GatedDeltaOperands {
        q,
        k,
        v,
        decay,
        beta,
        positions,
        sequences,
        state,
        out,
    };
    let (calls, workspace) = gated_delta::calls_tuned(row, traits, RecurrenceForm::Full, &operands).expect("supported");
    let operands: Vec<_> = all
        .into_iter()
        .chain(workspace)
        .map(|operand| (false, operand))
        .collect();
    RecordedCalls::new(calls, &operands)
}

/// The relevant settings of a tuning row: tokens per chunk and invocations if chunked, otherwise values per row of
/// lanes, lanes and tokens per tile.
pub fn delta_row(delta: &DeltaTuning, tokens: usize) -> String {
    if tokens >= delta.min_chunked_tokens {
        format!("chunk {} {}t", delta.chunk, delta.chunk_threads)
    } else {
        format!("{}v {}l {}t", delta.values, delta.lanes, delta.tile)
    }
}

/// Channels of the convolution, and taps per channel.
const CHANNELS: usize = 8192;
const TAPS: usize = 4;

/// Bytes that the convolution reads per token.
pub fn token_bytes() -> usize {
    4 * CHANNELS
}

/// Calls of the causal convolution.
pub fn convolution_calls(row: &Tuning, traits: &Traits, tokens: usize) -> RecordedCalls {
    let float = |shape: &[usize]| OperandSpec::contiguous(DType::F32, shape);
    let all = [
        float(&[tokens, CHANNELS]),
        float(&[CHANNELS, TAPS]),
        OperandSpec::contiguous(DType::I32, &[tokens]),
        OperandSpec::contiguous(DType::U32, &[tokens]),
        float(&[1, TAPS - 1, CHANNELS]),
        float(&[tokens, CHANNELS]),
    ];
    let [x, weights, positions, sequences, state, out] = &all;
    let places = [positions, sequences, state];
    let calls = causal_conv::calls_tuned(row, traits, RecurrenceForm::Full, [x, weights, out], places);
    RecordedCalls::new(calls.expect("supported"), &all.map(|operand| (false, operand)))
}

/// Pseudo-random distinct experts for each token.
pub fn expert_ids(tokens: usize) -> Vec<u32> {
    let mut state = 1u32;
    let mut draw = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) % EXPERTS as u32
    };
    let mut all = Vec::new();
    for _ in 0..tokens {
        let mut own: Vec<u32> = Vec::new();
        while own.len() < USED {
            let expert = draw();
            if !own.contains(&expert) {
                own.push(expert);
            }
        }
        all.extend(own);
    }
    all
}

/// Calls of expert products. A token's experts share one vector, but each has its own for `down`.
pub fn expert_calls(
    row: &Tuning,
    traits: &Traits,
    part: &str,
    weights: WeightStorage,
    [columns, rows, tokens]: [usize; 3],
) -> RecordedCalls {
    let mut x = OperandSpec::contiguous(DType::F32, &[tokens, USED, columns]);
    if part != "down" {
        x.layout.strides = vec![columns, 0, 1].into();
    }
    let ids = OperandSpec::contiguous(DType::U32, &[tokens, USED]);
    let out = OperandSpec::contiguous(DType::F32, &[tokens, USED, rows]);
    let planes = planes(weights, EXPERTS * rows, columns);
    let matrices = match weights {
        WeightStorage::Dense => Matrices::Dense(&planes[0]),
        WeightStorage::Quantised(format) => Matrices::Quantised(format, [&planes[0], &planes[1]], planes.get(2)),
    };
    let recorded = expert_matmul::calls_tuned(row, traits, [&x, &ids, &out], matrices).expect("supported");
    let mut operands = vec![(false, x), (false, ids)];
    operands.extend(planes.into_iter().map(|plane| (true, plane)));
    operands.push((false, out));
    operands.extend(recorded.1.map(|workspace| (false, workspace)));
    RecordedCalls::new(recorded.0, &operands)
}
