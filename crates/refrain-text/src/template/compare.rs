//! Which values are equal, which is less, and what contains what.

use std::cmp::Ordering;
use std::rc::Rc;

use super::budget::{Held, deeper, spend, spend_on_bytes};
use super::failure::{Attempt, RenderError};
use super::syntax::Relation;
use super::value::{Datum, DictKey};

/// What a value takes while it is sorted, in bytes.
const RUN: usize = 192;

pub(super) fn holds(left: &Datum, relation: Relation, right: &Datum) -> Attempt<bool> {
    let ordered = |wanted: fn(Ordering) -> bool| Ok(order(left, right)?.is_some_and(wanted));
    match relation {
        Relation::Equal => equal(left, right),
        Relation::Unequal => Ok(!equal(left, right)?),
        Relation::Less => ordered(Ordering::is_lt),
        Relation::LessOrEqual => ordered(Ordering::is_le),
        Relation::Greater => ordered(Ordering::is_gt),
        Relation::GreaterOrEqual => ordered(Ordering::is_ge),
        Relation::In => contains(right, left),
        Relation::NotIn => Ok(!contains(right, left)?),
    }
}

pub(super) fn equal(left: &Datum, right: &Datum) -> Attempt<bool> {
    let _level = deeper()?;
    spend(1)?;
    if let (Some(left), Some(right)) = (left.as_int(), right.as_int()) {
        return Ok(left == right);
    }
    if let (Some(left), Some(right)) = (left.as_float(), right.as_float()) {
        return Ok(left == right);
    }
    match (left, right) {
        (Datum::Undefined, Datum::Undefined) | (Datum::None, Datum::None) => Ok(true),
        (Datum::Text(left), Datum::Text(right)) => {
            spend_on_bytes(left.len().min(right.len()))?;
            Ok(left == right)
        }
        (Datum::List(left), Datum::List(right)) | (Datum::Tuple(left), Datum::Tuple(right)) => {
            if left.len() != right.len() {
                return Ok(false);
            }
            for (left, right) in left.iter().zip(right.iter()) {
                if !equal(left, right)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Datum::Dict(left), Datum::Dict(right)) => {
            if left.entries().len() != right.entries().len() {
                return Ok(false);
            }
            for (key, value) in left.entries() {
                match right.get(&DictKey::of(key)?) {
                    Some(other) if equal(value, other)? => {}
                    _ => return Ok(false),
                }
            }
            Ok(true)
        }
        (Datum::Namespace(left), Datum::Namespace(right)) => Ok(Rc::ptr_eq(left, right)),
        (Datum::Loop(left), Datum::Loop(right)) => Ok(Rc::ptr_eq(left, right)),
        (Datum::Callable(left), Datum::Callable(right)) => Ok(Rc::ptr_eq(left, right)),
        _ => Ok(false),
    }
}

/// Which is less; none of them if one is not a number.
pub(super) fn order(left: &Datum, right: &Datum) -> Attempt<Option<Ordering>> {
    let _level = deeper()?;
    spend(1)?;
    if let (Some(left), Some(right)) = (left.as_int(), right.as_int()) {
        return Ok(Some(left.cmp(&right)));
    }
    if let (Some(left), Some(right)) = (left.as_float(), right.as_float()) {
        return Ok(left.partial_cmp(&right));
    }
    match (left, right) {
        (Datum::Undefined, _) | (_, Datum::Undefined) => Err(RenderError::undefined("")),
        (Datum::Text(left), Datum::Text(right)) => {
            spend_on_bytes(left.len().min(right.len()))?;
            Ok(Some(left.cmp(right)))
        }
        (Datum::List(left), Datum::List(right)) | (Datum::Tuple(left), Datum::Tuple(right)) => {
            for (left, right) in left.iter().zip(right.iter()) {
                if !equal(left, right)? {
                    return order(left, right);
                }
            }
            Ok(Some(left.len().cmp(&right.len())))
        }
        _ => Err(RenderError::invalid(format!(
            "'{}' and '{}' have no order",
            left.kind(),
            right.kind()
        ))),
    }
}

/// `value in container`.
pub(super) fn contains(container: &Datum, value: &Datum) -> Attempt<bool> {
    match (container, value) {
        (Datum::Undefined, _) => Ok(false),
        (Datum::Text(text), Datum::Text(part)) => {
            spend_on_bytes(text.len())?;
            Ok(text.contains(&**part))
        }
        (Datum::Text(_), Datum::Undefined) => Err(RenderError::undefined("")),
        (Datum::Text(_), other) => Err(RenderError::invalid(format!(
            "a string contains strings, not '{}'",
            other.kind()
        ))),
        (Datum::Dict(dict), key) => Ok(dict.get(&DictKey::of(key)?).is_some()),
        (Datum::List(items) | Datum::Tuple(items), value) => {
            for item in items.iter() {
                if equal(item, value)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        (other, _) => Err(RenderError::invalid(format!(
            "'{}' object cannot contain anything",
            other.kind()
        ))),
    }
}

/// Values with what they are ordered by, in order; equal ones stay as they stand.
pub(super) fn sort<T: Clone>(values: Vec<(Datum, T)>) -> Attempt<Vec<T>> {
    let _held = Held::new(values.len().saturating_mul(RUN))?;
    // Merged by hand: comparisons can fail, and numbers that are none have no order.
    let mut runs: Vec<Vec<(Datum, T)>> = values.into_iter().map(|value| vec![value]).collect();
    while runs.len() > 1 {
        let mut merged = Vec::with_capacity(runs.len().div_ceil(2));
        let mut pairs = runs.into_iter();
        while let Some(first) = pairs.next() {
            merged.push(match pairs.next() {
                Some(second) => merge(first, second)?,
                None => first,
            });
        }
        runs = merged;
    }
    Ok(runs
        .pop()
        .unwrap_or_default()
        .into_iter()
        .map(|(_, value)| value)
        .collect())
}

fn merge<T>(first: Vec<(Datum, T)>, second: Vec<(Datum, T)>) -> Attempt<Vec<(Datum, T)>> {
    let mut merged = Vec::with_capacity(first.len() + second.len());
    let (mut first, mut second) = (first.into_iter().peekable(), second.into_iter().peekable());
    while let (Some((left, _)), Some((right, _))) = (first.peek(), second.peek()) {
        match order(right, left)? {
            Some(Ordering::Less) => merged.extend(second.next()),
            _ => merged.extend(first.next()),
        }
    }
    merged.extend(first);
    merged.extend(second);
    Ok(merged)
}
