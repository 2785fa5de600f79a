//! Indexing in all of NumPy's and MLX's forms, as data: `a[..., 1:3, None, i]` is a list of [`Index`] items.

mod get;
mod set;

pub use get::get;
pub use set::{Update, set, update};

use smallvec::SmallVec;

use crate::shape::tuple;
use crate::{DType, Error, ErrorKind, Result, Value};

/// An item between the brackets.
#[derive(Clone, Debug)]
pub enum Index {
    /// `start:stop:step`.
    Slice {
        /// The first index.
        start: Option<i64>,
        /// The index after the last one.
        stop: Option<i64>,
        /// The step, which is not 0.
        step: Option<i64>,
    },
    /// An integer, which removes the axis.
    Int(i64),
    /// An array of indices, or of truth values where [`set`] allows it.
    Array(Value),
    /// `None`: a new axis.
    NewAxis,
    /// `...`: all axes that no other item names.
    Ellipsis,
}

impl Index {
    /// `:`.
    pub const ALL: Index = Index::Slice {
        start: None,
        stop: None,
        step: None,
    };
}

/// What happens to one axis of an array, or a new axis.
#[derive(Clone, Debug)]
enum Item {
    /// `count` elements from `first` on, `step` apart.
    Range { first: usize, count: usize, step: i64 },
    /// One element.
    One(usize),
    /// The elements at these indices.
    Many(Value),
    /// A new axis.
    New,
}

impl Item {
    /// Whether this takes an axis as it is.
    fn is_whole(&self, extent: usize) -> bool {
        matches!(self, Item::Range { first: 0, count, step: 1 } if *count == extent)
    }
}

/// Resolved items. Those of most arrays are stored inline, since programs index some hundred times for a token.
type Items = SmallVec<[Item; 6]>;

/// Items with the ellipsis spelt out, one for each axis, and new axes between them.
fn resolved(a: &Value, items: &[Index]) -> Result<Items> {
    let (mut named, mut ellipses) = (0, 0);
    for item in items {
        match item {
            Index::Ellipsis => ellipses += 1,
            Index::NewAxis => {}
            _ => named += 1,
        }
    }
    let rank = a.ndim();
    if named > rank {
        let message = format!("Too many indices for array with {rank} dimensions.");
        return Err(Error::value(message));
    }
    if ellipses > 1 {
        return Err(Error::value("An index can only have a single ellipsis (...)"));
    }
    let mut made = Items::new();
    let mut extents = a.shape().iter().copied();
    let whole = |extent| Item::Range {
        first: 0,
        count: extent,
        step: 1,
    };
    for item in items {
        match item {
            Index::NewAxis => made.push(Item::New),
            Index::Ellipsis => made.extend(extents.by_ref().take(rank - named).map(whole)),
            _ => {
                let extent = extents.next().expect("there are enough axes");
                made.push(on_axis(item, extent, rank - extents.len() - 1)?);
            }
        }
    }
    made.extend(extents.map(whole));
    Ok(made)
}

/// What an item does to an axis of this extent.
fn on_axis(item: &Index, extent: usize, axis: usize) -> Result<Item> {
    match item {
        Index::Slice { start, stop, step } => range(extent as i64, *start, *stop, step.unwrap_or(1)),
        Index::Int(index) => {
            let wrapped = if *index < 0 { index + extent as i64 } else { *index };
            match usize::try_from(wrapped) {
                Ok(wrapped) if wrapped < extent => Ok(Item::One(wrapped)),
                _ => {
                    let message = format!("Index {index} is out of bounds for axis {axis} with size {extent}.");
                    Err(Error::new(ErrorKind::Index, message))
                }
            }
        }
        Index::Array(indices) if indices.dtype() == DType::Bool => Err(Error::value(
            "Boolean indices are not yet supported for reading; use mx.where.",
        )),
        Index::Array(indices) if indices.dtype().is_integer() => Ok(Item::Many(indices.clone())),
        Index::Array(indices) => {
            let message = format!(
                "Got indices with invalid dtype {}. Indices must be integral.",
                indices.dtype()
            );
            Err(Error::value(message))
        }
        Index::NewAxis | Index::Ellipsis => unreachable!("these name no axis"),
    }
}

/// The elements that a Python slice selects.
fn range(extent: i64, start: Option<i64>, stop: Option<i64>, step: i64) -> Result<Item> {
    if step == 0 {
        return Err(Error::value("slice step cannot be zero"));
    }
    // Bounds of what a bound may be: one before the first element for negative steps.
    let (lowest, highest) = if step > 0 { (0, extent) } else { (-1, extent - 1) };
    let clamped = |bound: i64| {
        let bound = if bound < 0 { bound.saturating_add(extent) } else { bound };
        bound.clamp(lowest, highest)
    };
    let (from, to) = if step > 0 { (0, extent) } else { (extent - 1, -1) };
    let (first, last) = (start.map_or(from, clamped), stop.map_or(to, clamped));
    let count = if step > 0 {
        (last - first).max(0) as u64
    } else {
        (first - last).max(0) as u64
    };
    let count = count.div_ceil(step.unsigned_abs());
    let step = if count < 2 { 1 } else { step };
    let first = if count == 0 { 0 } else { first };
    Ok(Item::Range {
        first: first as usize,
        count: count as usize,
        step,
    })
}

/// The error of values that do not broadcast to what is replaced.
fn misfit(values: &[usize], replaced: &[usize]) -> Error {
    let message = format!(
        "[broadcast_shapes] Shapes {} and {} cannot be broadcast.",
        tuple(values),
        tuple(replaced)
    );
    Error::value(message)
}
