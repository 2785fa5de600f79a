//! The gated delta rule: linear attention whose state is corrected towards new values rather than only added to.
//!
//! `q`, `k` `[T, HK, D]`, `v` `[T, H, E]`, `decay`, `beta` `[T, H]`, floats; `positions` `[T]` i32,
//! `sequences` `[T]` u32; `state` `[S, H, E, D]` f32 (updated) → `out` `[T, H, E]`, any float type. For
//! each sequence and value head h, with key head h / (H / HK), token by token:
//! `S ← decay · S; S ← S + beta · (v − S k) kᵀ; out = S q`, where `S` `[E, D]` is the head's slice of the
//! state (Yang et al. 2024, arXiv:2412.06464, eq. 10, transposed). All in f32, except what the chunked form rounds.
//!
//! Tokens of one sequence are in order. A sequence number beyond the last is clamped to it. Position 0 resets the
//! sequence's state to zeros. A token of negative position is padding: it leaves the state unchanged and its output is
//! zero.
//!
//! Few tokens take the recurrent form, one after another. Many tokens take the chunked form on matrix cores.
//!
//! The results may be computed without the update of the state, and the update without the results ([`RecurrenceForm`]):
//! these take the recurrent form.

mod chunked;
mod recurrent;

use rayon::prelude::*;

use crate::kit::dot::dot;
use crate::kit::text::{require_float, require_shape};
use crate::kit::threads::min_items;
use crate::recurrence::{self, RecurrenceForm, Token};
use crate::tuning::Tuning;
use crate::{Call, OperandSpec, Traits, Unsupported, tuning};

const OP: &str = "gated_delta";

/// The call's operands, numbered in this order; the state is updated, unless the form is without that.
#[derive(Clone, Copy)]
pub struct GatedDeltaOperands<'a> {
    /// 0: `[T, HK, D]`.
    pub q: &'a OperandSpec,
    /// 1: `[T, HK, D]`.
    pub k: &'a OperandSpec,
    /// 2: `[T, H, E]`.
    pub v: &'a OperandSpec,
    /// 3: `[T, H]`.
    pub decay: &'a OperandSpec,
    /// 4: `[T, H]`.
    pub beta: &'a OperandSpec,
    /// 5: `[T]`.
    pub positions: &'a OperandSpec,
    /// 6: `[T]`.
    pub sequences: &'a OperandSpec,
    /// 7: `[S, H, E, D]`.
    pub state: &'a OperandSpec,
    /// 8: `[T, H, E]`. [`RecurrenceForm::StateOnly`] has no such operand: this gives the shape of results only.
    pub out: &'a OperandSpec,
}

impl<'a> GatedDeltaOperands<'a> {
    /// Returns the extents of the shapes, not yet checked against each other.
    fn sizes(&self) -> Result<GatedDeltaSizes, Unsupported> {
        let (&[tokens, key_heads, key_dim], &[_, heads, value_dim]) =
            (&self.q.layout.shape[..], &self.v.layout.shape[..])
        else {
            let what = format!(
                "q {:?} and v {:?} must have 3 dimensions",
                self.q.layout.shape, self.v.layout.shape
            );
            return Err(Unsupported::Size { op: OP, what });
        };
        Ok(GatedDeltaSizes {
            tokens,
            key_heads,
            key_dim,
            heads,
            value_dim,
            states: self.state.layout.shape.first().copied().unwrap_or(0),
        })
    }

    /// The inputs with their names in shaders, numbered in this order.
    fn inputs(&self) -> [(&'static str, &'a OperandSpec); 7] {
        [
            ("q", self.q),
            ("k", self.k),
            ("v", self.v),
            ("decay", self.decay),
            ("beta", self.beta),
            ("positions", self.positions),
            ("sequences", self.sequences),
        ]
    }
}

/// Extents of operands.
#[derive(Clone, Copy)]
struct GatedDeltaSizes {
    tokens: usize,
    key_heads: usize,
    key_dim: usize,
    heads: usize,
    value_dim: usize,
    states: usize,
}

/// Returns the calls, each depending on the one before, and the workspace they need, if any: the next operand.
///
/// # Errors
/// When dtypes or shapes do not match, or an operand must be copied first
/// ([`Unsupported::NeedsContiguous`]).
pub fn calls(
    traits: &Traits,
    operands: &GatedDeltaOperands<'_>,
) -> Result<(Vec<Call>, Option<OperandSpec>), Unsupported> {
    calls_tuned(tuning::choose(traits), traits, RecurrenceForm::Full, operands)
}

/// [`calls`] with a given row of the tuning table, in any form. Results depend only on its chunk size and on whether
/// chunks are used.
///
/// # Errors
/// Those of [`calls`].
pub fn calls_tuned(
    tuning: &Tuning,
    traits: &Traits,
    form: RecurrenceForm,
    operands: &GatedDeltaOperands<'_>,
) -> Result<(Vec<Call>, Option<OperandSpec>), Unsupported> {
    let sizes = operands.sizes()?;
    if form == RecurrenceForm::Full
        && let Some(chunks) = chunked::Chunks::of(tuning, traits, operands, &sizes)
    {
        check(traits, operands, &sizes, chunks.iterations_per_token())?;
        let (calls, workspace) = chunks.calls(traits, operands, &sizes)?;
        return Ok((calls, Some(workspace)));
    }
    let call = recurrent::call(tuning, traits, form, operands, &sizes)?;
    Ok((vec![call], None))
}

