//! Products of tokens with the matrices of their experts. Only the matrices of used experts are read.
//!
//! Inputs: `x` `[T, U, K]` floats, `experts` `[T, U]` u32, and W of E experts as rows `[E·N, K]` (expert by expert),
//! floats or quantised in the resident layout of [`crate::quantised`]. Output: `out` `[T, U, N]` of any float type,
//! `out[t, u, n] = Σ_k x[t, u, k] · W[experts[t, u]·N + n, k]`, accumulated in f32. An expert index out of range gives
//! zeros.
//!
//! With few tokens, each workgroup computes rows for one (token, expert) pair. With many, pairs are sorted by expert
//! for a grouped GEMM on matrix cores; x and the weights are rounded as in a [`crate::projection`] of many tokens.

use super::algorithms::{GatheredGemv, Grouped, cheapest};
use super::problem::{ProjectionProblem, StridedMatrix, WeightPlanes};
use super::routing::Routing;
use super::sources::{QuantMatrix, WeightRows};
use crate::kit::text::{address, is_wide, outer_strides, require_dtype, require_float, require_shape};
use crate::quantised::QuantFormat;
use crate::tuning::{self, Tuning};
use crate::{Call, DType, OperandSpec, Traits, Unsupported};

const OP: &str = "expert_matmul";

/// The experts' matrices: operands from number 2 on.
#[derive(Clone, Copy)]
pub enum Matrices<'a> {
    /// Floats `[E·N, K]`.
    Dense(&'a OperandSpec),
    /// Planes of a quantised matrix: quants, scales and, if the format has them, biases.
    Quantised(QuantFormat, [&'a OperandSpec; 2], Option<&'a OperandSpec>),
}

/// Returns the calls, each of which depends on the one before it, and their workspace, if any: one more operand with
/// arbitrary contents. There are no calls if `out` is empty.
///
/// Operands: x 0, experts 1, the matrices' from 2 on, then out.
///
/// # Errors
/// Fails if dtypes or shapes do not match, if an operand must be copied first ([`Unsupported::NeedsContiguous`]), or if
/// a size exceeds the kernels' limits.
pub fn calls(
    traits: &Traits,
    x: &OperandSpec,
    experts: &OperandSpec,
    matrices: Matrices<'_>,
    out: &OperandSpec,
) -> Result<(Vec<Call>, Option<OperandSpec>), Unsupported> {
    calls_tuned(tuning::choose(traits), traits, [x, experts, out], matrices)
}

/// As [`calls`], with a given row of the tuning table.
///
/// # Errors
/// Those of [`calls`].
pub fn calls_tuned(
    tuning: &Tuning,
    traits: &Traits,
    [x, experts, out]: [&OperandSpec; 3],
    matrices: Matrices<'_>,
) -> Result<(Vec<Call>, Option<OperandSpec>), Unsupported> {
    require_float(OP, x)?;
    require_float(OP, out)?;
    require_dtype(OP, experts, DType::U32)?;
    let (&[tokens, used, columns], &[.., rows]) = (&x.layout.shape[..], &out.layout.shape[..]) else {
        let what = format!("x has shape {:?}, expected three dimensions", x.layout.shape);
        return Err(Unsupported::Size { op: OP, what });
    };
    require_shape(OP, "the experts", experts, &[tokens, used])?;
    require_shape(OP, "the result", out, &[tokens, used, rows])?;
    if out.layout.count() == 0 {
        return Ok((Vec::new(), None));
    }
    let (planes, all_rows) = planes(matrices, columns)?;
    let x_strides = outer_strides(OP, 0, x)?;
    let last = 2 + planes.weights().planes();
    for (number, operand) in [(1, experts), (last, out)] {
        if !operand.layout.is_contiguous() {
            return Err(Unsupported::NeedsContiguous {
                op: OP,
                operand: number,
            });
        }
    }
    if !all_rows.is_multiple_of(rows) {
        let what = format!("{all_rows} rows of all experts are not a multiple of {rows} rows per expert");
        return Err(Unsupported::Size { op: OP, what });
    }
    let grouped = grouped([x, experts, out], &planes, all_rows / rows)?;
    let gathered = GatheredGemv {
        operands: [x, experts, out],
        planes: &planes,
        all_rows,
        x_strides: &x_strides,
    };
    let algorithm = cheapest(&[&grouped, &gathered], tuning, traits).unwrap_or(&gathered);
    let made = algorithm.calls(tuning, traits)?;
    Ok((made.calls, made.workspace))
}

/// The products as one grouped GEMM. The operands are x, the experts and the result.
fn grouped<'a>(
    [x, experts, out]: [&OperandSpec; 3],
    planes: &WeightPlanes<'a>,
    count: usize,
) -> Result<Grouped<'a>, Unsupported> {
    let ([tokens, used, columns], rows) = ([0, 1, 2].map(|d| x.layout.shape[d]), out.layout.shape[2]);
    let strides = &x.layout.strides;
    let between = (used > 1 && strides[1] != 0).then_some(strides[1]);
    let last = 2 + planes.weights().planes();
    let x = StridedMatrix::of(0, x, [strides[0], 1], &[between.unwrap_or(0)])?;
    let out = StridedMatrix::of(last, out, [rows, 1], &[])?;
    let routing = Routing {
        experts: address(OP, 1, experts)?,
        count,
        between: rows,
        used,
        tokens,
        weights: None,
    };
    let problem = ProjectionProblem {
        routing: Some(routing),
        operands: last + 1,
        ..ProjectionProblem::product(1, columns, x, (planes.clone(), rows), out)
    };
    Grouped::new(problem, between)
}

