//! Reduction of the last dimensions to one value.
//!
//! `x` `[..leading, ..reduced]` of any dtype and strides → `out` `[..leading]` of
//! [`output_dtype`], any strides.
//!
//! | op | input | output | of no elements |
//! |---|---|---|---|
//! | `Sum`, `Prod` | floats; `I32`; `U32`, `U8`, `Bool` | the same; `I32`; `U32`, wrapping | 0; 1 |
//! | `Mean` | floats | the same | NaN |
//! | `Max`, `Min` | any dtype | the same; NaN if any is NaN | an error |
//! | `Any`, `All` | any dtype, not 0 is true | `Bool` | false; true |
//!
//! Floats are added and multiplied in f32, in an order that depends only on sizes and the device.

pub mod softmax;

use rayon::prelude::*;

use crate::kit::glsl;
use crate::kit::rows::RowLayout;
use crate::kit::text::SourceBuilder;
use crate::kit::threads::min_items;
use crate::{Call, DType, Layout, OperandSpec, Traits, Unsupported, Values};

const OP: &str = "reduce";

/// A reduction of a row to one value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReduceOp {
    /// The sum.
    Sum,
    /// The sum divided by the number of elements.
    Mean,
    /// The product.
    Prod,
    /// The largest.
    Max,
    /// The smallest.
    Min,
    /// Whether any element is not zero.
    Any,
    /// Whether no element is zero.
    All,
}

impl ReduceOp {
    /// Every op, in the order in which tables list them.
    pub const ALL: [ReduceOp; 7] = [
        ReduceOp::Sum,
        ReduceOp::Mean,
        ReduceOp::Prod,
        ReduceOp::Max,
        ReduceOp::Min,
        ReduceOp::Any,
        ReduceOp::All,
    ];
}

/// Returns the dtype of the result, or `None` if the op does not take `dtype`.
pub fn output_dtype(op: ReduceOp, dtype: DType) -> Option<DType> {
    match op {
        ReduceOp::Sum | ReduceOp::Prod => Some(match dtype {
            DType::U8 | DType::Bool => DType::U32,
            dtype => dtype,
        }),
        ReduceOp::Mean => dtype.is_float().then_some(dtype),
        ReduceOp::Max | ReduceOp::Min => Some(dtype),
        ReduceOp::Any | ReduceOp::All => Some(DType::Bool),
    }
}

/// Operand number of the workspace, after `x` and `out`.
const WORKSPACE: usize = 2;

/// Returns the calls that reduce the last `reduced` dimensions of `x` (operand 0) to `out` (1), each depending on the
/// one before, and the workspace they need, if any (2), whose contents do not matter.
///
/// With few long rows, several workgroups split each row, and a second call combines their partial results.
///
/// # Errors
/// When dtypes or shapes do not match, a maximum or minimum is over no elements, or operands exceed the limits.
pub fn calls(
    traits: &Traits,
    op: ReduceOp,
    x: &OperandSpec,
    reduced: usize,
    out: &OperandSpec,
) -> Result<(Vec<Call>, Option<OperandSpec>), Unsupported> {
    if output_dtype(op, x.dtype) != Some(out.dtype) {
        return Err(Unsupported::DType { op: OP, dtype: x.dtype });
    }
    let rows = RowLayout::new(OP, [&x.layout, &broadcast(out, x, reduced)], reduced)?;
    if rows.columns() == 0 && matches!(op, ReduceOp::Max | ReduceOp::Min) {
        let what = format!("{op:?} of no elements (shape {:?})", x.layout.shape);
        return Err(Unsupported::Size { op: OP, what });
    }
    let combiner = Combiner::of(op, x.dtype);
    let lanes = rows.lanes(traits);
    let parts = rows.splits(traits, lanes);
    if parts == 1 {
        let text = text(traits, op, "");
        let definitions = combiner.definitions(&combiner.lift, &combiner.finish);
        let call = rows.call(text, [x, out], &definitions, BODY, lanes)?;
        return Ok((vec![call], None));
    }
    let shape: Vec<usize> = out.layout.shape.iter().copied().chain([parts]).collect();
    let workspace = OperandSpec::contiguous(combiner.dtype, &shape);
    let split = rows.call_with(
        text(traits, op, ".split"),
        [(x, 0), (&workspace, WORKSPACE)],
        &combiner.definitions(&combiner.lift, "v"),
        BODY,
        lanes,
        [parts, 0],
    )?;
    let partial_rows = RowLayout::new(OP, [&workspace.layout, &broadcast(out, &workspace, 1)], 1)?;
    let combine = partial_rows.call_with(
        text(traits, op, ".combine"),
        [(&workspace, WORKSPACE), (out, 1)],
        &combiner.definitions("v", &combiner.finish),
        BODY,
        partial_rows.lanes(traits),
        [1, rows.columns()],
    )?;
    Ok((vec![split, combine], Some(workspace)))
}

const BODY: &str = include_str!("reduce.comp");

fn text<'t>(traits: &'t Traits, op: ReduceOp, stage: &str) -> SourceBuilder<'t> {
    SourceBuilder::new(traits, &format!("{OP}.{op:?}{stage}").to_lowercase())
}

/// Returns the output's layout, broadcast along the last `reduced` dimensions of `x`.
fn broadcast(out: &OperandSpec, x: &OperandSpec, reduced: usize) -> Layout {
    let kept = x.layout.rank().saturating_sub(reduced);
    Layout {
        shape: [&out.layout.shape[..], &x.layout.shape[kept..]].concat().into(),
        strides: [&out.layout.strides[..], &vec![0; reduced]].concat().into(),
        offset: out.layout.offset,
    }
}

