//! Fused Gated DeltaNet over few tokens, from its convolution to its output gate.

use std::hash::{Hash, Hasher};

use refrain_kernels::delta_net::{self, DeltaNetParams};

use refrain::operation::{ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values};

/// (x `[T, C]`, weights `[C, W]`, decay, beta `[T, H]`, z `[T, H·E]`, positions `[T]`, sequences `[T]`, conv state `[S,
/// W−1, C]`, delta state `[S, H, E, D]`, {norm weight `[E]`}) → `[T, H·E]`, and both states: the convolution and the
/// gated delta rule, fused with activation, norms and gate by [`super::rewrite`].
#[derive(Hash, Debug)]
pub(super) struct FusedDeltaNet(pub DeltaNetParams);

impl Operation for FusedDeltaNet {
    fn name(&self) -> &'static str {
        "delta_net"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let z = inputs.get(4).filter(|_| inputs.len() >= 9);
        let z = z.ok_or_else(|| format!("{} inputs, expected at least 9", inputs.len()))?;
        Ok(vec![(*z).clone()])
    }

    fn updates(&self) -> &[usize] {
        &[7, 8]
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let operands: Vec<&OperandSpec> = operands.iter().collect();
        let (call, tickets) = delta_net::call(traits, &delta_net::DeltaNetOperands::of(&operands), &self.0)?;
        Ok(Kernels {
            tickets,
            ..Kernels::one(call)
        })
    }

    fn check(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<(), Unsupported> {
        let operands: Vec<&OperandSpec> = operands.iter().collect();
        delta_net::check(traits, &delta_net::DeltaNetOperands::of(&operands), &self.0)
    }

    fn reference(&self, step: &HostStep<'_>) {
        let x = step.read();
        let (channels, state) = (x.shape(0)[1], x.shape(8));
        let [heads, value_dim, key_dim] = [state[1], state[2], state[3]];
        let weight = self.0.norm.weighted.then(|| x.f32(9));
        let inputs = delta_net::DeltaNetInputs {
            x: &x.f32(0),
            weights: &x.f32(1),
            decay: &x.f32(2),
            beta: &x.f32(3),
            z: &x.f32(4),
            positions: &x.i32(5),
            sequences: &x.u32(6),
            norm_weight: weight.as_deref(),
            sizes: [
                (channels - heads * value_dim) / (2 * key_dim),
                key_dim,
                heads,
                value_dim,
            ],
        };
        let [mut conv_state, mut delta_state] = [7, 8].map(|number| x.f32(number));
        let gated = delta_net::reference(&inputs, &self.0, &mut conv_state, &mut delta_state);
        drop(x);
        step.store(0, &Values::F32(gated));
        step.update(7, &Values::F32(conv_state));
        step.update(8, &Values::F32(delta_state));
    }

    fn multiplications(&self, operands: &[OperandSpec]) -> u64 {
        let key_dim = operands[8].layout.shape[3] as u64;
        let out = operands.last().map_or(0, |out| out.layout.count() as u64);
        out.saturating_mul(3 * key_dim)
    }
}
