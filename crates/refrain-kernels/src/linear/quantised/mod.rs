//! Products with quantised weight matrices, and lookup of their rows.
//!
//! All formats have one resident layout of dense row-major planes:
//!
//! - `quants` u32 `[N, K·bits/32]`: value `k` of a row is in word `k·bits/32` at bit `(k·bits) % 32`, low bits first.
//!   The plane starts at a multiple of 16 bytes.
//! - `scales` `[N, K/group]` f32, f16 or bf16; u8 if they are exponents; u32 records if they have two levels
//!   ([`ScaleRecords`]).
//! - `biases`, like the scales, if the format has them.
//!
//! K is a multiple of the group size, or of 256 if scales have two levels. `refrain-quant` defines the formats.

pub use super::sources::QuantRows;
pub use refrain_quant::{
    Code, QuantFormat, QuantRecord, RECORD_VALUES, RecordIntegers, ScaleRecords, ScaleType, Scales, UnsupportedFormat,
    records,
};

use super::algorithms::{Gemv, MatrixCoreProduct, ProjectionCalls, ProjectionTile, cheapest};
use super::problem::{ProjectionProblem, StridedMatrix, WeightPlanes};
use super::sources::{QuantMatrix, quant_run};
use crate::kit::text::{SourceBuilder, address, grid, require_float, require_shape};
use crate::tuning::{self, Tuning};
use crate::{Call, DType, Dimensions, Layout, OperandSpec, Push, Traits, Unsupported};

const OP: &str = "quantised";

/// Returns the calls that compute `out[.., t, n] = Σ_k x[.., t, k] · w[n, k]`; none if `out` is empty.
///
/// `x` `[.., T, K]` and `out` `[.., T, N]` are f32, f16 or bf16; their leading dimensions must merge to one. Operands:
/// x 0, quants 1, scales 2, biases 3 if the format has them, then out, the workspace and its tickets. Sums are
/// accumulated in f32 and rounded once when stored. K = 0 gives zeros.
///
/// It is computed as a [`super::projection`] of one section: few tokens by GEMV, more on matrix cores or by tiles.
///
/// # Errors
/// Fails if dtypes or shapes do not match, if an operand must be copied first ([`Unsupported::NeedsContiguous`]), or if
/// a size exceeds 32-bit indices.
pub fn matmul(
    traits: &Traits,
    format: &QuantFormat,
    x: &OperandSpec,
    quants: &OperandSpec,
    scales: &OperandSpec,
    biases: Option<&OperandSpec>,
    out: &OperandSpec,
) -> Result<ProjectionCalls, Unsupported> {
    let weights = QuantMatrix::new(*format, 1, quants, scales, biases)?;
    product(tuning::choose(traits), traits, &weights, x, out)
}

/// As [`matmul`], with a given row of the tuning table.
///
/// # Errors
/// Those of [`matmul`].
#[allow(clippy::too_many_arguments)]
pub fn matmul_tuned(
    tuning: &Tuning,
    traits: &Traits,
    format: &QuantFormat,
    x: &OperandSpec,
    quants: &OperandSpec,
    scales: &OperandSpec,
    biases: Option<&OperandSpec>,
    out: &OperandSpec,
) -> Result<ProjectionCalls, Unsupported> {
    let weights = QuantMatrix::new(*format, 1, quants, scales, biases)?;
    product(tuning, traits, &weights, x, out)
}

/// Views a `[.., columns]` operand as rows. Returns their number and the strides between rows and within a row.
fn as_rows(number: usize, operand: &OperandSpec) -> Result<(usize, usize, usize), Unsupported> {
    let layout = &operand.layout;
    let Some((&columns, outer)) = layout.shape.split_last() else {
        let what = "an operand is a scalar, expected a matrix".to_string();
        return Err(Unsupported::Size { op: OP, what });
    };
    let within = if columns == 1 { 1 } else { layout.strides[outer.len()] };
    let outer = Layout {
        shape: outer.into(),
        strides: Dimensions::from_slice(&layout.strides[..outer.len()]),
        offset: 0,
    };
    let merged = outer.collapsed();
    match merged.rank() {
        0 => Ok((outer.count(), 0, within)),
        1 => Ok((outer.count(), merged.strides[0], within)),
        _ => Err(Unsupported::NeedsContiguous {
            op: OP,
            operand: number,
        }),
    }
}

