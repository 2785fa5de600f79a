//! Decode and prefill attention of some models at their real sizes.

use refrain_kernels::attention::{self, BlockFormat, DecodeParams, HeadPreparation, prepare};
use refrain_kernels::projection::Norm;
use refrain_kernels::tuning::Tuning;
use refrain_kernels::{DType, Layout, OperandSpec, Traits, rope};

use crate::recorded::RecordedCalls;
use crate::workload::Workload;

pub const HEAD_DIM: usize = 128;
pub const PAGE: usize = 64;
const PAGES: usize = 512;

/// The heads of a model, and the format of its KV cache.
#[derive(Clone, Copy)]
pub struct Heads {
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// `None` for f16.
    pub blocks: Option<BlockFormat>,
}

impl Heads {
    const fn of(heads: usize, kv_heads: usize, head_dim: usize) -> Heads {
        Heads {
            heads,
            kv_heads,
            head_dim,
            blocks: None,
        }
    }

    /// The keys or the values of `slots` slots.
    fn state(&self, slots: usize) -> OperandSpec {
        let (dtype, width) = match self.blocks {
            Some(format) => (DType::U32, format.words(self.head_dim)),
            None => (DType::F16, self.head_dim),
        };
        OperandSpec::contiguous(dtype, &[slots, self.kv_heads, width])
    }

    /// Bytes of the keys and values of `slots` slots.
    pub fn bytes(&self, slots: usize) -> usize {
        let state = self.state(slots);
        2 * state.layout.count() * state.dtype.size()
    }
}

/// Decode attention at several context lengths, and with several sequences.
pub fn attentions() -> impl Iterator<Item = Workload> {
    let in_blocks = |format| Heads {
        blocks: Some(format),
        ..Heads::of(32, 8, 128)
    };
    let models = [
        ("0.6b", Heads::of(16, 8, 128)),
        ("8b", Heads::of(32, 8, 128)),
        ("8b-q8_0", in_blocks(BlockFormat::Q8_0)),
        ("8b-q4_0", in_blocks(BlockFormat::Q4_0)),
        ("30b", Heads::of(32, 4, 128)),
        ("35b", Heads::of(16, 2, 256)),
    ];
    let depths = [130, 1000, 4100, 16_400].map(|context| (context, 1));
    let batches = [8, 24, 32, 48, 64].map(|sequences| (290, sequences));
    let batches = batches.into_iter().chain([(1100, 64), (600, 128)]);
    models.into_iter().flat_map(move |(model, heads)| {
        depths
            .into_iter()
            .chain(batches.clone())
            .map(move |(context, sequences)| Workload::Attention {
                model,
                heads,
                context,
                sequences,
            })
    })
}

/// Prefill attention of a chunk, at the start of a prompt and after earlier chunks.
pub fn prompt_attentions() -> impl Iterator<Item = Workload> {
    let chunks = [("0.6b", 16, 0), ("8b", 32, 0), ("8b", 32, 2048), ("8b", 32, 16_384)];
    chunks
        .into_iter()
        .map(|(model, heads, depth)| Workload::PromptAttention {
            model,
            heads,
            kv_heads: 8,
            tokens: 512,
            depth,
        })
}

/// Norms and rotary embedding as in Qwen3.
fn preparation(head_dim: usize) -> HeadPreparation {
    let norm = Some(Norm {
        eps: 1e-6,
        weighted: true,
    });
    HeadPreparation {
        rope: Some(rope::RopeParams::new(head_dim)),
        q_norm: norm,
        k_norm: norm,
    }
}

/// Preparation of queries, keys and values for prefill attention.
pub fn preparations() -> impl Iterator<Item = Workload> {
    let models = [("0.6b", 16), ("8b", 32)];
    models.into_iter().flat_map(|(model, heads)| {
        [16, 512, 2048].map(|tokens| Workload::Preparation {
            model,
            heads,
            kv_heads: 8,
            tokens,
        })
    })
}

/// The page table of all sequences.
pub fn page_table(context: usize, sequences: usize) -> Vec<u32> {
    let each = context.div_ceil(PAGE);
    let page = |number: usize| (number / PAGES * each + (number % PAGES).min(each - 1)) as u32;
    Vec::from_iter((0..sequences * PAGES).map(page))
}

