//! Equality, ordering and containment of values.

use std::cmp::Ordering;
use std::rc::Rc;

use super::budget::{MemoryCharge, enter_level, spend, spend_on_bytes};
use super::error::{RenderError, Try};
use super::syntax::Relation;
use super::value::{DictKey, Value};

/// Memory charged for a value while it is sorted, in bytes.
const SORT_BYTES: usize = 192;

pub(super) fn holds(left: &Value, relation: Relation, right: &Value) -> Try<bool> {
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

pub(super) fn equal(left: &Value, right: &Value) -> Try<bool> {
    let _level = enter_level()?;
    spend(1)?;
    if let (Some(left), Some(right)) = (left.as_int(), right.as_int()) {
        return Ok(left == right);
    }
    if let (Some(left), Some(right)) = (left.as_float(), right.as_float()) {
        return Ok(left == right);
    }
    match (left, right) {
        (Value::Undefined, Value::Undefined) | (Value::None, Value::None) => Ok(true),
        (Value::Text(left), Value::Text(right)) => {
            spend_on_bytes(left.len().min(right.len()))?;
            Ok(left == right)
        }
        (Value::List(left), Value::List(right)) | (Value::Tuple(left), Value::Tuple(right)) => {
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
        (Value::Dict(left), Value::Dict(right)) => {
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
        (Value::Namespace(left), Value::Namespace(right)) => Ok(Rc::ptr_eq(left, right)),
        (Value::Loop(left), Value::Loop(right)) => Ok(Rc::ptr_eq(left, right)),
        (Value::Callable(left), Value::Callable(right)) => Ok(Rc::ptr_eq(left, right)),
        _ => Ok(false),
    }
}

/// Orders two values; `None` if one is NaN.
pub(super) fn order(left: &Value, right: &Value) -> Try<Option<Ordering>> {
    let _level = enter_level()?;
    spend(1)?;
    if let (Some(left), Some(right)) = (left.as_int(), right.as_int()) {
        return Ok(Some(left.cmp(&right)));
    }
    if let (Some(left), Some(right)) = (left.as_float(), right.as_float()) {
        return Ok(left.partial_cmp(&right));
    }
    match (left, right) {
        (Value::Undefined, _) | (_, Value::Undefined) => Err(RenderError::undefined("")),
        (Value::Text(left), Value::Text(right)) => {
            spend_on_bytes(left.len().min(right.len()))?;
            Ok(Some(left.cmp(right)))
        }
        (Value::List(left), Value::List(right)) | (Value::Tuple(left), Value::Tuple(right)) => {
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
pub(super) fn contains(container: &Value, value: &Value) -> Try<bool> {
    match (container, value) {
        (Value::Undefined, _) => Ok(false),
        (Value::Text(text), Value::Text(part)) => {
            spend_on_bytes(text.len())?;
            Ok(text.contains(&**part))
        }
        (Value::Text(_), Value::Undefined) => Err(RenderError::undefined("")),
        (Value::Text(_), other) => Err(RenderError::invalid(format!(
            "a string contains strings, not '{}'",
            other.kind()
        ))),
        (Value::Dict(dict), key) => Ok(dict.get(&DictKey::of(key)?).is_some()),
        (Value::List(items) | Value::Tuple(items), value) => {
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

/// Sorts values by their keys. The sort is stable.
pub(super) fn sort<T: Clone>(values: Vec<(Value, T)>) -> Try<Vec<T>> {
    let _held = MemoryCharge::new(values.len().saturating_mul(SORT_BYTES))?;
    // A hand-written merge sort: comparisons can fail, and NaN has no order.
    let mut runs: Vec<Vec<(Value, T)>> = values.into_iter().map(|value| vec![value]).collect();
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

fn merge<T>(first: Vec<(Value, T)>, second: Vec<(Value, T)>) -> Try<Vec<(Value, T)>> {
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
