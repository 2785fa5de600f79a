//! Joining, splitting, repeating and padding.

use refrain::Array;

use crate::shape::{self, signed};
use crate::{Error, Operand, Result, Value, ops, promote};

fn common(op: &str, values: &[Value]) -> Result<Vec<Value>> {
    let [first, others @ ..] = values else {
        return Err(Error::value(format!("[{op}] No arrays provided for {op}.")));
    };
    let dtype = others
        .iter()
        .fold(first.dtype(), |dtype, value| promote(dtype, value.dtype()));
    values.iter().map(|value| value.cast(dtype)).collect()
}

/// Values joined along an axis; without one, the flattened values.
///
/// # Errors
/// Fails if there are no values, if the axis does not exist, or if other extents differ.
pub fn concatenate(values: &[Value], axis: Option<i64>) -> Result<Value> {
    let values = common("concatenate", values)?;
    let Some(axis) = axis else {
        let flat: Vec<Value> = values
            .iter()
            .map(|value| ops::reshape(value, &[-1]))
            .collect::<Result<_>>()?;
        return concatenate(&flat, Some(0));
    };
    let axis = shape::axis("concatenate", axis, values[0].ndim())?;
    for value in &values {
        let fits = value.ndim() == values[0].ndim()
            && (0..value.ndim()).all(|d| d == axis || value.shape()[d] == values[0].shape()[d]);
        if !fits {
            let message = format!(
                "[concatenate] All the input array dimensions must match exactly except for the concatenation axis. \
                 However, the provided shapes are {} and {}, and the concatenation axis is {axis}.",
                shape::tuple(values[0].shape()),
                shape::tuple(value.shape())
            );
            return Err(Error::value(message));
        }
    }
    if let [only] = &values[..] {
        return Ok(only.clone());
    }
    let arrays: Vec<&Array> = values.iter().map(Value::array).collect();
    values[0].like(refrain::concatenate(&arrays, axis as isize))
}

/// Values of one shape joined along a new axis.
///
/// # Errors
/// Fails if there are no values, if the axis does not exist in the result, or if shapes differ.
pub fn stack(values: &[Value], axis: i64) -> Result<Value> {
    let values = common("stack", values)?;
    if values.iter().any(|value| value.shape() != values[0].shape()) {
        return Err(Error::value("[stack] All arrays must have the same shape."));
    }
    let axis = shape::axis("stack", axis, values[0].ndim() + 1)? as i64;
    let expanded: Vec<Value> = values
        .iter()
        .map(|value| ops::expand_dims(value, &[axis]))
        .collect::<Result<_>>()?;
    concatenate(&expanded, Some(axis))
}

/// How an axis is split.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sections {
    /// Into this many equal parts.
    Count(i64),
    /// Before each of these indices.
    Indices(Vec<i64>),
}

/// Parts of a value along an axis.
///
/// # Errors
/// Fails if the axis does not exist, or cannot be split evenly.
pub fn split(a: &Value, sections: &Sections, axis: i64) -> Result<Vec<Value>> {
    let axis = shape::axis("split", axis, a.ndim())?;
    let n = a.shape()[axis];
    let bounds: Vec<usize> = match sections {
        Sections::Count(count) => {
            let parts = usize::try_from(*count)
                .ok()
                .filter(|&parts| parts > 0 && n.is_multiple_of(parts));
            let parts = parts.ok_or_else(|| {
                Error::value(format!(
                    "[split] Array split does not result in sub arrays with equal size: attempting {count} splits along \
                     axis {axis} for shape {}.",
                    shape::tuple(a.shape())
                ))
            })?;
            (0..=parts).map(|part| part * (n / parts)).collect()
        }
        Sections::Indices(indices) => {
            let clamped = |&index: &i64| {
                let index = if index < 0 { index + n as i64 } else { index };
                index.clamp(0, n as i64) as usize
            };
            [0].into_iter().chain(indices.iter().map(clamped)).chain([n]).collect()
        }
    };
    let part = |pair: &[usize]| {
        let (start, stop) = (pair[0], pair[1].max(pair[0]));
        a.like(a.array().slice(axis as isize, start, stop))
    };
    bounds.windows(2).map(part).collect()
}