fn product(
    tuning: &Tuning,
    traits: &Traits,
    weights: &QuantMatrix<'_>,
    x: &OperandSpec,
    out: &OperandSpec,
) -> Result<ProjectionCalls, Unsupported> {
    require_float(OP, x)?;
    require_float(OP, out)?;
    let mut shape = x.layout.shape.clone();
    if shape.pop() != Some(weights.columns) {
        let what = format!(
            "x has shape {:?}, the weights have {} columns",
            x.layout.shape, weights.columns
        );
        return Err(Unsupported::Size { op: OP, what });
    }
    shape.push(weights.rows);
    require_shape(OP, "the result", out, &shape)?;
    if out.layout.count() == 0 {
        return Ok(ProjectionCalls::independent(Vec::new()));
    }
    let out_number = 1 + weights.planes();
    let (tokens, x_stride, x_within) = as_rows(0, x)?;
    let (_, out_stride, out_within) = as_rows(out_number, out)?;
    let rows = StridedMatrix::of(0, x, [x_stride, x_within], &[])?;
    let results = StridedMatrix::of(out_number, out, [out_stride, out_within], &[])?;
    let planes = (WeightPlanes::Quantised(weights.clone()), weights.rows);
    let problem = ProjectionProblem::product(tokens, weights.columns, rows, planes, results);
    let (gemv, matrix, tile) = (Gemv(&problem), MatrixCoreProduct(&problem), ProjectionTile(&problem));
    let algorithm = cheapest(&[&gemv, &matrix, &tile], tuning, traits).unwrap_or(&tile);
    algorithm.calls(tuning, traits)
}

/// Returns the call that dequantises rows: `out[t] = w[indices[t]]`. An index out of range gives zeros.
///
/// `indices` `[T]` is u32 or i32. `out` `[T, K]` has any strides and is f32 (bit-equal to [`QuantRows`]), or f16 or
/// bf16 (rounded from that). Operands: quants 0, scales 1, biases 2 if the format has them, then indices, then out.
///
/// # Errors
/// Those of [`matmul`].
pub fn take_rows(
    traits: &Traits,
    format: &QuantFormat,
    quants: &OperandSpec,
    scales: &OperandSpec,
    biases: Option<&OperandSpec>,
    indices: &OperandSpec,
    out: &OperandSpec,
) -> Result<Call, Unsupported> {
    let weights = QuantMatrix::new(*format, 0, quants, scales, biases)?;
    require_float(OP, out)?;
    if !matches!(indices.dtype, DType::U32 | DType::I32) {
        return Err(Unsupported::DType {
            op: OP,
            dtype: indices.dtype,
        });
    }
    let tokens = indices.layout.count();
    require_shape(OP, "the indices", indices, &[tokens])?;
    require_shape(OP, "the result", out, &[tokens, weights.columns])?;
    let threads = tuning::choose(traits).row_threads;
    let runs = tokens * weights.columns / quant_run(*format);
    let text = SourceBuilder::new(traits, "quantised.take_rows")
        .input("indices", indices.dtype)
        .output("c", out.dtype);
    let kernel = weights
        .declare(text)
        .body(include_str!("take_rows.comp"))
        .kernel(vec![(0, threads), (8, format.group)]);
    let planes = weights.planes();
    let mut push: Vec<Push> = weights.addresses().collect();
    push.push(address(OP, planes, indices)?);
    push.push(address(OP, planes + 1, out)?);
    let [out_stride, out_within] = [out.layout.strides[0], out.layout.strides[1]];
    let sizes = [
        tokens,
        weights.rows,
        weights.columns,
        indices.layout.strides[0],
        out_stride,
        out_within,
    ];
    push.extend(sizes.map(|v| Push::U32(v as u32)));
    Ok(Call {
        kernel,
        groups: grid(OP, runs.div_ceil(threads as usize))?,
        push,
    })
}
