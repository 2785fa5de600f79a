//! Causal attention over a paged KV cache.

mod blocks;
mod decode;
mod heads;
mod prepare;
mod rewrite;
mod stored_twice;

use std::borrow::Cow;
use std::hash::{Hash, Hasher};

pub use blocks::store_rows;
use refrain_kernels::attention::{BlockFormat, BlockRows};
use refrain_kernels::matmul::{StoredRows, WeightRows};
use refrain_kernels::{attention, cpu};

use refrain::operation::{
    self, ArraySpec, HostInputs, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values, exact_inputs,
};
use refrain::rewrite::{Rewrite, RewriteStage};
use refrain::{Array, DType};

use crate::{AttentionParams, BatchTokens};

/// (q `[T, H, Dk]`, keys `[slots, KVH, Dk]`, values `[slots, KVH, Dv]`, positions `[T]`, sequences `[T]`, pages `[S,
/// P]`, {sinks `[H]`}) → `[T, H, Dv]`.
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
        let [q, keys, values, positions, sequences, pages] = exact_inputs(inputs)?;
        let [key_format, value_format] = self.0.blocks;
        let fits = q.rank() == 3
            && q.dtype.is_float()
            && keys.rank() == 3
            && head_dim(keys, key_format) == Some(q.dim(2))
            && values.rank() == 3
            && head_dim(values, value_format).is_some()
            && keys.shape[..2] == values.shape[..2]
            && keys.dim(1) > 0
            && q.dim(1).is_multiple_of(keys.dim(1))
            && positions.shape[..] == [q.dim(0)]
            && sequences.shape[..] == [q.dim(0)]
            && pages.rank() == 2
            && inputs[3..]
                .iter()
                .map(|x| x.dtype)
                .eq([DType::I32, DType::U32, DType::U32])
            && sinks.len() <= 1
            && sinks.iter().all(|x| x.dtype.is_float() && x.shape[..] == [q.dim(1)])
            && self.0.page_size > 0;
        if fits {
            return Ok(vec![output(q, values, &self.0)]);
        }
        let page_size = self.0.page_size;
        let last = match sinks {
            [] => format!(" and pages {pages} of {page_size} slots"),
            [sinks, ..] => format!(", pages {pages} of {page_size} slots and sinks {sinks}"),
        };
        Err(format!(
            "q {q}, keys {keys}, values {values}, positions {positions}, sequences {sequences}{last} do not match"
        ))
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let ([q, keys, values, positions, sequences, pages], sinks, [out]) =
            operation::operands_with_optional(operands);
        let operands = [q, keys, values, positions, sequences, pages, out];
        let calls = attention::calls(traits, operands, sinks, &self.0)?;
        Ok(Kernels::with_workspace(calls))
    }

    fn reference(&self, step: &HostStep<'_>) {
        let x = step.read();
        let sinks = (x.count() > 6).then_some(6);
        let attn_out = attend(&x, &x.f32(0), x.shape(0)[1], [1, 2, 3, 4, 5], sinks, &self.0);
        drop(x);
        step.store(0, &Values::F32(attn_out));
    }

    fn multiplications(&self, operands: &[OperandSpec]) -> u64 {
        let [q, .., out] = operands else { return 0 };
        multiplications(&self.0, &operands[5], q, out)
    }

    fn rewrites(&self) -> &'static [Rewrite] {
        &[Rewrite {
            stage: RewriteStage::AfterProducts,
            run: rewrite::fuse,
        }]
    }

    fn context(&self) -> Option<(&[usize], Option<u32>)> {
        Some((&[1, 2], self.0.window))
    }
}

/// Returns the dimension of the heads of a state in a block format or in floats; `None` if it is neither.
fn head_dim(state: &ArraySpec, format: Option<BlockFormat>) -> Option<usize> {
    match format {
        Some(format) if state.dtype == DType::U32 => format.dim(state.dim(2)),
        None if state.dtype.is_float() => Some(state.dim(2)),
        _ => None,
    }
}

/// Returns the spec of attention's output for queries `q`: heads of the dimension of `values`.
fn output(q: &ArraySpec, values: &ArraySpec, params: &AttentionParams) -> ArraySpec {
    let dim = head_dim(values, params.blocks[1]).unwrap_or(0);
    ArraySpec::new(&[q.dim(0), q.dim(1), dim], q.dtype)
}

/// Returns the multiplications of attention: one for each element of `q` and of `out` and each position of a sequence's
/// pages or of the window.
fn multiplications(params: &AttentionParams, pages: &OperandSpec, q: &OperandSpec, out: &OperandSpec) -> u64 {
    let pages = pages.layout.shape.last().copied().unwrap_or(1) as u64;
    let capacity = pages * u64::from(params.page_size);
    let seen = params.window.map_or(capacity, |window| capacity.min(window.into()));
    let each = q.layout.count() + out.layout.count();
    (each as u64).saturating_mul(seen)
}

/// Computes attention of queries `q` on the CPU. `inputs` are the numbers of keys, values, positions, sequences and
/// pages.
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
    let bytes = [keys, values].map(|number| (x.dtype(number), x.gathered(number)));
    let words = bytes.each_ref().map(|(dtype, bytes)| match dtype {
        DType::U32 => match bytemuck::try_cast_slice(bytes) {
            Ok(words) => Cow::Borrowed(words),
            Err(_) => Cow::Owned(bytemuck::pod_collect_to_vec(bytes)),
        },
        _ => Cow::Borrowed(&[][..]),
    });
    let rows = [0, 1].map(|i| -> Box<dyn WeightRows + '_> {
        let width = x.shape([keys, values][i])[2];
        match params.blocks[i] {
            Some(format) => {
                let dim = format.dim(width).expect("checked by `results`");
                Box::new(BlockRows::new(format, kv_heads, dim, &words[i]))
            }
            None => {
                let (dtype, bytes) = &bytes[i];
                let rows = StoredRows::new(*dtype, slots, kv_heads * width, bytes);
                Box::new(rows.expect("keys and values are floats"))
            }
        }
    });
    let head_dims = rows.each_ref().map(|rows| rows.columns() / kv_heads);
    let sinks = sinks.map(|number| x.f32(number));
    let inputs = attention::AttentionInputs {
        q,
        keys: &*rows[0],
        values: &*rows[1],
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

/// Causal attention over a paged KV cache.
///
/// q floats `[T, H, Dk]`; keys `[slots, KVH, Dk]` and values `[slots, KVH, Dv]`, floats or in the block formats of
/// `params`, H a multiple of KVH → as q `[T, H, Dv]`. A token sees the positions up to its own, or the last `params.window` of them. Position p of
/// sequence s is in slot `pages[s, p / page_size] · page_size + p mod page_size`. The result is invalid if shapes do
/// not match. GPUs support even Dk and Dv up to 256.
#[track_caller]
pub fn paged_attention(
    q: &Array,
    keys: &Array,
    values: &Array,
    tokens: BatchTokens<'_>,
    params: AttentionParams,
) -> Array {
    let inputs = [q, keys, values, tokens.positions, tokens.sequences, tokens.pages];
    let [attn_out] = Array::apply(PagedAttention(params), &inputs);
    attn_out
}

/// [`paged_attention`] with attention sinks: the softmax of each head includes a score, `sinks` floats `[H]`, whose
/// value is zero (Xiao et al. 2023, arXiv:2309.17453).
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
    let [attn_out] = Array::apply(PagedAttention(params), &inputs);
    attn_out
}
