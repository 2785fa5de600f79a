//! Reading by index.

use refrain::Array;

use super::{Index, Item, resolved};
use crate::ops::{broadcast_arrays, reversed, wrapped};
use crate::{DType, Result, Value, ops};

/// `a[items]`. An array of indices out of range gives zeros there.
///
/// # Errors
/// Fails for too many items, integers out of range, and indices that are no integers or do not broadcast.
pub fn get(a: &Value, items: &[Index]) -> Result<Value> {
    let items = resolved(a, items)?;
    selected(a, &items, Integers::AsArrays)
}

/// What integers are beside arrays of indices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Integers {
    /// Arrays of one index, as NumPy has it and MLX when it reads.
    AsArrays,
    /// Removed before the arrays are applied, as MLX has it when it sets.
    First,
}

/// The elements that resolved items select.
pub(super) fn selected(a: &Value, items: &[Item], integers: Integers) -> Result<Value> {
    let has_arrays = items.iter().any(|item| matches!(item, Item::Many(_)));
    let keep_ones = has_arrays && integers == Integers::AsArrays;
    let ranged = ranges(a, items, keep_ones)?;
    if !has_arrays {
        return Ok(ranged);
    }
    // Integers beside arrays are arrays of one index.
    let mut axis = 0;
    let (mut axes, mut indices) = (vec![], vec![]);
    for item in items {
        match item {
            Item::Many(value) => {
                axes.push(axis);
                indices.push(value.clone());
            }
            Item::One(_) if !keep_ones => continue,
            Item::One(index) => {
                axes.push(axis);
                indices.push(Value::full(&[], (*index as i64).into(), DType::I32)?);
            }
            Item::Range { .. } | Item::New => {}
        }
        axis += 1;
    }
    gathered(&ranged, &axes, &indices)
}

/// Applies slices and new axes, and integers unless arrays are to be applied, too.
fn ranges(a: &Value, items: &[Item], keep_ones: bool) -> Result<Value> {
    let mut x = a.array().clone();
    let mut shape: Vec<isize> = vec![];
    let mut axis = 0;
    for item in items {
        match item {
            Item::New => {
                shape.push(1);
                continue;
            }
            Item::Range { first, count, step } => {
                x = ranged(&x, axis, [*first, *count], *step);
                shape.push(*count as isize);
            }
            Item::One(index) if !keep_ones => x = x.slice(axis as isize, *index, index + 1),
            Item::One(_) | Item::Many(_) => shape.push(x.shape()[axis] as isize),
        }
        axis += 1;
    }
    a.like(x.reshape(&shape))
}

/// `count` elements of an axis from `first` on, `step` apart.
fn ranged(x: &Array, axis: usize, [first, count]: [usize; 2], step: i64) -> Array {
    if count == x.shape()[axis] && step == 1 {
        return x.clone();
    }
    if count == 0 {
        return x.slice(axis as isize, 0, 0);
    }
    let reach = (count - 1) * step.unsigned_abs() as usize;
    let lowest = if step > 0 { first } else { first - reach };
    let ascending = x.slice_by(axis as isize, lowest, lowest + reach + 1, step.unsigned_abs() as usize);
    if step > 0 {
        ascending
    } else {
        reversed(&ascending, axis)
    }
}

/// Elements at broadcast indices of some axes. The axes of the indices replace them if they are adjacent, else come
/// first.
fn gathered(x: &Value, axes: &[usize], indices: &[Value]) -> Result<Value> {
    if let ([axis], [index]) = (axes, indices) {
        return ops::take(x, index, Some(*axis as i64));
    }
    let indices = broadcast_arrays(indices)?;
    let shape = indices[0].shape().to_vec();
    let mut flat: Option<Array> = None;
    for (&axis, index) in axes.iter().zip(&indices) {
        let extent = x.shape()[axis];
        let index = wrapped("take", index, extent)?.astype(refrain::DType::I32);
        flat = Some(match flat {
            None => index,
            Some(flat) => flat * extent as i64 + index,
        });
    }
    let flat = flat.expect("there are indices");
    let others = (0..x.ndim()).filter(|d| !axes.contains(d));
    let order: Vec<isize> = axes.iter().copied().chain(others.clone()).map(|d| d as isize).collect();
    let rest: Vec<usize> = others.map(|d| x.shape()[d]).collect();
    let merged: Vec<isize> = [-1].into_iter().chain(rest.iter().map(|&n| n as isize)).collect();
    let taken = if x.size() == 0 {
        Array::zeros(x.array().device(), x.array().dtype(), &[&shape[..], &rest].concat())
    } else {
        x.array().permute(&order).reshape(&merged).take(&flat, 0)
    };
    let adjacent = axes.windows(2).all(|pair| pair[1] == pair[0] + 1);
    if !adjacent {
        return x.like(taken);
    }
    // Behind the axes that stand before the first index.
    let (new, before) = (shape.len(), axes[0]);
    let order: Vec<isize> = (new..new + before)
        .chain(0..new)
        .chain(new + before..taken.rank())
        .map(|d| d as isize)
        .collect();
    x.like(taken.permute(&order))
}