/// Returns the planes of the matrices and their number of rows; each row has `columns` values.
fn planes(matrices: Matrices<'_>, columns: usize) -> Result<(WeightPlanes<'_>, usize), Unsupported> {
    let (planes, shape) = match matrices {
        Matrices::Dense(w) => {
            require_float(OP, w)?;
            let &[rows, found] = &w.layout.shape[..] else {
                let what = format!("the experts have shape {:?}, expected a matrix", w.layout.shape);
                return Err(Unsupported::Size { op: OP, what });
            };
            if !w.layout.is_contiguous() {
                return Err(Unsupported::NeedsContiguous { op: OP, operand: 2 });
            }
            let planes = WeightPlanes::Dense {
                address: address(OP, 2, w)?,
                dtype: w.dtype,
                stride: found,
                wide: found.is_multiple_of(16 / w.dtype.size()) && is_wide(w, &[]),
            };
            (planes, [rows, found])
        }
        Matrices::Quantised(format, [quants, scales], biases) => {
            let weights = QuantMatrix::new(format, 2, quants, scales, biases)?;
            let shape = [weights.rows, weights.columns];
            (WeightPlanes::Quantised(weights), shape)
        }
    };
    if shape[1] != columns {
        let what = format!("the experts' rows have {} values, x has {columns}", shape[1]);
        return Err(Unsupported::Size { op: OP, what });
    }
    Ok((planes, shape[0]))
}

/// CPU reference. `x` `[T, U, K]` and `experts` `[T, U]` are dense; `w` holds the matrices of all experts, of which
/// `rows` rows are used and which start `stride` rows apart. The rows of each expert are read once.
///
/// # Panics
/// Panics if `x` does not have a row for each of `experts`.
pub fn reference(x: &[f32], experts: &[u32], w: &dyn WeightRows, [rows, stride]: [usize; 2]) -> Vec<f32> {
    let k = w.columns();
    let mut out = vec![0.0; experts.len() * rows];
    let mut wanted: Vec<u32> = experts.to_vec();
    wanted.sort_unstable();
    wanted.dedup();
    for expert in wanted {
        let first = expert as usize * stride;
        if first + rows > w.count() {
            continue;
        }
        let pairs: Vec<usize> = (0..experts.len()).filter(|&pair| experts[pair] == expert).collect();
        let x: Vec<f32> = pairs.iter().flat_map(|&pair| &x[pair * k..][..k]).copied().collect();
        let mut products = vec![0.0; pairs.len() * rows];
        w.multiply(&x, first..first + rows, &mut products);
        for (&pair, products) in pairs.iter().zip(products.chunks(rows)) {
            out[pair * rows..][..rows].copy_from_slice(products);
        }
    }
    out
}
