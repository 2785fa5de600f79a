//! The gated delta rule.

use std::hash::{Hash, Hasher};

use refrain_kernels::elementwise::{self, Expression};
use refrain_kernels::{RecurrenceForm, gated_delta, tuning};

use super::{checked, detail, finish, rewrite, updated};
use crate::BatchTokens;
use refrain::operation::{
    self, ArraySpec, HostInputs, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values, exact_inputs,
    renumber,
};
use refrain::rewrite::{Rewrite, RewriteStage};
use refrain::{Array, DType};

/// (q `[T, HK, D]`, k, v `[T, H, E]`, decay `[T, H]`, beta `[T, H]`, positions `[T]`, sequences `[T]`,
/// state `[S, H, E, D]`) → `[T, H, E]`, and the state; one of both in other forms.
#[derive(Hash, Debug)]
pub(super) struct GatedDelta {
    pub form: RecurrenceForm,
    /// Whether each sequence has one token.
    pub is_decode: bool,
}

impl Operation for GatedDelta {
    fn name(&self) -> &'static str {
        "gated_delta"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn detail(&self) -> String {
        detail(self.form)
    }

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let [q, k, v, decay, beta, ..] = exact_inputs::<8>(inputs)?;
        let fits = q.rank() == 3
            && v.rank() == 3
            && q.shape == k.shape
            && !q.shape.contains(&0)
            && q.dim(0) == v.dim(0)
            && v.dim(1).is_multiple_of(q.dim(1))
            && [decay, beta].iter().all(|gate| gate.shape[..] == v.shape[..2])
            && inputs[..5].iter().all(|a| a.dtype.is_float());
        checked(self.form, inputs, fits, &v.shape, &[v.dim(1), v.dim(2), q.dim(2)])
    }

    fn updates(&self) -> &[usize] {
        updated(self.form, &[7])
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let [q, k, v, decay, beta, positions, sequences, state] = operation::operands(&operands[..8]);
        let operands = gated_delta::GatedDeltaOperands {
            q,
            k,
            v,
            decay,
            beta,
            positions,
            sequences,
            state,
            // Without results, v has their shape.
            out: operands.get(8).unwrap_or(v),
        };
        let calls = gated_delta::calls_tuned(tuning::choose(traits), traits, self.form, &operands)?;
        Ok(Kernels::with_workspace(calls))
    }

    fn reference(&self, step: &HostStep<'_>) {
        let [out, state] = computed(&step.read());
        finish(self.form, step, out, [(7, state)]);
    }

    fn rewrites(&self) -> &'static [Rewrite] {
        &[Rewrite {
            stage: RewriteStage::BeforeProducts,
            run: rewrite::fuse,
        }]
    }

    fn multiplications(&self, operands: &[OperandSpec]) -> u64 {
        let key_dim = operands[0].layout.shape[2] as u64;
        (operands[2].layout.count() as u64).saturating_mul(3 * key_dim)
    }
}

/// The outputs and the next state.
fn computed(x: &HostInputs<'_>) -> [Vec<f32>; 2] {
    let mut state = x.f32(7);
    let (keys, values) = (x.shape(0), x.shape(2));
    let inputs = gated_delta::GatedDeltaInputs {
        q: &x.f32(0),
        k: &x.f32(1),
        v: &x.f32(2),
        decay: &x.f32(3),
        beta: &x.f32(4),
        positions: &x.i32(5),
        sequences: &x.u32(6),
        sizes: [keys[1], keys[2], values[1], values[2]],
    };
    [gated_delta::reference(&inputs, &mut state), state]
}

impl GatedDelta {
    const fn of(form: RecurrenceForm) -> GatedDelta {
        GatedDelta { form, is_decode: false }
    }

    /// The outputs and the next version of the state, of a rule that has both.
    #[track_caller]
    fn apply(
        self,
        [q, k, v]: [&Array; 3],
        [decay, beta]: [&Array; 2],
        tokens: BatchTokens<'_>,
        state: &Array,
    ) -> (Array, Array) {
        let inputs = [q, k, v, decay, beta, tokens.positions, tokens.sequences, state];
        let [out, next] = Array::apply(self, &inputs);
        (out, next)
    }
}

const FULL: GatedDelta = GatedDelta::of(RecurrenceForm::Full);

/// The inputs of [`GatedDelta`] → its result, and the last state, for which the given state is not written over.
#[derive(Debug)]
pub(super) struct GatedDeltaFrom;

