//! The recurrent form: rows of invocations take a sequence's tokens one after another.

use super::{GatedDeltaOperands, GatedDeltaSizes, OP, check};
use crate::kit::iterations::lane_reduction;
use crate::kit::text::{SourceBuilder, address, is_wide, outer_strides};
use crate::recurrence::RecurrenceForm;
use crate::tuning::Tuning;
use crate::{Call, OperandSpec, Push, Traits, Unsupported, tuning};

/// Returns one call for any number of tokens.
///
/// # Errors
/// Those of [`super::calls`].
pub(super) fn call(
    tuning: &Tuning,
    traits: &Traits,
    form: RecurrenceForm,
    operands: &GatedDeltaOperands<'_>,
    sizes: &GatedDeltaSizes,
) -> Result<Call, Unsupported> {
    let &GatedDeltaSizes {
        tokens,
        key_heads,
        key_dim,
        heads,
        value_dim,
        states,
    } = sizes;
    let RecurrentVariant {
        lanes,
        rows,
        each,
        values,
        tile,
    } = RecurrentVariant::of(tuning, traits, sizes)?;
    let sums = values as usize + 1;
    let iterations = 5 + sums * (2 * each as usize + lane_reduction(traits)) + 4 * each.div_ceil(rows) as usize;
    check(traits, operands, sizes, iterations)?;
    let GatedDeltaOperands {
        q, k, v, state, out, ..
    } = *operands;
    let inputs = operands.inputs();
    let mut push = Vec::new();
    let results = (form != RecurrenceForm::StateOnly).then_some(out);
    let all = inputs
        .map(|(_, operand)| operand)
        .into_iter()
        .chain([state])
        .chain(results);
    for (number, operand) in all.enumerate() {
        push.push(address(OP, number, operand)?);
    }
    push.extend([tokens, heads / key_heads, key_dim, value_dim].map(|v| Push::U32(v as u32)));
    let strided = [(0, q), (1, k), (2, v)].into_iter().chain(results.map(|out| (8, out)));
    for (number, operand) in strided {
        push.extend(outer_strides(OP, number, operand)?);
    }
    let text = declarations(traits, form, operands, lanes);
    let kernel = text
        .body(include_str!("../../kit/lanes.glsl"))
        .body(include_str!("recurrent.comp"))
        .kernel(vec![
            (0, lanes * rows),
            (3, lanes),
            (4, rows),
            (5, each),
            (6, values),
            (7, tile),
        ]);
    let groups = [value_dim.div_ceil((rows * values) as usize), heads, states];
    if groups.iter().any(|&g| g > 65_535) {
        let what = format!(
            "a state of shape {:?} exceeds the limits of a dispatch",
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

/// Returns the text that declares the operands of a form.
fn declarations<'t>(
    traits: &'t Traits,
    form: RecurrenceForm,
    operands: &GatedDeltaOperands<'_>,
    lanes: u32,
) -> SourceBuilder<'t> {
    let GatedDeltaOperands { q, k, state, out, .. } = *operands;
    let text = if lanes < tuning::lanes(traits) {
        SourceBuilder::with_shared_subgroups(traits, OP)
    } else {
        SourceBuilder::new(traits, OP)
    };
    let mut text = text
        .define("LANE_VALUE", "vec2")
        .flag("STATE_ONLY", form == RecurrenceForm::StateOnly)
        .flag("RESULTS_ONLY", form == RecurrenceForm::ResultsOnly);
    for (name, operand) in operands.inputs() {
        text = text.input(name, operand.dtype);
    }
    let is_wide = |operand: &OperandSpec| is_wide(operand, &operand.layout.strides[..2]);
    if q.layout.shape[2].is_multiple_of(4) && is_wide(q) && is_wide(k) {
        text = text.runs("q", q.dtype, 4, true).runs("k", k.dtype, 4, true);
        text = text.flag("KEYS_WIDE", true);
    }
    match form {
        RecurrenceForm::Full => text.output("state", state.dtype).output("y", out.dtype),
        RecurrenceForm::StateOnly => text.output("state", state.dtype),
        RecurrenceForm::ResultsOnly => text.input("state", state.dtype).output("y", out.dtype),
    }
}

/// Division of the work on a head.
struct RecurrentVariant {
    /// Lanes that share a value's row of the state, and rows of invocations of a workgroup.
    lanes: u32,
    rows: u32,
    /// Values of a key per lane, and values (rows of the state) that it takes one after another.
    each: u32,
    values: u32,
    /// Tokens that a workgroup loads at once.
    tile: u32,
}

impl RecurrentVariant {
    fn of(tuning: &Tuning, traits: &Traits, sizes: &GatedDeltaSizes) -> Result<RecurrentVariant, Unsupported> {
        let &GatedDeltaSizes {
            tokens,
            key_dim,
            states,
            ..
        } = sizes;
        let subgroup = tuning::lanes(traits);
        let lanes = if traits.exchanges_lanes() {
            tuning.delta.lanes.min(subgroup)
        } else {
            subgroup
        };
        let rows = (traits.workgroup(128) / lanes).max(1);
        let each = 4 * key_dim.div_ceil(4 * lanes as usize) as u32;
        // With more tokens than sequences, some sequence has several.
        let values = if tokens > states && tokens >= tuning.delta.min_tokens {
            tuning.delta.values
        } else {
            1
        };
        // Floats of a token in shared memory, besides those of the rows' reductions.
        let shared = 2 * each as usize * lanes as usize + (rows * values) as usize + 4;
        let room = (traits.shared_bytes / 4 - 2 * lanes * rows - 4) as usize;
        let tiles = std::iter::successors(Some(tuning.delta.tile), |tile| Some(tile / 2));
        let tile = tiles
            .take_while(|tile| *tile > 0)
            .find(|tile| *tile as usize * shared <= room);
        let Some(tile) = tile else {
            let what = format!("keys of {key_dim} values do not fit into shared memory");
            return Err(Unsupported::Size { op: OP, what });
        };
        Ok(RecurrentVariant {
            lanes,
            rows,
            each,
            values,
            tile,
        })
    }
}
