//! Fused Gated DeltaNet over few tokens, from its convolution to its output gate.

use std::hash::{Hash, Hasher};

use refrain_kernels::RecurrenceForm;
use refrain_kernels::delta_net::{self, DeltaNetOperands, DeltaNetParams};

use super::{detail, finish, updated};
use refrain::operation::{
    ArraySpec, HostInputs, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values,
};

/// (x `[T, C]`, weights `[C, W]`, decay, beta `[T, H]`, z `[T, H·E]`, positions `[T]`, sequences `[T]`, conv state `[S,
/// W−1, C]`, delta state `[S, H, E, D]`, {norm weight `[E]`}) → `[T, H·E]`, and both states: the convolution and the
/// gated delta rule, fused with activation, norms and gate by [`super::rewrite`]. Other forms have the result alone, or
/// both states.
#[derive(Hash, Debug)]
pub(super) struct FusedDeltaNet {
    pub params: DeltaNetParams,
    pub form: RecurrenceForm,
    /// Whether each sequence has at most one token.
    pub one_token: bool,
}

impl FusedDeltaNet {
    fn operands<'a>(&self, operands: &'a [OperandSpec]) -> DeltaNetOperands<'a> {
        let all: Vec<&OperandSpec> = operands.iter().collect();
        DeltaNetOperands {
            one_token: self.one_token,
            ..DeltaNetOperands::of_form(self.form, &all)
        }
    }
}

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
        Ok((self.form != RecurrenceForm::StateOnly)
            .then(|| (*z).clone())
            .into_iter()
            .collect())
    }

    fn updates(&self) -> &[usize] {
        updated(self.form, &[7, 8])
    }

    fn detail(&self) -> String {
        detail(self.form)
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let (call, tickets) = delta_net::call(traits, &self.operands(operands), &self.params)?;
        Ok(Kernels {
            tickets,
            ..Kernels::one(call)
        })
    }

    fn check(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<(), Unsupported> {
        delta_net::check(traits, &self.operands(operands), &self.params)
    }

    fn reference(&self, step: &HostStep<'_>) {
        let [gated, conv_state, delta_state] = computed(&self.params, &step.read());
        finish(self.form, step, gated, [(7, conv_state), (8, delta_state)]);
    }

    fn multiplications(&self, operands: &[OperandSpec]) -> u64 {
        multiplications(operands)
    }
}

/// The inputs of [`FusedDeltaNet`] → its result, and the next states, for which the given ones are not written over. The
/// conv state may be any floats `[S, W−1, C]`.
#[derive(Hash, Debug)]
pub(super) struct FusedDeltaNetFrom {
    pub params: DeltaNetParams,
    /// Whether the next conv state is the given one with the token of its sequence behind it, `[S, W, C]`. Each sequence
    /// has one token, and none starts.
    pub is_joined: bool,
}

impl Operation for FusedDeltaNetFrom {
    fn name(&self) -> &'static str {
        "delta_net_from"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let full = FusedDeltaNet {
            params: self.params,
            form: RecurrenceForm::Full,
            one_token: false,
        };
        let mut results = full.results(inputs)?;
        results.extend([7, 8].map(|number| inputs[number].clone()));
        if let Some(rows) = results[1].shape.get_mut(1).filter(|_| self.is_joined) {
            *rows += 1;
        }
        Ok(results)
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let operands: Vec<&OperandSpec> = operands.iter().collect();
        let operands = DeltaNetOperands::with_next_states(&operands);
        let (call, _) = delta_net::call(traits, &operands, &self.params)?;
        Ok(Kernels::one(call))
    }

    fn check(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<(), Unsupported> {
        let operands: Vec<&OperandSpec> = operands.iter().collect();
        delta_net::check(traits, &DeltaNetOperands::with_next_states(&operands), &self.params)
    }

    fn reference(&self, step: &HostStep<'_>) {
        let results = {
            let inputs = step.read();
            let [out, window, state] = computed(&self.params, &inputs);
            let window = if self.is_joined { joined(&inputs) } else { window };
            [out, window, state]
        };
        for (number, result) in results.into_iter().enumerate() {
            step.store(number, &Values::F32(result));
        }
    }

    fn multiplications(&self, operands: &[OperandSpec]) -> u64 {
        multiplications(operands)
    }
}

/// The conv state of each sequence and its token.
fn joined(inputs: &HostInputs<'_>) -> Vec<f32> {
    let (x, state) = (inputs.f32(0), inputs.f32(7));
    let &[sequences, held, channels] = inputs.shape(7) else {
        unreachable!("checked by `results`")
    };
    let part = |all: &[f32], each: usize, sequence: usize| all[sequence * each..][..each].to_vec();
    let joined = |n: usize| [part(&state, held * channels, n), part(&x, channels, n)].concat();
    (0..sequences).flat_map(joined).collect()
}

/// The result and the next states.
fn computed(params: &DeltaNetParams, x: &HostInputs<'_>) -> [Vec<f32>; 3] {
    let (channels, state) = (x.shape(0)[1], x.shape(8));
    let [heads, value_dim, key_dim] = [state[1], state[2], state[3]];
    let weight = params.norm.weighted.then(|| x.f32(9));
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
    let gated = delta_net::reference(&inputs, params, &mut conv_state, &mut delta_state);
    [gated, conv_state, delta_state]
}

/// Three for each element of the state of each token's heads.
fn multiplications(operands: &[OperandSpec]) -> u64 {
    let (z, state) = (&operands[4].layout, &operands[8].layout);
    (z.count() as u64).saturating_mul(3 * state.shape[3] as u64)
}