/// Each element `repeats` times along an axis; without one, of the flattened value.
///
/// # Errors
/// Fails if the axis does not exist, or if `repeats` is negative.
pub fn repeat(a: &Value, repeats: i64, axis: Option<i64>) -> Result<Value> {
    let repeats =
        usize::try_from(repeats).map_err(|_| Error::value("[repeat] Number of repeats cannot be negative"))?;
    let Some(axis) = axis else {
        return repeat(&ops::reshape(a, &[-1])?, repeats as i64, Some(0));
    };
    let axis = shape::axis("repeat", axis, a.ndim())?;
    let mut wide = a.shape().to_vec();
    wide.insert(axis + 1, repeats);
    let mut shape = a.shape().to_vec();
    shape[axis] *= repeats;
    let repeated = a.array().expand_dims(axis as isize + 1).broadcast_to(&wide);
    a.like(repeated.reshape(&signed(&shape)))
}

/// The whole value repeated along each axis.
///
/// # Errors
/// Fails if a number of repetitions is negative.
pub fn tile(a: &Value, repeats: &[i64]) -> Result<Value> {
    let rank = a.ndim().max(repeats.len());
    let padded = |extents: Vec<usize>| [vec![1; rank - extents.len()], extents].concat();
    let (shape, repeats) = (padded(a.shape().to_vec()), padded(shape::extents("tile", repeats)?));
    let pairs = || shape.iter().zip(&repeats);
    let ones: Vec<usize> = pairs().flat_map(|(&n, _)| [1, n]).collect();
    let wide: Vec<usize> = pairs().flat_map(|(&n, &times)| [times, n]).collect();
    let tiled: Vec<usize> = pairs().map(|(n, times)| n * times).collect();
    let repeated = a.array().reshape(&signed(&ones)).broadcast_to(&wide);
    a.like(repeated.reshape(&signed(&tiled)))
}

/// What stands in the padding.
#[derive(Clone, Debug)]
pub enum Padding {
    /// A constant.
    Constant(Operand),
    /// The nearest element.
    Edge,
}

/// Elements before and after each axis.
///
/// # Errors
/// Fails unless there is one pair, or one for each axis, or if a width is negative.
pub fn pad(a: &Value, widths: &[(i64, i64)], padding: &Padding) -> Result<Value> {
    let widths = if widths.len() == 1 {
        vec![widths[0]; a.ndim()]
    } else {
        widths.to_vec()
    };
    if widths.len() != a.ndim() {
        let message = format!(
            "[pad] Invalid number of padding sizes passed to pad with axes of size {}.",
            a.ndim()
        );
        return Err(Error::value(message));
    }
    if widths.iter().any(|&(before, after)| before < 0 || after < 0) {
        return Err(Error::value("[pad] Invalid padding size: must be non-negative."));
    }
    let mut x = a.clone();
    let is_wider = |(_, widths): &(usize, &(i64, i64))| **widths != (0, 0);
    for (axis, &(before, after)) in widths.iter().enumerate().filter(is_wider) {
        let side = |width: i64, at: usize| -> Result<Value> {
            let mut shape = x.shape().to_vec();
            shape[axis] = width as usize;
            let border = match padding {
                Padding::Constant(value) => value.value_beside(&(&x).into())?.cast(x.dtype())?,
                Padding::Edge => x.like(x.array().slice(axis as isize, at, at + 1))?,
            };
            border.like(border.array().broadcast_to(&shape))
        };
        let n = x.shape()[axis];
        let mut parts = vec![];
        if before > 0 {
            parts.push(side(before, 0)?);
        }
        parts.push(x.clone());
        if after > 0 {
            parts.push(side(after, n.saturating_sub(1))?);
        }
        x = concatenate(&parts, Some(axis as i64))?;
    }
    Ok(x)
}

/// Coordinate grids of vectors. `sparse` keeps extent 1 in the other axes; `xy` swaps the first two axes.
///
/// # Errors
/// Fails if shapes do not broadcast.
pub fn meshgrid(values: &[Value], sparse: bool, xy: bool) -> Result<Vec<Value>> {
    let rank = values.len();
    let axis_of = |number: usize| match number {
        0 | 1 if xy && rank > 1 => 1 - number,
        other => other,
    };
    let mut grids = Vec::with_capacity(rank);
    for (number, value) in values.iter().enumerate() {
        let mut shape = vec![1; rank];
        shape[axis_of(number)] = -1;
        grids.push(ops::reshape(value, &shape)?);
    }
    if sparse {
        Ok(grids)
    } else {
        ops::broadcast_arrays(&grids)
    }
}
