//! Fused decode attention, of one token per sequence: norms, RoPE, cache writes and attention.

use std::hash::{Hash, Hasher};

use refrain_kernels::attention::{self, DecodeParams};
use refrain_kernels::slots;

use super::blocks::encoded;
use super::prepare::prepared;
use super::{attend, multiplications, output};
use refrain::operation::{ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values};

/// (keys, values: states `[slots, KVH, Dk]` and `[slots, KVH, Dv]`, q `[T, H, Dk]`, k `[T, KVH, Dk]`, v `[T, KVH, Dv]`,
/// positions `[T]`, sequences `[T]`, pages `[S, P]`, {frequencies}, {q norm's weight}, {k norm's weight}, {sinks
/// `[H]`}, {gate}) → `[T, H, Dv]`, and both states: attention fused with the norms, RoPE and cache writes before it by
/// [`super::rewrite`].
#[derive(Hash, Debug)]
pub(super) struct FusedAttention(pub DecodeParams);

impl Operation for FusedAttention {
    fn name(&self) -> &'static str {
        "decode_attention"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        match inputs {
            [_, values, q, ..] if inputs.len() == self.0.output() => Ok(vec![output(q, values, &self.0.attention)]),
            _ => Err(format!("{} inputs, expected {}", inputs.len(), self.0.output())),
        }
    }

    fn updates(&self) -> &[usize] {
        &[0, 1]
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let decode = attention::decode(traits, &operands.iter().collect::<Vec<_>>(), &self.0)?;
        Ok(Kernels {
            tickets: decode.tickets,
            ..Kernels::with_workspace((decode.calls, decode.workspace))
        })
    }

    fn check(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<(), Unsupported> {
        attention::check_decode(traits, &operands.iter().collect::<Vec<_>>(), &self.0)
    }

    fn reference(&self, step: &HostStep<'_>) {
        let params = &self.0;
        let x = step.read();
        let heads = x.shape(2)[1];
        let [q, k] = prepared(&x, &params.heads, params.optional(), 5);
        let v = x.values(4);
        let page_size = params.attention.page_size as usize;
        let [key_dim, value_dim] = [3, 4].map(|number| x.shape(number)[2]);
        let slots = slots::reference(&x.i32(5), &x.u32(6), &x.u32(7), x.shape(7), page_size);
        drop(x);
        let [key_format, value_format] = params.attention.blocks;
        step.update_rows(0, &encoded(&Values::F32(k), key_dim, key_format), &slots);
        step.update_rows(1, &encoded(&v, value_dim, value_format), &slots);
        let x = step.read();
        let mut attn_out = attend(&x, &q, heads, [0, 1, 5, 6, 7], params.sinks(), &params.attention);
        if let Some(number) = params.gate() {
            let gated = attn_out.iter_mut().zip(x.f32(number));
            gated.for_each(|(x, gate)| *x /= 1.0 + (-gate).exp());
        }
        drop(x);
        step.store(0, &Values::F32(attn_out));
    }

    fn detail(&self) -> String {
        self.0.to_string()
    }

    fn multiplications(&self, operands: &[OperandSpec]) -> u64 {
        multiplications(
            &self.0.attention,
            &operands[7],
            &operands[2],
            &operands[self.0.output()],
        )
    }

    fn context(&self) -> Option<(&[usize], Option<u32>)> {
        Some((&[0, 1], self.0.attention.window))
    }
}
