//! Softmax of the last dimension.
//!
//! `x` `[.., n]` → `out` `[.., n]`, floats of any kind and strides: `exp(x - max x) / Σ exp(x - max x)`
//! in f32. Mask with large negative numbers or −∞. A row of only −∞ gives NaN, as does a row with +∞ or NaN.

use rayon::prelude::*;

use crate::kit::rows::RowLayout;
use crate::kit::text::{self, SourceBuilder};
use crate::kit::threads::min_items;
use crate::{Call, OperandSpec, Traits, Unsupported};

const OP: &str = "softmax";

/// Returns the call for operands `x`, `out`.
///
/// # Errors
/// When an operand is not of floats, shapes differ, or sizes exceed the limits of a kernel (on
/// Mesa's software drivers, rows of about 80 million elements with workgroups of 1,024).
pub fn call(traits: &Traits, x: &OperandSpec, out: &OperandSpec) -> Result<Call, Unsupported> {
    text::require_float(OP, x)?;
    text::require_float(OP, out)?;
    let rows = RowLayout::new(OP, [&x.layout, &out.layout], 1)?;
    let definitions = concat!("#define LANE_VALUE float\n", include_str!("../kit/transcendental.glsl"));
    rows.call(
        SourceBuilder::new(traits, OP),
        [x, out],
        definitions,
        include_str!("softmax.comp"),
        rows.whole(traits, 3)?,
    )
}

/// Computes the softmax of contiguous rows of `columns` values.
///
/// # Panics
/// Panics if `x` does not hold whole rows.
pub fn reference(x: &[f32], columns: usize) -> Vec<f32> {
    let mut out = x.to_vec();
    if columns == 0 {
        return out;
    }
    assert_eq!(x.len() % columns, 0, "whole rows");
    let rows = out.par_chunks_mut(columns).with_min_len(min_items(columns));
    rows.for_each(|row| {
        let top = row.iter().copied().fold(f32::MIN, f32::max);
        row.iter_mut().for_each(|x| *x = (*x - top).exp());
        let sum: f64 = row.iter().map(|&x| f64::from(x)).sum();
        row.iter_mut().for_each(|x| *x /= sum as f32);
    });
    out
}
