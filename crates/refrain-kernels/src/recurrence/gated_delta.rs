//! The gated delta rule: linear attention whose memory is corrected rather than only added to.
//!
//! `q`, `k` `[T, HK, D]`, `v` `[T, H, E]`, `decay`, `beta` `[T, H]`, floats; `positions` `[T]` i32,
//! `sequences` `[T]` u32; `state` `[S, H, E, D]` f32 (updated) → `out` `[T, H, E]`, any float type. Of
//! each sequence and value head h, with key head h / (H / HK), token by token:
//! `M ← decay · M; M ← M + beta · (v − M k) kᵀ; out = M q`, where `M` `[E, D]` is the head's part of the
//! state (Yang et al. 2024, arXiv:2412.06464, eq. 10, transposed). All in f32.
//!
//! Tokens of one sequence stand in order. A token of a sequence beyond S counts as the last one's.
//! Position 0 begins a sequence anew, from zeros, whatever the state held. A token of negative position
//! is padding: it changes no state and results in zeros.

use rayon::prelude::*;

use crate::kit::dot::dot;
use crate::kit::iterations::joined_lanes;
use crate::kit::text::{Text, address, is_wide, outer_strides, require_float, require_shape};
use crate::kit::threads::least_items;
use crate::recurrence::{self, Token};
use crate::tuning::Tuning;
use crate::{Call, OperandSpec, Push, Traits, Unsupported, tuning};

const OP: &str = "gated_delta";

/// The call's operands, numbered in this order; the state is updated.
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
    /// 8: `[T, H, E]`.
    pub out: &'a OperandSpec,
}

/// The call.
///
/// # Errors
/// When dtypes or shapes do not fit, or an operand must be copied first
/// ([`Unsupported::NeedsContiguous`]).
pub fn call(traits: &Traits, operands: &GatedDeltaOperands<'_>) -> Result<Call, Unsupported> {
    call_tuned(tuning::choose(traits), traits, operands)
}

/// [`call`] with a given row of the tuning table, on which not even the bits of results depend.
///
/// # Errors
/// Those of [`call`].
pub fn call_tuned(tuning: &Tuning, traits: &Traits, operands: &GatedDeltaOperands<'_>) -> Result<Call, Unsupported> {
    let GatedDeltaOperands { q, k, v, .. } = *operands;
    let (&[tokens, key_heads, key_dim], &[_, heads, value_dim]) = (&q.layout.shape[..], &v.layout.shape[..]) else {
        let what = format!("q {:?} and v {:?} have no heads", q.layout.shape, v.layout.shape);
        return Err(Unsupported::Size { op: OP, what });
    };
    let HeadShare {
        lanes,
        rows,
        each,
        values,
        tile,
    } = HeadShare::of(tuning, traits, operands)?;
    let sums = values as usize + 1;
    let work = 5 + sums * (2 * each as usize + joined_lanes(traits)) + 4 * each.div_ceil(rows) as usize;
    check(traits, operands, [tokens, key_heads, key_dim, heads, value_dim], work)?;
    let GatedDeltaOperands {
        positions,
        sequences,
        state,
        out,
        ..
    } = *operands;
    let all = [q, k, v, operands.decay, operands.beta, positions, sequences, state, out];
    let mut push = Vec::new();
    for (number, operand) in all.into_iter().enumerate() {
        push.push(address(OP, number, operand)?);
    }
    push.extend([tokens, heads / key_heads, key_dim, value_dim].map(|v| Push::U32(v as u32)));
    for (number, operand) in [(0, q), (1, k), (2, v), (8, out)] {
        push.extend(outer_strides(OP, number, operand)?);
    }
    let text = match lanes < tuning::lanes(traits) {
        true => Text::with_shared_subgroups(traits, OP),
        false => Text::new(traits, OP),
    };
    let mut text = text.define("LANE_VALUE", "vec2");
    let names = ["q", "k", "v", "decay", "beta", "positions", "sequences"];
    for (name, operand) in names.into_iter().zip(all) {
        text = text.input(name, operand.dtype);
    }
    let is_wide = |operand: &OperandSpec| is_wide(operand, &operand.layout.strides[..2]);
    if key_dim.is_multiple_of(4) && is_wide(q) && is_wide(k) {
        text = text.runs("q", q.dtype, 4, true).runs("k", k.dtype, 4, true);
        text = text.flag("KEYS_WIDE", true);
    }
    let kernel = text
        .output("state", state.dtype)
        .output("y", out.dtype)
        .body(include_str!("../kit/lanes.glsl"))
        .body(include_str!("gated_delta.comp"))
        .kernel(vec![
            (0, lanes * rows),
            (3, lanes),
            (4, rows),
            (5, each),
            (6, values),
            (7, tile),
        ]);
    let groups = [
        value_dim.div_ceil((rows * values) as usize),
        heads,
        state.layout.shape[0],
    ];
    if groups.iter().any(|&g| g > 65_535) {
        let what = format!(
            "a state of shape {:?} is more than a dispatch may have",
            state.layout.shape
        );
        return Err(Unsupported::Size { op: OP, what });
    }
    Ok(Call {
        kernel,
        groups: groups.map(|g| g.max(1) as u32),
        push,
    })
}

