//! Triangles and diagonals.

use refrain::Array;

use super::create::tri;
use crate::shape;
use crate::{DType, Error, Number, Result, Value, ops};

/// The elements on and below diagonal `k` of the last two axes, zeros above.
///
/// # Errors
/// Fails if there are fewer than two axes.
pub fn tril(a: &Value, k: i64) -> Result<Value> {
    let mask = triangle("tril", a, k)?;
    a.like(mask.array().select(a.array(), zero(a)?.array()))
}

/// The elements on and above diagonal `k` of the last two axes, zeros below.
///
/// # Errors
/// Fails if there are fewer than two axes.
pub fn triu(a: &Value, k: i64) -> Result<Value> {
    let mask = triangle("triu", a, k - 1)?;
    a.like(mask.array().select(zero(a)?.array(), a.array()))
}

fn triangle(op: &str, a: &Value, k: i64) -> Result<Value> {
    match a.shape() {
        [.., n, m] => tri(*n as i64, *m as i64, k, DType::Bool),
        _ => Err(Error::value(format!("[{op}] array must be at least 2-D"))),
    }
}

fn zero(a: &Value) -> Result<Value> {
    Value::scalar(Number::Int(0), Some(a.dtype()))
}

/// Diagonal `offset` of two axes, as the last axis of the result.
///
/// # Errors
/// Fails if there are fewer than two axes, or if an axis does not exist.
pub fn diagonal(a: &Value, offset: i64, axis1: i64, axis2: i64) -> Result<Value> {
    let rank = a.ndim();
    if rank < 2 {
        let message = format!("[diagonal] Array must have at least two dimensions, but got {rank} dimensions.");
        return Err(Error::value(message));
    }
    let (row, column) = (
        shape::axis("diagonal", axis1, rank)?,
        shape::axis("diagonal", axis2, rank)?,
    );
    if row == column {
        return Err(Error::value("[diagonal] axis1 and axis2 cannot be the same axis"));
    }
    let kept = (0..rank).filter(|&d| d != row && d != column);
    let order: Vec<isize> = kept.chain([row, column]).map(|d| d as isize).collect();
    let x = a.array().permute(&order);
    let (n, m) = (a.shape()[row] as i64, a.shape()[column] as i64);
    let (first_row, first_column) = ((-offset).max(0), offset.max(0));
    let count = (n - first_row).min(m - first_column).max(0) as usize;
    let index = Array::arange(x.device(), refrain::DType::I32, count) * (m + 1) + (first_row * m + first_column);
    let mut flat: Vec<isize> = x.shape()[..rank - 2].iter().map(|&n| n as isize).collect();
    flat.push((n * m) as isize);
    a.like(x.reshape(&flat).take(&index, -1))
}

/// A matrix with this diagonal, or diagonal `k` of a matrix.
///
/// # Errors
/// Fails unless there are one or two axes.
pub fn diag(a: &Value, k: i64) -> Result<Value> {
    match a.ndim() {
        1 => {
            let n = a.size() as i64 + k.abs();
            let on = ops::eye(n, n, k, DType::Bool)?;
            // The element of each row (or column, above the main diagonal).
            let (before, after) = if k < 0 { (-k, 0) } else { (0, k) };
            let zero = ops::Padding::Constant(Number::Int(0).into());
            let rows = ops::pad(a, &[(before, after)], &zero)?.array().reshape(&[-1, 1]);
            a.like(on.array().select(&rows, self::zero(a)?.array()))
        }
        2 => diagonal(a, k, 0, 1),
        rank => Err(Error::value(format!(
            "[diag] array must be 1-D or 2-D, got array with {rank} dimensions."
        ))),
    }
}

/// Sum of a diagonal.
///
/// # Errors
/// As [`diagonal`].
pub fn trace(a: &Value, offset: i64, axis1: i64, axis2: i64, dtype: Option<DType>) -> Result<Value> {
    let diagonal = diagonal(a, offset, axis1, axis2)?;
    let total = ops::sum(&diagonal.cast(dtype.unwrap_or(a.dtype()))?, Some(&[-1]), false)?;
    total.cast(dtype.unwrap_or(total.dtype()))
}
