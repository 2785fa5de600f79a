//! Scatter of rows into slots of a state, in slot_row.
//!
//! `rows` `[T, ..row]`, `slots` `[T]` i32, `state` `[N, ..row]` (contiguous, its own dtype, written):
//! `state[slots[t]] = rows[t]`, converted to the state's dtype. A row whose slot is outside 0 … N-1 is
//! skipped. If two rows have the same slot, its contents are unspecified. Rows and state
//! are both floats or both of one integer dtype; rows may have any strides.

use crate::kit::text::{self, SourceBuilder};
use crate::kit::walk::{Walk, check_reach};
use crate::{Call, DType, Layout, OperandSpec, Push, Traits, Unsupported, Values};

const OP: &str = "write_rows";

/// Returns the call for operands `rows`, `slots`, `state`.
///
/// # Errors
/// When dtypes or shapes do not match, the state is not contiguous, or sizes exceed the limits of a kernel.
pub fn call(
    traits: &Traits,
    rows: &OperandSpec,
    slots: &OperandSpec,
    state: &OperandSpec,
) -> Result<Call, Unsupported> {
    check(rows, slots, state)?;
    let row = &rows.layout.shape[1..];
    let width: usize = row.iter().product();
    let over_rows = |layout: Layout| Layout {
        shape: rows.layout.shape.clone(),
        ..layout
    };
    let mut state_strides = Layout::contiguous(&state.layout.shape).strides;
    state_strides[0] = 0;
    let mut slot_strides = vec![0; rows.layout.rank()];
    slot_strides[0] = slots.layout.strides[0];
    let slots_over_rows = over_rows(Layout {
        strides: slot_strides.into(),
        ..slots.layout.clone()
    });
    let state_over_rows = over_rows(Layout {
        strides: state_strides,
        ..state.layout.clone()
    });
    let walk = Walk::new(OP, &[&rows.layout, &slots_over_rows, &state_over_rows])?;
    let count = rows.layout.count();
    let workgroup = traits.workgroup(256);
    let kernel = SourceBuilder::new(traits, OP)
        .input("rows", rows.dtype)
        .input("slots", slots.dtype)
        .output("state", state.dtype)
        .body("#define WALKED 3u\n")
        .body(include_str!("../kit/walk.glsl"))
        .body(include_str!("write_rows.comp"))
        .kernel(vec![(0, workgroup), (5, walk.rank())]);
    Ok(Call {
        kernel,
        groups: text::grid(OP, count.div_ceil(workgroup as usize))?,
        push: vec![
            rows.address(0),
            slots.address(1),
            state.address(2),
            Push::Record(walk.words()),
            Push::U32(count as u32),
            Push::U32(state.layout.shape[0] as u32),
            Push::U32(width as u32),
        ],
    })
}

fn check(rows: &OperandSpec, slots: &OperandSpec, state: &OperandSpec) -> Result<(), Unsupported> {
    text::require_dtype(OP, slots, DType::I32)?;
    if rows.dtype != state.dtype && !(rows.dtype.is_float() && state.dtype.is_float()) {
        return Err(Unsupported::DType {
            op: OP,
            dtype: rows.dtype,
        });
    }
    if !state.layout.is_contiguous() {
        return Err(Unsupported::NeedsContiguous { op: OP, operand: 2 });
    }
    let (r, s, n) = (&rows.layout.shape, &slots.layout.shape, &state.layout.shape);
    let fits = !r.is_empty() && !n.is_empty() && r[1..] == n[1..] && s[..] == r[..1];
    if !fits {
        let what = format!("rows of shape {r:?} and slots of shape {s:?} do not match a state of shape {n:?}");
        return Err(Unsupported::Size { op: OP, what });
    }
    check_reach(OP, &state.layout)
}

/// Scatters contiguous values. A row has `width` elements, and `state` holds values of `state_dtype`.
///
/// # Panics
/// Panics if `rows` and `state` have different compute types, or `rows` is not one row per slot.
pub fn reference(rows: &Values, slots: &[i32], width: usize, state_dtype: DType, state: &mut Values) {
    fn write<T: Copy>(rows: &[T], slots: &[i32], width: usize, state: &mut [T]) {
        for (t, &slot) in slots.iter().enumerate() {
            let Ok(slot) = usize::try_from(slot) else {
                continue;
            };
            if let Some(slot_row) = state.get_mut(slot * width..(slot + 1) * width) {
                slot_row.copy_from_slice(&rows[t * width..(t + 1) * width]);
            }
        }
    }
    match (rows.clone().rounded(state_dtype), state) {
        (Values::F32(rows), Values::F32(state)) => write(&rows, slots, width, state),
        (Values::I32(rows), Values::I32(state)) => write(&rows, slots, width, state),
        (Values::U32(rows), Values::U32(state)) => write(&rows, slots, width, state),
        (rows, state) => panic!("{} rows for a state of {}", rows.dtype(), state.dtype()),
    }
}