/// How the work on a head is divided.
struct HeadShare {
    /// Lanes that share a value's memory, and values that a workgroup takes at once.
    lanes: u32,
    rows: u32,
    /// Keys of a lane, and values that it takes one after another.
    each: u32,
    values: u32,
    /// Tokens that a workgroup brings at once.
    tile: u32,
}

impl HeadShare {
    fn of(tuning: &Tuning, traits: &Traits, operands: &GatedDeltaOperands<'_>) -> Result<HeadShare, Unsupported> {
        let &[tokens, _, key_dim] = &operands.q.layout.shape[..] else {
            unreachable!("looked at before")
        };
        let whole = tuning::lanes(traits);
        let lanes = match traits.exchanges_lanes() {
            true => tuning.delta.lanes.min(whole),
            false => whole,
        };
        let rows = (traits.workgroup(128) / lanes).max(1);
        let each = 4 * key_dim.div_ceil(4 * lanes as usize) as u32;
        let states = operands.state.layout.shape.first().copied().unwrap_or(0);
        // Of more tokens than there are sequences, one has several.
        let values = match tokens > states && tokens >= tuning.delta.least_tokens {
            true => tuning.delta.values,
            false => 1,
        };
        // Floats of a token that lie in shared memory, beside those of the rows' sums.
        let shared = 2 * each as usize * lanes as usize + (rows * values) as usize + 4;
        let room = (traits.shared_bytes / 4 - 2 * lanes * rows - 4) as usize;
        let tiles = std::iter::successors(Some(tuning.delta.tile), |tile| Some(tile / 2));
        let tile = tiles
            .take_while(|tile| *tile > 0)
            .find(|tile| *tile as usize * shared <= room);
        let Some(tile) = tile else {
            let what = format!("keys of {key_dim} values are more than a workgroup shares");
            return Err(Unsupported::Size { op: OP, what });
        };
        Ok(HeadShare {
            lanes,
            rows,
            each,
            values,
            tile,
        })
    }
}

/// `work` is how often a token makes an invocation loop.
fn check(
    traits: &Traits,
    operands: &GatedDeltaOperands<'_>,
    [tokens, key_heads, key_dim, heads, value_dim]: [usize; 5],
    work: usize,
) -> Result<(), Unsupported> {
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
        let what = format!("{heads} value heads do not share {key_heads} key heads of {key_dim} values");
        return Err(Unsupported::Size { op: OP, what });
    }
    require_shape(OP, "k", k, &[tokens, key_heads, key_dim])?;
    require_shape(OP, "v", v, &[tokens, heads, value_dim])?;
    require_shape(OP, "the decay", decay, &[tokens, heads])?;
    require_shape(OP, "beta", beta, &[tokens, heads])?;
    require_shape(OP, "the result", out, &[tokens, heads, value_dim])?;
    let part = [heads, value_dim, key_dim];
    recurrence::check(OP, traits, [positions, sequences, state], 5, [tokens, work], &part)?;
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

/// What [`reference()`] reads, gapless.
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

/// The same in plain Rust; `state` is updated.
///
/// # Panics
/// When a slice is not as long as the others ask for.
pub fn reference(inputs: &GatedDeltaInputs<'_>, state: &mut [f32]) -> Vec<f32> {
    let [key_heads, key_dim, heads, value_dim] = inputs.sizes;
    let mut out = vec![0.0; inputs.v.len()];
    let part = heads * value_dim * key_dim;
    if part == 0 {
        return out;
    }
    let states = state.len() / part;
    let tokens: Vec<(Token, usize)> = recurrence::tokens(inputs.positions, inputs.sequences, states).collect();
    for (t, &(token, sequence)) in tokens.iter().enumerate() {
        if token == Token::Padding {
            continue;
        }
        let state = &mut state[sequence * part..][..part];
        let out = &mut out[t * heads * value_dim..][..heads * value_dim];
        // Rows of all heads' memories, one for each value.
        let rows = state.par_chunks_mut(key_dim).zip(out).enumerate();
        rows.with_min_len(least_items(3 * key_dim))
            .for_each(|(row, (memory, out))| {
                let head = row / value_dim;
                let key_head = t * key_heads + head / (heads / key_heads);
                let (q, k) = (
                    &inputs.q[key_head * key_dim..],
                    &inputs.k[key_head * key_dim..][..key_dim],
                );
                let (decay, beta) = (inputs.decay[t * heads + head], inputs.beta[t * heads + head]);
                for m in memory.iter_mut() {
                    *m = if token == Token::First { 0.0 } else { *m * decay };
                }
                let delta = beta * (inputs.v[t * heads * value_dim + row] - dot(memory, k));
                memory.iter_mut().zip(k).for_each(|(m, k)| *m += delta * k);
                *out = dot(memory, &q[..key_dim]);
            });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_again_under_its_key_and_replaced_by_the_next() {
        // One head of two keys and one value: the second token halves what the first left under key 0 and
        // writes key 1; the third overwrites key 0 by half.
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