impl Operation for GatedDeltaFrom {
    fn name(&self) -> &'static str {
        "gated_delta_from"
    }

    fn key(&self, _state: &mut dyn Hasher) {}

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let mut results = FULL.results(inputs)?;
        results.extend(inputs.last().copied().cloned());
        Ok(results)
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let [q, k, v, decay, beta, positions, sequences, state, out, last] = operation::operands(operands);
        let operands = gated_delta::GatedDeltaOperands {
            q,
            k,
            v,
            decay,
            beta,
            positions,
            sequences,
            state: last,
            out,
        };
        let (products, workspace) = gated_delta::calls(traits, &operands)?;
        let mut copy = elementwise::call(traits, &Expression::cast(DType::F32, DType::F32), &[state, last])?;
        renumber(&mut copy, &[7, 9]);
        let mut calls = vec![copy];
        for mut call in products {
            // The last state takes the place of the state, and the workspace follows it.
            renumber(&mut call, &[0, 1, 2, 3, 4, 5, 6, 9, 8, 10]);
            calls.push(call);
        }
        Ok(Kernels::with_workspace((calls, workspace)))
    }

    fn rewrites(&self) -> &'static [Rewrite] {
        FULL.rewrites()
    }

    fn reference(&self, step: &HostStep<'_>) {
        let results = computed(&step.read());
        for (number, result) in results.into_iter().enumerate() {
            step.store(number, &Values::F32(result));
        }
    }

    fn multiplications(&self, operands: &[OperandSpec]) -> u64 {
        FULL.multiplications(operands)
    }
}

/// The gated delta rule (Yang et al. 2024, arXiv:2412.06464). Each token of a sequence decays, corrects and reads the
/// state S of each value head: `S ← decay · S; S ← S + beta · (v − S k) kᵀ; out = S q`.
///
/// rows: q and k floats `[T, HK, D]`, v floats `[T, H, E]`, H a multiple of HK; gates: decay and beta floats `[T, H]`;
/// state f32 `[S, H, E, D]`. → f32 `[T, H, E]`, and the state's next version.
///
/// Tokens as in [`causal_conv`](super::causal_conv). Results are invalid if shapes do not match, or if `state` is not a
/// whole state.
#[track_caller]
pub fn gated_delta(rows: [&Array; 3], gates: [&Array; 2], tokens: BatchTokens<'_>, state: &Array) -> (Array, Array) {
    FULL.apply(rows, gates, tokens, state)
}

/// [`gated_delta()`] where each sequence has one token, as in a step that decodes.
#[track_caller]
pub fn gated_delta_decode(
    rows: [&Array; 3],
    gates: [&Array; 2],
    tokens: BatchTokens<'_>,
    state: &Array,
) -> (Array, Array) {
    let rule = GatedDelta {
        is_decode: true,
        ..FULL
    };
    rule.apply(rows, gates, tokens, state)
}

/// The results of [`gated_delta()`] alone: `state` stays as it is.
#[track_caller]
pub fn gated_delta_results(
    [q, k, v]: [&Array; 3],
    [decay, beta]: [&Array; 2],
    tokens: BatchTokens<'_>,
    state: &Array,
) -> Array {
    let inputs = [q, k, v, decay, beta, tokens.positions, tokens.sequences, state];
    let [out] = Array::apply(GatedDelta::of(RecurrenceForm::ResultsOnly), &inputs);
    out
}

/// The next version of [`gated_delta()`]'s state alone. positions and sequences as in [`BatchTokens`].
#[track_caller]
pub fn gated_delta_state(
    [q, k, v]: [&Array; 3],
    [decay, beta]: [&Array; 2],
    [positions, sequences]: [&Array; 2],
    state: &Array,
) -> Array {
    let inputs = [q, k, v, decay, beta, positions, sequences, state];
    let [next] = Array::apply(GatedDelta::of(RecurrenceForm::StateOnly), &inputs);
    next
}

/// [`gated_delta()`] from any state `[S, H, E, D]`, which stays as it is. Returns the outputs and the last state.
///
/// positions and sequences as in [`BatchTokens`]: with a position above 0, a token continues from the state.
#[track_caller]
pub fn gated_delta_from(
    [q, k, v]: [&Array; 3],
    [decay, beta]: [&Array; 2],
    [positions, sequences]: [&Array; 2],
    state: &Array,
) -> (Array, Array) {
    let inputs = [q, k, v, decay, beta, positions, sequences, state];
    let [out, last] = Array::apply(GatedDeltaFrom, &inputs);
    (out, last)
}