/// GLSL of a reduction: elements are lifted to values of `dtype`, combined, and finished.
struct Combiner {
    dtype: DType,
    identity: &'static str,
    combine: &'static str,
    subgroup: &'static str,
    lift: String,
    finish: String,
}

impl Combiner {
    fn of(op: ReduceOp, dtype: DType) -> Combiner {
        let (float, compute) = (dtype.is_float(), glsl::compute_type(dtype));
        let (identity, combine, subgroup) = match op {
            ReduceOp::Sum | ReduceOp::Mean => ("0", "((a) + (b))", "subgroupAdd"),
            ReduceOp::Prod => ("1", "((a) * (b))", "subgroupMul"),
            _ => ("0", "max(a, b)", "subgroupMax"),
        };
        let of_key = format!("{compute}_of_key");
        let (dtype, lift, finish) = match op {
            ReduceOp::Sum | ReduceOp::Prod if float => (DType::F32, "v".into(), "v".into()),
            ReduceOp::Mean => (DType::F32, "v".into(), "(v) / float(ELEMENTS)".into()),
            ReduceOp::Sum | ReduceOp::Prod => (DType::U32, "uint(v)".into(), format!("{compute}(v)")),
            ReduceOp::Max => (DType::U32, "order_key(v)".into(), format!("{of_key}(v)")),
            ReduceOp::Min if float => (DType::U32, "order_key(-(v))".into(), format!("-{of_key}(v)")),
            ReduceOp::Min => (DType::U32, "~order_key(v)".into(), format!("{of_key}(~(v))")),
            ReduceOp::Any => (DType::U32, format!("uint((v) != {compute}(0))"), "v".into()),
            ReduceOp::All => (DType::U32, format!("uint((v) == {compute}(0))"), "1u - (v)".into()),
        };
        Combiner {
            dtype,
            identity,
            combine,
            subgroup,
            lift,
            finish,
        }
    }

    /// Returns the definitions that `reduce.comp` needs.
    fn definitions(&self, lift: &str, finish: &str) -> String {
        let Combiner {
            identity,
            combine,
            subgroup,
            ..
        } = self;
        let value = glsl::compute_type(self.dtype);
        format!(
            "#define LANE_VALUE {value}\n#define IDENTITY {value}({identity})\n#define COMBINE(a, b) {combine}\n\
             #define SUBGROUP_COMBINE {subgroup}\n#define LIFT(v) {lift}\n#define FINISH(v) {finish}\n{}",
            include_str!("../kit/order.glsl")
        )
    }
}

/// Reduces contiguous values: `rows` rows of `columns`. Floats are accumulated in f64.
///
/// # Panics
/// Panics if the op does not take the values' type, or a maximum or minimum is over no elements.
pub fn reference(op: ReduceOp, x: &Values, rows: usize, columns: usize) -> Values {
    if matches!(op, ReduceOp::Any | ReduceOp::All) {
        let truths = x.cast(DType::Bool);
        let Values::U32(truths) = truths else {
            unreachable!("truth values are unsigned")
        };
        return Values::U32(each_row(&truths, rows, columns, &|row| {
            u32::from(match op {
                ReduceOp::Any => row.contains(&1),
                _ => !row.contains(&0),
            })
        }));
    }
    match x {
        Values::F32(x) => Values::F32(each_row(x, rows, columns, &|row| reduce_floats(op, row))),
        Values::I32(x) => Values::I32(each_row(x, rows, columns, &|row| match op {
            ReduceOp::Sum => row.iter().fold(0i32, |a, &b| a.wrapping_add(b)),
            ReduceOp::Prod => row.iter().fold(1i32, |a, &b| a.wrapping_mul(b)),
            _ => extreme(op, row, i32::max, i32::min),
        })),
        Values::U32(x) => Values::U32(each_row(x, rows, columns, &|row| match op {
            ReduceOp::Sum => row.iter().fold(0u32, |a, &b| a.wrapping_add(b)),
            ReduceOp::Prod => row.iter().fold(1u32, |a, &b| a.wrapping_mul(b)),
            _ => extreme(op, row, u32::max, u32::min),
        })),
    }
}

fn each_row<T: Sync, U: Send>(x: &[T], rows: usize, columns: usize, reduce: &(dyn Fn(&[T]) -> U + Sync)) -> Vec<U> {
    (0..rows)
        .into_par_iter()
        .with_min_len(min_items(columns))
        .map(|row| reduce(&x[row * columns..(row + 1) * columns]))
        .collect()
}

fn reduce_floats(op: ReduceOp, row: &[f32]) -> f32 {
    let sum = || row.iter().map(|&x| f64::from(x)).sum::<f64>();
    match op {
        ReduceOp::Sum => sum() as f32,
        ReduceOp::Mean => (sum() / row.len() as f64) as f32,
        ReduceOp::Prod => row.iter().map(|&x| f64::from(x)).product::<f64>() as f32,
        _ => extreme(
            op,
            row,
            |a, b| if a > b || a.is_nan() { a } else { b },
            |a, b| if a < b || a.is_nan() { a } else { b },
        ),
    }
}

fn extreme<T: Copy>(op: ReduceOp, row: &[T], max: fn(T, T) -> T, min: fn(T, T) -> T) -> T {
    let larger = match op {
        ReduceOp::Max => max,
        ReduceOp::Min => min,
        _ => panic!("{op:?} does not take integers"),
    };
    row.iter().copied().reduce(larger).expect("an element")
}
