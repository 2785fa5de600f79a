//! Values with some elements replaced. The value itself never changes.

use refrain::{Array, Combine, Dimensions};
use smallvec::SmallVec;

use super::get::{Integers, selected};
use super::{Index, Item, misfit, resolved};
use crate::ops::{reversed, scattered};
use crate::shape::{broadcast, signed};
use crate::{DType, ErrorKind, Operand, Result, Value, ops};

/// How [`update`] combines an element with the given one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Update {
    /// Sum; of all values of an index that occurs several times.
    Add,
    /// Difference, as [`Update::Add`].
    Subtract,
    /// Product, as [`Update::Add`].
    Multiply,
    /// Quotient, as [`Update::Add`].
    Divide,
    /// The larger.
    Maximum,
    /// The smaller.
    Minimum,
}

/// `a` after `a[items] = value`. If an index occurs several times, any of its values may win. Indices out of range are
/// skipped, and integers out of range if `a` has no elements. A single array of truth values selects the elements where
/// it is true.
///
/// # Errors
/// As [`super::get`]; also fails if `value` does not broadcast to what is replaced.
pub fn set(a: &Value, items: &[Index], value: &Operand) -> Result<Value> {
    let value = value.value_beside(&a.into())?.cast(a.dtype())?;
    if let Some(mask) = mask_of(items) {
        return masked(a, mask, &value);
    }
    let items = match resolved(a, items) {
        // No index is within an axis without elements, but nothing would be replaced either.
        Err(error) if a.size() == 0 && error.kind == ErrorKind::Index => return Ok(a.clone()),
        items => items?,
    };
    if items.iter().any(|item| matches!(item, Item::Many(_))) {
        return scatter(a, &items, &value, None);
    }
    replaced(a, &items, &value)
}

/// `a` with `value` combined into `a[items]`; every occurrence of an index counts. MLX's `a.at[items].add(value)`.
///
/// # Errors
/// As [`set`].
pub fn update(a: &Value, items: &[Index], value: &Operand, update: Update) -> Result<Value> {
    let mut value = value.value_beside(&a.into())?.cast(a.dtype())?;
    let items = resolved(a, items)?;
    if !items.iter().any(|item| matches!(item, Item::Many(_))) {
        let (current, value) = (
            Operand::from(selected(a, &items, Integers::First)?),
            Operand::from(fitted(&value, &shape_of(&items))?),
        );
        let combined = match update {
            Update::Add => ops::add(&current, &value),
            Update::Subtract => ops::subtract(&current, &value),
            Update::Multiply => ops::multiply(&current, &value),
            Update::Divide => ops::divide(&current, &value),
            Update::Maximum => ops::maximum(&current, &value),
            Update::Minimum => ops::minimum(&current, &value),
        };
        return replaced(a, &items, &combined?.cast(a.dtype())?);
    }
    let combine = match update {
        Update::Add => Combine::Add,
        Update::Subtract => {
            value = ops::subtract(&Operand::from(0i64), &value.into())?;
            Combine::Add
        }
        Update::Multiply => Combine::Multiply,
        Update::Divide => {
            value = ops::reciprocal(&value.into())?.cast(a.dtype())?;
            Combine::Multiply
        }
        Update::Maximum => Combine::Max,
        Update::Minimum => Combine::Min,
    };
    scatter(a, &items, &value, Some(combine))
}

/// The array of truth values, if that is the only item.
fn mask_of(items: &[Index]) -> Option<&Value> {
    match items {
        [Index::Array(mask)] | [Index::Array(mask), Index::Ellipsis] if mask.dtype() == DType::Bool => Some(mask),
        _ => None,
    }
}

/// Replaces the elements where a mask over the first axes is true. Several values are taken in order.
fn masked(a: &Value, mask: &Value, value: &Value) -> Result<Value> {
    if mask.ndim() > a.ndim() || a.shape()[..mask.ndim()] != *mask.shape() {
        return Err(misfit(mask.shape(), a.shape()));
    }
    let spread: Vec<i64> = (0..a.ndim())
        .map(|d| if d < mask.ndim() { a.shape()[d] as i64 } else { 1 })
        .collect();
    let over = ops::reshape(mask, &spread)?;
    let rest = &a.shape()[mask.ndim()..];
    if value.ndim() <= rest.len() || value.size() == 1 {
        let value = if value.size() == 1 {
            ops::reshape(value, &[])?
        } else {
            fitted(value, rest)?
        };
        return ops::where_(&over.into(), &value.into(), &a.into());
    }
    // Element number k of the selected ones takes value k.
    let count = ops::cumsum(&ops::flatten(mask, 0, -1)?, None, false, true)?;
    let number = ops::subtract(&count.into(), &Operand::from(1i64))?;
    let taken = ops::take(value, &number, Some(0))?;
    let taken = taken.like(taken.array().reshape(&signed(a.shape())))?;
    ops::where_(&over.into(), &taken.into(), &a.into())
}

