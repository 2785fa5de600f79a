//! Causal attention over a paged KV cache.

mod decode;
mod prepare;
mod rewrite;

use std::hash::{Hash, Hasher};

use refrain_kernels::matmul::StoredRows;
use refrain_kernels::{attention, cpu};

use refrain::operation::{
    ArraySpec, HostInputs, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values, exactly,
};
use refrain::rewrite::{Rewrite, RewriteStage};
use refrain::{Array, DType};

use crate::{AttentionParams, BatchTokens};

/// (q `[T, H, Dk]`, keys `[slots, KVH, Dk]`, values `[slots, KVH, Dv]`, positions `[T]`, sequences `[T]`, pages `[S, P]`,
/// {sinks `[H]`}) → `[T, H, Dv]`.
#[derive(Hash, Debug)]
struct PagedAttention(AttentionParams);

impl Operation for PagedAttention {
    fn name(&self) -> &'static str {
        "paged_attention"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let (inputs, sinks) = inputs.split_at(inputs.len().min(6));
        let [q, keys, values, positions, sequences, pages] = exactly(inputs)?;
        let fits = inputs[..3].iter().all(|x| x.rank() == 3 && x.dtype.is_float())
            && keys.shape[..2] == values.shape[..2]
            && keys.dim(2) == q.dim(2)
            && keys.dim(1) > 0
            && q.dim(1).is_multiple_of(keys.dim(1))
            && positions.shape == [q.dim(0)]
            && sequences.shape == [q.dim(0)]
            && pages.rank() == 2
            && inputs[3..]
                .iter()
                .map(|x| x.dtype)
                .eq([DType::I32, DType::U32, DType::U32])
            && sinks.len() <= 1
            && sinks.iter().all(|x| x.dtype.is_float() && x.shape == [q.dim(1)])
            && self.0.page_size > 0;
        if fits {
            return Ok(vec![mixed(q, values)]);
        }
        let with = sinks
            .iter()
            .map(|sinks| format!(" with sinks {sinks}"))
            .collect::<String>();
        Err(format!(
            "q {q} does not attend to keys {keys} and values {values} by positions {positions}, sequences {sequences} and pages {pages} of {} slots{with}",
            self.0.page_size
        ))
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let [q, keys, values, positions, sequences, pages, sinks @ .., out] = operands else {
            unreachable!("six inputs or seven, and a result")
        };
        let operands = [q, keys, values, positions, sequences, pages, out];
        let calls = attention::calls(traits, operands, sinks.first(), &self.0)?;
        Ok(Kernels::with_workspace(calls))
    }

    fn reference(&self, step: &HostStep<'_>) {
        let x = step.read();
        let sinks = (x.count() > 6).then_some(6);
        let mixed = attend(&x, &x.f32(0), x.shape(0)[1], [1, 2, 3, 4, 5], sinks, &self.0);
        drop(x);
        step.store(0, &Values::F32(mixed));
    }

    fn multiplications(&self, operands: &[OperandSpec]) -> u64 {
        let [q, .., out] = operands else { return 0 };
        multiplications(&self.0, &operands[5], q, out)
    }

    fn rewrites(&self) -> &'static [Rewrite] {
        &[Rewrite {
            stage: RewriteStage::BehindProducts,
            run: rewrite::join,
        }]
    }

    fn context(&self) -> Option<(&[usize], Option<u32>)> {
        Some((&[1, 2], self.0.window))
    }
}

/// What attention of queries like `q` gives: for each of their heads as much as `values` have.
fn mixed(q: &ArraySpec, values: &ArraySpec) -> ArraySpec {
    ArraySpec {
        shape: [&q.shape[..2], &values.shape[2..]].concat(),
        dtype: q.dtype,
    }
}

/// One for each element of `q` and of `out`, and each position that `pages` of a sequence hold, or that is in the window.
fn multiplications(params: &AttentionParams, pages: &OperandSpec, q: &OperandSpec, out: &OperandSpec) -> u64 {
    let pages = pages.layout.shape.last().copied().unwrap_or(1) as u64;
    let reach = pages * u64::from(params.page_size);
    let seen = params.window.map_or(reach, |window| reach.min(window.into()));
    let each = q.layout.count() + out.layout.count();
    (each as u64).saturating_mul(seen)
}

/// Attention of queries `q`, and perhaps to sinks, over inputs keys, values, positions, sequences and pages, by number.
fn attend(
    x: &HostInputs<'_>,
    q: &[f32],
    heads: usize,
    inputs: [usize; 5],
    sinks: Option<usize>,
    params: &AttentionParams,
) -> Vec<f32> {
    let [keys, values, positions, sequences, pages] = inputs;
    let [slots, kv_heads, _] = *x.shape(keys) else {
        unreachable!("keys have three dimensions")
    };
    let head_dims = [keys, values].map(|number| x.shape(number)[2]);
    let bytes = [keys, values].map(|number| (x.dtype(number), x.gathered(number)));
    let rows = [0, 1].map(|i| {
        let (dtype, bytes) = &bytes[i];
        StoredRows::new(*dtype, slots, kv_heads * head_dims[i], bytes).expect("keys and values are floats")
    });
    let sinks = sinks.map(|number| x.f32(number));
    let inputs = attention::AttentionInputs {
        q,
        keys: &rows[0],
        values: &rows[1],
        positions: &x.i32(positions),
        sequences: &x.u32(sequences),
        pages: &x.u32(pages),
        sinks: sinks.as_deref(),
        heads,
        kv_heads,
        pages_per_sequence: x.shape(pages)[1],
    };
    let floats = bytes.each_ref().map(|(dtype, bytes)| match dtype {
        DType::F32 => bytemuck::try_cast_slice(bytes).ok(),
        _ => None,
    });
    match floats {
        [Some(keys), Some(values)] if head_dims.iter().all(|dim| dim % cpu::LANES == 0) => {
            cpu::attention(&inputs, keys, values, params)
        }
        _ => attention::reference(&inputs, params),
    }
}

/// Causal attention over a paged KV cache. q floats `[T, H, Dk]`; keys floats `[slots, KVH, Dk]` and values floats
/// `[slots, KVH, Dv]`, H a multiple of KVH → as q `[T, H, Dv]`. A token sees the positions up to its own (or the last
/// `params.window` of them); position p of sequence s lies in slot
/// `pages[s, p / page_size] · page_size + p mod page_size`. Invalid where they do not fit; GPUs take even
/// Dk and Dv up to 256.
#[track_caller]
pub fn paged_attention(
    q: &Array,
    keys: &Array,
    values: &Array,
    tokens: BatchTokens<'_>,
    params: AttentionParams,
) -> Array {
    let inputs = [q, keys, values, tokens.positions, tokens.sequences, tokens.pages];
    let [mixed] = Array::apply(PagedAttention(params), &inputs);
    mixed
}

/// [`paged_attention`] whose softmax is also over a score of each head, `sinks` floats `[H]`, with a value of zero
/// (Xiao et al. 2023, arXiv:2309.17453).
#[track_caller]
pub fn paged_attention_with_sinks(
    q: &Array,
    keys: &Array,
    values: &Array,
    tokens: BatchTokens<'_>,
    sinks: &Array,
    params: AttentionParams,
) -> Array {
    let inputs = [q, keys, values, tokens.positions, tokens.sequences, tokens.pages, sinks];
    let [mixed] = Array::apply(PagedAttention(params), &inputs);
    mixed
}