/// Calls of decode attention with one token per sequence.
pub fn decode_attention(
    row: &Tuning,
    traits: &Traits,
    shape: &Heads,
    [context, sequences]: [usize; 2],
) -> RecordedCalls {
    let Heads {
        heads,
        kv_heads,
        head_dim,
        blocks,
    } = *shape;
    let slots = sequences * context.next_multiple_of(PAGE);
    let [q, k, v] = side_by_side(sequences, [heads, kv_heads], head_dim);
    let vector = |dtype, n: usize| OperandSpec::contiguous(dtype, &[n]);
    let state = shape.state(slots);
    let params = DecodeParams {
        attention: attention::AttentionParams {
            scale: 0.088,
            page_size: PAGE as u32,
            window: None,
            decode: true,
            blocks: [blocks; 2],
        },
        heads: preparation(head_dim),
        sinks: false,
        gated: false,
    };
    let mut operands = vec![
        (true, state.clone()),
        (true, state),
        (false, q),
        (false, k),
        (false, v),
        (false, vector(DType::I32, sequences)),
        (false, vector(DType::U32, sequences)),
        (false, OperandSpec::contiguous(DType::U32, &[sequences, PAGES])),
        (false, vector(DType::F32, head_dim / 2)),
        (false, vector(DType::F32, head_dim)),
        (false, vector(DType::F32, head_dim)),
        (
            false,
            OperandSpec::contiguous(DType::F32, &[sequences, heads, head_dim]),
        ),
    ];
    let all: Vec<&OperandSpec> = operands.iter().map(|(_, o)| o).collect();
    let recorded = attention::decode_tuned(row, traits, &all, &params).expect("supported");
    operands.extend(recorded.workspace.map(|workspace| (false, workspace)));
    operands.push((false, vector(DType::U32, recorded.tickets)));
    RecordedCalls::new(recorded.calls, &operands)
}

/// Queries, keys and values as views into the result of one projection.
fn side_by_side(tokens: usize, [heads, kv_heads]: [usize; 2], head_dim: usize) -> [OperandSpec; 3] {
    let width = (heads + 2 * kv_heads) * head_dim;
    let parts = [(heads, 0), (kv_heads, heads), (kv_heads, heads + kv_heads)];
    parts.map(|(heads, first)| OperandSpec {
        dtype: DType::F32,
        layout: Layout {
            shape: vec![tokens, heads, head_dim].into(),
            strides: vec![width, head_dim, 1].into(),
            offset: first * head_dim,
        },
    })
}

/// Calls that prepare a chunk of a prompt for attention.
pub fn preparation_calls(traits: &Traits, [heads, kv_heads]: [usize; 2], tokens: usize) -> RecordedCalls {
    let state = OperandSpec::contiguous(DType::F16, &[tokens.next_multiple_of(PAGE), kv_heads, HEAD_DIM]);
    let vector = |dtype, n: usize| (false, OperandSpec::contiguous(dtype, &[n]));
    let [q, k, v] = side_by_side(tokens, [heads, kv_heads], HEAD_DIM);
    let operands = [
        (true, state.clone()),
        (true, state),
        (false, q),
        (false, k),
        (false, v),
        vector(DType::I32, tokens),
        vector(DType::I32, tokens),
        vector(DType::F32, HEAD_DIM / 2),
        vector(DType::F32, HEAD_DIM),
        vector(DType::F32, HEAD_DIM),
        (false, OperandSpec::contiguous(DType::F32, &[tokens, heads, HEAD_DIM])),
    ];
    let all = operands.each_ref().map(|(_, operand)| operand);
    let call = prepare::call(traits, &all, &preparation(HEAD_DIM)).expect("supported");
    RecordedCalls::new(vec![call], &operands)
}

/// Calls of prefill attention for a chunk.
pub fn prompt_attention(
    row: &Tuning,
    traits: &Traits,
    [heads, kv_heads]: [usize; 2],
    [tokens, depth]: [usize; 2],
) -> RecordedCalls {
    let slots = (depth + tokens).next_multiple_of(PAGE);
    let state = OperandSpec::contiguous(DType::F16, &[slots, kv_heads, HEAD_DIM]);
    let vectors = OperandSpec::contiguous(DType::F32, &[tokens, heads, HEAD_DIM]);
    let operands = [
        (false, vectors.clone()),
        (true, state.clone()),
        (true, state),
        (false, OperandSpec::contiguous(DType::I32, &[tokens])),
        (false, OperandSpec::contiguous(DType::U32, &[tokens])),
        (false, OperandSpec::contiguous(DType::U32, &[1, PAGES])),
        (false, vectors),
    ];
    let params = attention::AttentionParams::new(HEAD_DIM, PAGE as u32);
    let all = operands.each_ref().map(|(_, operand)| operand);
    let (calls, workspace) = attention::calls_tuned(row, traits, all, None, &params).expect("supported");
    let workspace = workspace.map(|workspace| (false, workspace));
    RecordedCalls::new(calls, &Vec::from_iter(operands.into_iter().chain(workspace)))
}