/// The shape that items without arrays select.
fn shape_of(items: &[Item]) -> Dimensions {
    let extent = |item: &Item| match item {
        Item::Range { count, .. } => Some(*count),
        Item::New => Some(1),
        Item::One(_) | Item::Many(_) => None,
    };
    items.iter().filter_map(extent).collect()
}

/// A value broadcast to a shape, after leading extents of 1 that are too many.
fn fitted(value: &Value, shape: &[usize]) -> Result<Value> {
    if value.shape() == shape {
        return Ok(value.clone());
    }
    let surplus = value.ndim().saturating_sub(shape.len());
    if value.shape()[..surplus].iter().any(|&n| n != 1) {
        return Err(misfit(value.shape(), shape));
    }
    let kept = value.shape()[surplus..].to_vec();
    if broadcast("broadcast_shapes", &[&kept, shape])? != shape {
        return Err(misfit(value.shape(), shape));
    }
    value.like(value.array().reshape(&signed(&kept)).broadcast_to(shape))
}

/// Replaces what items without arrays select.
fn replaced(a: &Value, items: &[Item], value: &Value) -> Result<Value> {
    let value = fitted(value, &shape_of(items))?;
    let [mut start, mut stop, mut step]: [Dimensions; 3] = Default::default();
    let (mut shape, mut descending) = (SmallVec::<[isize; 4]>::new(), vec![]);
    for item in items {
        let (first, count, by) = match item {
            Item::New => continue,
            Item::One(index) => (*index, 1, 1),
            Item::Range { first, count, step } => (*first, *count, *step),
            Item::Many(_) => unreachable!("there are no arrays of indices"),
        };
        let reach = count.saturating_sub(1) * by.unsigned_abs() as usize;
        let lowest = if by > 0 { first } else { first - reach };
        if by < 0 {
            descending.push(shape.len());
        }
        start.push(lowest);
        stop.push(if count == 0 { lowest } else { lowest + reach + 1 });
        step.push(by.unsigned_abs() as usize);
        shape.push(count as isize);
    }
    let mut part = value.array().reshape(&shape);
    for axis in descending {
        part = reversed(&part, axis);
    }
    a.like(a.array().slice_update(&part, &start, &stop, &step))
}

/// Replaces, or combines with, what items with arrays of indices select.
///
/// Axes at the end that are taken whole make rows. The items, applied to an array of the rows' numbers, give the row of
/// each selected one.
fn scatter(a: &Value, items: &[Item], value: &Value, combine: Option<Combine>) -> Result<Value> {
    let whole = |pair: &(&Item, &usize)| pair.0.is_whole(*pair.1);
    let axes = items.iter().filter(|item| !matches!(item, Item::New));
    let trailing = axes
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
        .zip(a.shape().iter().rev())
        .take_while(whole)
        .count();
    let (outer, row) = a.shape().split_at(a.ndim() - trailing);
    let (rows, width): (usize, usize) = (outer.iter().product(), row.iter().product());
    // New axes among the trailing items stay in the shape of the selection.
    let numbers = Array::arange(a.array().device(), refrain::DType::I32, rows) + 1;
    let numbers = Value::of(numbers.reshape(&signed(outer)))?;
    let mut named = 0;
    let cut = items.iter().position(|item| {
        let is_past = named == outer.len();
        named += usize::from(!matches!(item, Item::New));
        is_past
    });
    let (leading, others) = items.split_at(cut.unwrap_or(items.len()));
    // 0 stands for an index out of range, which the gather answers with zero.
    let selected = selected(&numbers, leading, Integers::First)?;
    let tail: Vec<usize> = others
        .iter()
        .scan(row.iter(), |row, item| {
            Some(if matches!(item, Item::New) {
                1
            } else {
                *row.next().expect("as many as items")
            })
        })
        .collect();
    let value = fitted(value, &[selected.shape(), &tail].concat())?;
    let slots = (selected.array() - 1).reshape(&[-1]);
    let count = selected.size() as isize;
    let values = value.array().reshape(&[count, width as isize]);
    let flat = a.array().reshape(&[rows as isize, width as isize]);
    a.arithmetic(scattered(&flat, &values, &slots, combine).reshape(&signed(a.shape())))
}
