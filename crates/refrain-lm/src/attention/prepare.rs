//! Fused preparation of queries, keys and values of many tokens for attention.

use std::hash::{Hash, Hasher};

use refrain_kernels::attention::{HeadPreparation, prepare};
use refrain_kernels::rms_norm::{self, Norm};
use refrain_kernels::rope::{self, RopeParams};

use refrain::operation::{
    ArraySpec, HostInputs, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values,
};

/// (keys, values: states `[slots, KVH, Dk]` and `[slots, KVH, Dv]`, q `[T, H, Dk]`, k `[T, KVH, Dk]`, v `[T, KVH, Dv]`,
/// slots `[T]`, positions `[T]`, {frequencies}, {q norm's weight}, {k norm's weight}) → the queries that attention
/// reads, and both states: norms, RoPE and cache writes, fused by [`super::rewrite`].
#[derive(Hash, Debug)]
pub(super) struct AttentionPreparation(pub HeadPreparation);

impl Operation for AttentionPreparation {
    fn name(&self) -> &'static str {
        "prepare_attention"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        match inputs {
            [_, _, q, ..] if inputs.len() == prepare::output(&self.0) => Ok(vec![(*q).clone()]),
            _ => Err(format!(
                "{} inputs, expected {}",
                inputs.len(),
                prepare::output(&self.0)
            )),
        }
    }

    fn updates(&self) -> &[usize] {
        &[0, 1]
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let call = prepare::call(traits, &operands.iter().collect::<Vec<_>>(), &self.0)?;
        Ok(Kernels::one(call))
    }

    fn check(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<(), Unsupported> {
        prepare::check(traits, &operands.iter().collect::<Vec<_>>(), &self.0)
    }

    fn reference(&self, step: &HostStep<'_>) {
        let x = step.read();
        let [q, k] = prepared(&x, &self.0, prepare::optional(&self.0), 6);
        let (v, slots) = (x.values(4), x.i32(5));
        drop(x);
        step.update_rows(0, &Values::F32(k), &slots);
        step.update_rows(1, &v, &slots);
        step.store(0, &Values::F32(q));
    }

    fn detail(&self) -> String {
        self.0.to_string()
    }

    /// Counts queries, keys and values only, since only rows of the states are written.
    fn multiplications(&self, operands: &[OperandSpec]) -> u64 {
        operands[2..5].iter().map(|operand| operand.layout.count() as u64).sum()
    }
}

/// Returns inputs 2 and 3, queries and keys, after norm and RoPE. `positions` is an input number; `optional` are those
/// of the frequencies and of the norms' weights.
pub(super) fn prepared(
    x: &HostInputs<'_>,
    heads: &HeadPreparation,
    optional: [Option<usize>; 3],
    positions: usize,
) -> [Vec<f32>; 2] {
    let [frequencies, q_weight, k_weight] = optional;
    let rope = heads.rope.zip(frequencies);
    [
        prepared_heads(x, 2, heads.q_norm, q_weight, rope, positions),
        prepared_heads(x, 3, heads.k_norm, k_weight, rope, positions),
    ]
}

/// Returns input `number`, heads, after norm and RoPE. `weight`, `positions` and that of the frequencies are input numbers.
pub(super) fn prepared_heads(
    x: &HostInputs<'_>,
    number: usize,
    norm: Option<Norm>,
    weight: Option<usize>,
    rope: Option<(RopeParams, usize)>,
    positions: usize,
) -> Vec<f32> {
    let head_dim = x.shape(number)[2];
    let mut values = x.f32(number);
    if let Some(norm) = norm {
        let weight = weight.map(|weight| x.f32(weight));
        values = rms_norm::reference(&values, weight.as_deref(), norm.eps, head_dim);
    }
    match rope {
        Some((rotation, frequencies)) => {
            rope::reference(&values, &x.i32(positions), &x.f32(frequencies), head_dim, &rotation)
        }
        None => values,
    }
}
