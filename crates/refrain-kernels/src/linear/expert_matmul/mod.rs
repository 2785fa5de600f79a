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

mod matrix;

use crate::kit::iterations::{self, joined_lanes, looped};
use crate::kit::text::{Text, address, is_wide, outer_strides, require_dtype, require_float, require_shape};
use crate::matmul::WeightRows;
use crate::projection::WeightPlanes;
use crate::quantised::{self, QuantFormat, QuantMatrix};
use crate::tuning::Tuning;
use crate::{Call, DType, OperandSpec, Push, Traits, Unsupported, tuning};

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
    let product = matrix::GroupedProduct {
        x,
        ids: experts,
        weights: planes.clone(),
        experts: all_rows / rows,
        out,
    };
    if let Some((calls, workspace)) = matrix::calls(tuning, traits, product)? {
        return Ok((calls, Some(workspace)));
    }
    let call = dots(traits, [x, experts, out], &planes, all_rows, x_strides)?;
    Ok((vec![call], None))
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

/// The call of which each workgroup takes rows for one pair of a token and an expert.
fn dots(
    traits: &Traits,
    [x, experts, out]: [&OperandSpec; 3],
    planes: &WeightPlanes<'_>,
    all_rows: usize,
    x_strides: Vec<Push>,
) -> Result<Call, Unsupported> {
    let &[tokens, used, k] = &x.layout.shape[..] else {
        unreachable!("checked");
    };
    let (pairs, rows) = (tokens * used, out.layout.shape[2]);
    if pairs > 65_535 {
        let what = format!("{pairs} products of a token and an expert");
        return Err(Unsupported::Size { op: OP, what });
    }
    let text = Text::new(traits, OP)
        .define("LANE_VALUE", "float")
        .input("x", x.dtype)
        .input("experts", DType::U32)
        .output("y", out.dtype);
    let text = match planes {
        WeightPlanes::Dense { dtype, wide, .. } => {
            // As many elements as fill 16 bytes: what an invocation loads at once.
            let run = 16 / dtype.size();
            let text = text.input("w", *dtype);
            match *wide && is_wide(x, &x.layout.strides[..2]) {
                true => text
                    .define("RUN", run)
                    .runs("x", x.dtype, run, true)
                    .runs("w", *dtype, run, true),
                false => text,
            }
        }
        WeightPlanes::Quantised(weights) => {
            let wide = is_wide(x, &x.layout.strides[..2]);
            let run = quantised::run(weights.format);
            weights.declare(text).runs("x", x.dtype, run, wide)
        }
    };
    let lanes = tuning::lanes(traits);
    let rounds = looped(k.div_ceil(lanes as usize), 0) + joined_lanes(traits);
    iterations::check(OP, traits, rounds, || format!("sums over {k} products"))?;
    let rows_per_group = (traits.workgroup(128) / lanes).max(1);
    let kernel = text
        .body(include_str!("../../kit/lanes.glsl"))
        .body(include_str!("expert_matmul.comp"))
        .kernel(vec![
            (0, lanes * rows_per_group),
            (3, lanes),
            (4, rows_per_group),
            (8, planes.weights().group()),
        ]);
    let mut push = vec![address(OP, 0, x)?, address(OP, 1, experts)?];
    push.extend(planes.addresses());
    push.push(address(OP, push.len(), out)?);
    push.extend([used, all_rows / rows, rows, k].map(|v| Push::U32(v as u32)));
    push.extend(x_strides);
    let groups = [rows.div_ceil(rows_per_group as usize) as u32, pairs as u32, 1];
    Ok(Call { kernel, groups, push })
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
