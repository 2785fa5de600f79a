//! Rows combined with rows of an array: a scatter that adds, multiplies or takes extrema.
//!
//! `x` `[N, ..row]`, `rows` `[T, ..row]` of x's dtype, `slots` `[T]` i32 → `out` `[N, ..row]` of x's dtype:
//! `out[n] = x[n] ⊕ rows[t₀] ⊕ rows[t₁] …` for all t with `slots[t] = n`, in the order of t. A row whose slot is outside
//! 0 … N-1 is skipped. Slots may have a stride; the other operands may have any strides.
//!
//! Each result visits all slots, so that the order of the sum, and with it the result, is always the same. This takes
//! N · T comparisons per column: it suits few rows.

use crate::kit::glsl;
use crate::kit::text::{self, SourceBuilder};
use crate::kit::walk::{Walk, check_reach};
use crate::{Call, DType, Layout, OperandSpec, Push, Traits, Unsupported, Values};

const OP: &str = "combine_rows";

/// How rows of one slot are combined.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Combine {
    /// Sum; integers wrap.
    Add,
    /// Product; integers wrap.
    Multiply,
    /// The larger.
    Max,
    /// The smaller.
    Min,
}

impl Combine {
    fn glsl(self) -> &'static str {
        match self {
            Combine::Add => "((a) + (b))",
            Combine::Multiply => "((a) * (b))",
            Combine::Max => "max(a, b)",
            Combine::Min => "min(a, b)",
        }
    }
}

/// Returns the call for operands `x`, `rows`, `slots`, `out`.
///
/// # Errors
/// When dtypes or shapes do not match, or sizes exceed the limits of a kernel.
pub fn call(traits: &Traits, combine: Combine, operands: [&OperandSpec; 4]) -> Result<Call, Unsupported> {
    let [x, rows, slots, out] = operands;
    check(operands)?;
    let shape = &out.layout.shape;
    let width: usize = shape[1..].iter().product();
    let mut row_strides = rows.layout.strides.clone();
    let row_stride = std::mem::replace(&mut row_strides[0], 0);
    let rows_over_out = Layout {
        shape: shape.clone(),
        strides: row_strides,
        offset: rows.layout.offset,
    };
    let walk = Walk::new(OP, &[&x.layout, &rows_over_out, &out.layout])?;
    let count = out.layout.count();
    let workgroup = traits.workgroup(256);
    let kernel = SourceBuilder::new(traits, OP)
        .input("x", x.dtype)
        .input("rows", rows.dtype)
        .input("slots", slots.dtype)
        .output("out", out.dtype)
        .body("#define WALKED 3u\n")
        .body(&format!("#define COMPUTE_TYPE {}\n", glsl::compute_type(out.dtype)))
        .body(&format!("#define COMBINE(a, b) {}\n", combine.glsl()))
        .body(include_str!("../kit/walk.glsl"))
        .body(include_str!("combine_rows.comp"))
        .kernel(vec![(0, workgroup), (5, walk.rank())]);
    Ok(Call {
        kernel,
        groups: text::grid(OP, count.div_ceil(workgroup as usize))?,
        push: vec![
            x.address(0),
            rows.address(1),
            slots.address(2),
            out.address(3),
            Push::Record(walk.words()),
            Push::U32(count as u32),
            Push::U32(width as u32),
            Push::U32(rows.layout.shape[0] as u32),
            Push::U32(row_stride as u32),
            Push::U32(slots.layout.strides[0] as u32),
        ],
    })
}

fn check([x, rows, slots, out]: [&OperandSpec; 4]) -> Result<(), Unsupported> {
    text::require_dtype(OP, slots, DType::I32)?;
    text::require_dtype(OP, rows, x.dtype)?;
    text::require_dtype(OP, out, x.dtype)?;
    text::require_shape(OP, "the result", out, &x.layout.shape)?;
    let (n, r, s) = (&x.layout.shape, &rows.layout.shape, &slots.layout.shape);
    let fits = !n.is_empty() && !r.is_empty() && r[1..] == n[1..] && s[..] == r[..1];
    if !fits {
        let what = format!("rows of shape {r:?} and slots of shape {s:?} do not match an array of shape {n:?}");
        return Err(Unsupported::Size { op: OP, what });
    }
    check_reach(OP, &rows.layout)
}

/// Combines contiguous rows of `width` elements into `x`.
///
/// # Panics
/// Panics if `rows` and `x` have different compute types, or `rows` is not one row per slot.
pub fn reference(combine: Combine, mut x: Values, rows: &Values, slots: &[i32], width: usize) -> Values {
    fn each<T: Copy>(x: &mut [T], rows: &[T], slots: &[i32], width: usize, combine: impl Fn(T, T) -> T) {
        for (t, &slot) in slots.iter().enumerate() {
            let row = usize::try_from(slot).ok();
            let Some(row) = row.and_then(|slot| x.get_mut(slot * width..(slot + 1) * width)) else {
                continue;
            };
            for (value, &other) in row.iter_mut().zip(&rows[t * width..]) {
                *value = combine(*value, other);
            }
        }
    }
    macro_rules! integers {
        ($x:expr, $rows:expr) => {
            match combine {
                Combine::Add => each($x, $rows, slots, width, |a, b| a.wrapping_add(b)),
                Combine::Multiply => each($x, $rows, slots, width, |a, b| a.wrapping_mul(b)),
                Combine::Max => each($x, $rows, slots, width, |a, b| a.max(b)),
                Combine::Min => each($x, $rows, slots, width, |a, b| a.min(b)),
            }
        };
    }
    match (&mut x, rows) {
        (Values::F32(x), Values::F32(rows)) => match combine {
            Combine::Add => each(x, rows, slots, width, |a, b| a + b),
            Combine::Multiply => each(x, rows, slots, width, |a, b| a * b),
            Combine::Max => each(x, rows, slots, width, f32::max),
            Combine::Min => each(x, rows, slots, width, f32::min),
        },
        (Values::I32(x), Values::I32(rows)) => integers!(x, rows),
        (Values::U32(x), Values::U32(rows)) => integers!(x, rows),
        (x, rows) => panic!("{} rows for an array of {}", rows.dtype(), x.dtype()),
    }
    x
}
