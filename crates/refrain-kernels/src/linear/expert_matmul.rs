//! Products with the matrices of the experts that each token is routed to, of which alone anything is
//! read.
//!
//! `x` `[T, U, K]` floats, `experts` `[T, U]` u32, W of E experts as rows `[E·N, K]` (those of one expert
//! together), floats or quantised in the resident layout of [`crate::quantised`] → `out` `[T, U, N]`, any
//! float type: `out[t, u, n] = Σ_k x[t, u, k] · W[experts[t, u]·N + n, k]`, in f32. Zeros for an expert that
//! there is not.
//!
//! Of few tokens, each workgroup takes rows for one of them. Of many, matrix cores take them sorted by expert,
//! with x and the weights rounded as in a [`crate::projection`] of many tokens.

use super::algorithms::{GatheredGemv, Grouped, cheapest};
use super::problem::WeightPlanes;
use super::sources::{QuantMatrix, WeightRows};
use crate::kit::text::{address, is_wide, outer_strides, require_dtype, require_float, require_shape};
use crate::quantised::QuantFormat;
use crate::tuning::{self, Tuning};
use crate::{Call, DType, OperandSpec, Traits, Unsupported};

const OP: &str = "expert_matmul";

/// The experts' matrices, as operands from number 2 on.
#[derive(Clone, Copy)]
pub enum Matrices<'a> {
    /// Floats `[E·N, K]`.
    Dense(&'a OperandSpec),
    /// Planes of a quantised matrix: quants, scales and, where the format has them, biases.
    Quantised(QuantFormat, [&'a OperandSpec; 2], Option<&'a OperandSpec>),
}

/// The calls, each depending on the one before it, and the workspace that they need, if any: an operand behind
/// the others, whose contents do not matter. Operands: x 0, experts 1, the matrices' from 2 on, then out. None
/// where `out` is empty.
///
/// # Errors
/// When dtypes or shapes do not fit, an operand must be copied first
/// ([`Unsupported::NeedsContiguous`]), or a size is beyond what a kernel takes.
pub fn calls(
    traits: &Traits,
    x: &OperandSpec,
    experts: &OperandSpec,
    matrices: Matrices<'_>,
    out: &OperandSpec,
) -> Result<(Vec<Call>, Option<OperandSpec>), Unsupported> {
    calls_tuned(tuning::choose(traits), traits, [x, experts, out], matrices)
}

/// [`calls`] with a given row of the tuning table, of x, experts and out.
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
        let what = format!("matrices of {rows} of {all_rows} rows");
        return Err(Unsupported::Size { op: OP, what });
    }
    let grouped = Grouped {
        x,
        ids: experts,
        weights: &planes,
        experts: all_rows / rows,
        out,
    };
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

/// The planes of the matrices, and their rows, of `columns` values each.
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

/// The same in plain Rust: `x` `[T, U, K]` and `experts` `[T, U]`, gapless; `w` the matrices of all
/// experts: of each, `rows` rows are taken, and those of the next begin `between` rows behind its first. Each
/// expert's are read once.
///
/// # Panics
/// When `x` does not have a row for each of `experts`.
pub fn reference(x: &[f32], experts: &[u32], w: &dyn WeightRows, [rows, between]: [usize; 2]) -> Vec<f32> {
    let k = w.columns();
    let mut out = vec![0.0; experts.len() * rows];
    let mut wanted: Vec<u32> = experts.to_vec();
    wanted.sort_unstable();
    wanted.dedup();
    for expert in wanted {
        let first = expert as usize * between;
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
