//! Axes and extents of arguments.

use refrain::Array;

use crate::{Error, Result};

/// Resolves an axis; negative axes count from the last.
pub(crate) fn axis(op: &str, axis: i64, rank: usize) -> Result<usize> {
    let resolved = if axis < 0 { axis + rank as i64 } else { axis };
    match usize::try_from(resolved) {
        Ok(resolved) if resolved < rank => Ok(resolved),
        _ => Err(Error::axis(op, axis, rank)),
    }
}

/// Resolves axes, each of which may be given once; `None` gives all.
pub(crate) fn axes(op: &str, axes: Option<&[i64]>, rank: usize) -> Result<Vec<usize>> {
    let Some(axes) = axes else {
        return Ok((0..rank).collect());
    };
    let mut resolved: Vec<usize> = axes.iter().map(|&a| axis(op, a, rank)).collect::<Result<_>>()?;
    resolved.sort_unstable();
    if resolved.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Error::value(format!("[{op}] Axes {axes:?} are not unique.")));
    }
    Ok(resolved)
}

/// Extents of a new array.
pub(crate) fn extents(op: &str, shape: &[i64]) -> Result<Vec<usize>> {
    let extent = |&n: &i64| {
        usize::try_from(n)
            .map_err(|_| Error::value(format!("[{op}] Negative dimensions are not allowed: {}.", tuple(shape))))
    };
    shape.iter().map(extent).collect()
}

/// The broadcast shape of several shapes by NumPy's rules.
pub(crate) fn broadcast(op: &str, shapes: &[&[usize]]) -> Result<Vec<usize>> {
    let rank = shapes.iter().map(|shape| shape.len()).max().unwrap_or(0);
    let mut result = vec![1; rank];
    for shape in shapes {
        for (extent, &n) in result[rank - shape.len()..].iter_mut().zip(*shape) {
            if *extent == 1 {
                *extent = n;
            } else if n != 1 && n != *extent {
                let shapes: Vec<String> = shapes.iter().map(|shape| tuple(shape)).collect();
                let message = format!("[{op}] Shapes {} cannot be broadcast.", shapes.join(" and "));
                return Err(Error::value(message));
            }
        }
    }
    Ok(result)
}

/// A shape as Python prints it.
pub(crate) fn tuple(shape: &[impl ToString]) -> String {
    let extents: Vec<String> = shape.iter().map(ToString::to_string).collect();
    match &extents[..] {
        [extent] => format!("({extent},)"),
        extents => format!("({})", extents.join(",")),
    }
}

/// `x` with axis `axis` moved to the end.
pub(crate) fn to_last(x: &Array, axis: usize) -> Array {
    let rank = x.rank();
    if axis + 1 == rank {
        return x.clone();
    }
    let order = (0..rank).filter(|&d| d != axis).chain([axis]);
    x.permute(&order.map(|d| d as isize).collect::<Vec<_>>())
}

/// `x` with its last axis moved to `axis`.
pub(crate) fn from_last(x: &Array, axis: usize) -> Array {
    let last = x.rank() - 1;
    if axis == last {
        return x.clone();
    }
    let mut order: Vec<isize> = (0..last as isize).collect();
    order.insert(axis, last as isize);
    x.permute(&order)
}

/// `isize` extents, as the core's `reshape` takes them.
pub(crate) fn signed(shape: &[usize]) -> Vec<isize> {
    shape.iter().map(|&n| n as isize).collect()
}
