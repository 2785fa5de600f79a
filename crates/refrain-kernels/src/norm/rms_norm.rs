//! Root-mean-square normalisation of the last dimension.
//!
//! `x` `[.., n]` (f32, f16 or bf16), `weight` `[n]` or none, → `out` `[.., n]`, any float type:
//! `x / sqrt(mean(x²) + eps) · weight`, all in f32 (Zhang and Sennrich, 2019).
//! The last dimension of `x`, `weight` and `out` must be contiguous. Outer dimensions may have any strides, if at most
//! three remain after adjacent ones are merged. NaN and infinities give NaN in their row.

use rayon::prelude::*;

use std::hash::{Hash, Hasher};

use crate::kit::text::{SourceBuilder, address, grid, outer_dimensions, require_float, require_shape};
use crate::kit::threads::min_items;
use crate::{Call, OperandSpec, Push, Traits, Unsupported, tuning};

const OP: &str = "rms_norm";

/// Parameters of a norm within a fused kernel.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Norm {
    /// ε added to the mean square.
    pub eps: f32,
    /// Whether there is a weight.
    pub weighted: bool,
}

impl Hash for Norm {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.eps.to_bits(), self.weighted).hash(state);
    }
}

/// Returns the call that computes `out = x / sqrt(mean(x²) + eps) · weight`. Operands: x 0, weight 1 if there is one,
/// then out.
///
/// # Errors
/// When an operand is not of floats, shapes do not match, the last dimension is not contiguous or more
/// than three outer dimensions remain ([`Unsupported::NeedsContiguous`]), or a size exceeds 32-bit
/// indices.
pub fn call(
    traits: &Traits,
    x: &OperandSpec,
    weight: Option<&OperandSpec>,
    out: &OperandSpec,
    eps: f32,
) -> Result<Call, Unsupported> {
    let out_number = 1 + usize::from(weight.is_some());
    for operand in [Some(x), weight, Some(out)].into_iter().flatten() {
        require_float(OP, operand)?;
    }
    require_shape(OP, "the result", out, &x.layout.shape)?;
    let Some(&columns) = x.layout.shape.last() else {
        let what = "x is a scalar, expected rows".to_string();
        return Err(Unsupported::Size { op: OP, what });
    };
    for (operand, number) in [(x, 0), (out, out_number)] {
        if columns > 1 && operand.layout.strides.last() != Some(&1) {
            return Err(Unsupported::NeedsContiguous {
                op: OP,
                operand: number,
            });
        }
    }
    let outer = outer_dimensions(OP, &[x, out], 1, 3)?;
    let rows = outer.iter().map(|d| d.0 as usize).product::<usize>();
    let mut text = SourceBuilder::new(traits, OP)
        .define("LANE_VALUE", "float")
        .input("x", x.dtype)
        .output("y", out.dtype);
    let mut push = vec![address(OP, 0, x)?, address(OP, out_number, out)?];
    if let Some(weight) = weight {
        require_shape(OP, "the weight", weight, &[columns])?;
        if !weight.layout.is_contiguous() {
            return Err(Unsupported::NeedsContiguous { op: OP, operand: 1 });
        }
        text = text.define("WEIGHT", 1).input("weight", weight.dtype);
        push.push(address(OP, 1, weight)?);
    }
    let (lanes, rows_per_group) = tuning::row_lanes(traits, columns);
    let kernel = text
        .body(include_str!("../kit/lanes.glsl"))
        .body(include_str!("rms_norm.comp"))
        .kernel(vec![(0, lanes * rows_per_group), (3, lanes), (4, rows_per_group)]);
    push.extend([rows as u32, columns as u32].map(Push::U32));
    push.extend([outer[1].0, outer[2].0].map(Push::U32));
    push.extend(
        [0, 1]
            .iter()
            .flat_map(|&i| outer.iter().map(move |d| Push::U32(d.1[i]))),
    );
    push.push(Push::F32(eps));
    let groups = grid(OP, rows.div_ceil(rows_per_group as usize))?;
    Ok(Call { kernel, groups, push })
}

/// Normalises each row of `columns` values of `x`; `weight` is `[columns]`.
///
/// # Panics
/// Panics if `weight` has another length.
pub fn reference(x: &[f32], weight: Option<&[f32]>, eps: f32, columns: usize) -> Vec<f32> {
    if let Some(weight) = weight {
        assert_eq!(weight.len(), columns, "one weight per column");
    }
    let mut out = x.to_vec();
    if columns == 0 {
        return out;
    }
    let rows = out.par_chunks_mut(columns).with_min_len(min_items(columns));
    rows.for_each(|row| {
        let squares: f32 = crate::kit::dot::dot(row, row);
        let norm = (squares / columns as f32 + eps).sqrt();
        row.iter_mut().for_each(|x| *x /= norm);
        if let Some(weight) = weight {
            row.iter_mut().zip(weight).for_each(|(x, w)| *x *= w);
        }
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_scaled_to_unit_root_mean_square() {
        let y = reference(&[3.0, 4.0, 0.0, 0.0], Some(&[1.0, 2.0]), 0.0, 2);
        let norm = 12.5f32.sqrt();
        assert_eq!(y[..2], [3.0 / norm, 4.0 / norm * 2.0]);
        assert!(y[2].is_nan(), "0 / 0 without eps");
        assert_eq!(reference(&[0.0, 0.0], None, 1e-6, 2), [0.0, 0.0]);
        assert!(reference(&[], None, 1e-6, 0).is_empty());
    }
}