/// Checks the operands. `iterations` is the number of loop iterations of an invocation per token.
fn check(
    traits: &Traits,
    operands: &GatedDeltaOperands<'_>,
    sizes: &GatedDeltaSizes,
    iterations: usize,
) -> Result<(), Unsupported> {
    let &GatedDeltaSizes {
        tokens,
        key_heads,
        key_dim,
        heads,
        value_dim,
        ..
    } = sizes;
    let GatedDeltaOperands {
        q,
        k,
        v,
        decay,
        beta,
        positions,
        sequences,
        state,
        out,
    } = *operands;
    for operand in [q, k, v, decay, beta, out] {
        require_float(OP, operand)?;
    }
    if key_heads == 0 || !heads.is_multiple_of(key_heads) || key_dim == 0 {
        let what = format!("{heads} value heads must be a multiple of {key_heads} key heads of {key_dim} values");
        return Err(Unsupported::Size { op: OP, what });
    }
    require_shape(OP, "k", k, &[tokens, key_heads, key_dim])?;
    require_shape(OP, "v", v, &[tokens, heads, value_dim])?;
    require_shape(OP, "the decay", decay, &[tokens, heads])?;
    require_shape(OP, "beta", beta, &[tokens, heads])?;
    require_shape(OP, "the result", out, &[tokens, heads, value_dim])?;
    let slice = [heads, value_dim, key_dim];
    recurrence::check(
        OP,
        traits,
        [positions, sequences, state],
        [5, 6, 7],
        [tokens, iterations],
        &slice,
    )?;
    for (number, operand) in [(3, decay), (4, beta)] {
        if !operand.layout.is_contiguous() {
            return Err(Unsupported::NeedsContiguous {
                op: OP,
                operand: number,
            });
        }
    }
    Ok(())
}

/// Contiguous inputs of [`reference()`].
#[derive(Clone, Copy)]
pub struct GatedDeltaInputs<'a> {
    /// `[T, HK, D]`.
    pub q: &'a [f32],
    /// `[T, HK, D]`.
    pub k: &'a [f32],
    /// `[T, H, E]`.
    pub v: &'a [f32],
    /// `[T, H]`.
    pub decay: &'a [f32],
    /// `[T, H]`.
    pub beta: &'a [f32],
    /// `[T]`.
    pub positions: &'a [i32],
    /// `[T]`.
    pub sequences: &'a [u32],
    /// HK, D, H and E.
    pub sizes: [usize; 4],
}

/// Computes the recurrent form in plain Rust; updates `state`.
///
/// # Panics
/// Panics if the slices' lengths contradict each other.
pub fn reference(inputs: &GatedDeltaInputs<'_>, state: &mut [f32]) -> Vec<f32> {
    let [key_heads, key_dim, heads, value_dim] = inputs.sizes;
    let mut out = vec![0.0; inputs.v.len()];
    let slice = heads * value_dim * key_dim;
    if slice == 0 {
        return out;
    }
    let states = state.len() / slice;
    let tokens: Vec<(Token, usize)> = recurrence::tokens(inputs.positions, inputs.sequences, states).collect();
    for (t, &(token, sequence)) in tokens.iter().enumerate() {
        if token == Token::Padding {
            continue;
        }
        let state = &mut state[sequence * slice..][..slice];
        let out = &mut out[t * heads * value_dim..][..heads * value_dim];
        // Rows of all heads' states, one for each value.
        let rows = state.par_chunks_mut(key_dim).zip(out).enumerate();
        rows.with_min_len(min_items(3 * key_dim))
            .for_each(|(row, (state_row, out))| {
                let head = row / value_dim;
                let key_head = t * key_heads + head / (heads / key_heads);
                let (q, k) = (
                    &inputs.q[key_head * key_dim..],
                    &inputs.k[key_head * key_dim..][..key_dim],
                );
                let (decay, beta) = (inputs.decay[t * heads + head], inputs.beta[t * heads + head]);
                for s in state_row.iter_mut() {
                    *s = if token == Token::First { 0.0 } else { *s * decay };
                }
                let delta = beta * (inputs.v[t * heads * value_dim + row] - dot(state_row, k));
                state_row.iter_mut().zip(k).for_each(|(s, k)| *s += delta * k);
                *out = dot(state_row, &q[..key_dim]);
            });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_returns_a_value_for_its_key_until_it_is_overwritten() {
        // One head of two keys and one value. The second token halves the value of key 0 and writes key 1; the third
        // overwrites key 0 with beta 0.5.
        let inputs = GatedDeltaInputs {
            q: &[1.0, 0.0, 1.0, 1.0, 1.0, 0.0],
            k: &[1.0, 0.0, 0.0, 1.0, 1.0, 0.0],
            v: &[8.0, 3.0, 10.0],
            decay: &[0.25, 0.5, 1.0],
            beta: &[1.0, 1.0, 0.5],
            positions: &[0, 1, 2],
            sequences: &[0; 3],
            sizes: [1, 2, 1, 1],
        };
        let mut state = [f32::NAN; 2];
        assert_eq!(reference(&inputs, &mut state), [8.0, 4.0 + 3.0, 7.0]);
        assert_eq!(state, [7.0, 3.0]);
    }
}
