//! Updates of a slice of an array. The array itself is a value and does not change: the result is a new array.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::CallSite;
use super::scatter::copy;
use crate::operation::prelude::{
    ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, exact_inputs, spec,
};
use crate::{Array, Dimensions, Layout, SliceBounds};

/// (x, part) → x with `x[start:stop:step]` replaced by `part`, which has the same dtype.
#[derive(Clone, Hash, Debug)]
pub struct SliceUpdate {
    bounds: SliceBounds,
    /// The only axis of which a part is replaced, if its elements are adjacent. Where the part starts is no part of a
    /// program's signature.
    moving: Option<usize>,
}

/// A [`SliceUpdate`] as an update of rows: x is `[outer · extent, inner]`, and the part `[outer · count, inner]`. Row
/// `o · count + i` of the part replaces row `o · extent + start + i` of x.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RowsUpdate {
    /// Product of the extents before the axis.
    pub outer: usize,
    /// Extent of the axis.
    pub extent: usize,
    /// Number of replaced elements along the axis.
    pub count: usize,
    /// Product of the extents after the axis.
    pub inner: usize,
}

impl Operation for SliceUpdate {
    fn name(&self) -> &'static str {
        "slice_update"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let [x, part] = exact_inputs(inputs)?;
        let rank = x.rank();
        let SliceBounds { start, stop, step } = &self.bounds;
        let inside = [start, stop, step].iter().all(|bounds| bounds.len() == rank)
            && (0..rank).all(|d| start[d] <= stop[d] && stop[d] <= x.shape[d] && step[d] > 0);
        if !inside {
            return Err(format!("{} is out of range for {:?}", self.bounds, x.shape));
        }
        let updated = self.bounds.of(&Layout::contiguous(&x.shape));
        if updated.shape[..] != part.shape[..] || part.dtype != x.dtype {
            return Err(format!("{part} does not fit the part {:?} of {x}", updated.shape));
        }
        Ok(vec![(*x).clone()])
    }

    fn in_place(&self) -> Option<Arc<dyn Operation>> {
        Some(Arc::new(SliceUpdateInPlace(self.clone())))
    }

    fn has_in_place(&self) -> bool {
        true
    }

    fn lower(&self, _: &Traits, _: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        unreachable!("the pass `overwrite` replaces it")
    }

    fn reference(&self, _: &HostStep<'_>) {
        unreachable!("the pass `overwrite` replaces it")
    }

    fn detail(&self) -> String {
        format!(" {}", self.bounds)
    }
}

/// (x, part) → the next version of x, in which `x[start:stop:step]` is `part`, converted to the dtype of x if both are
/// floats.
#[derive(Debug)]
pub struct SliceUpdateInPlace(SliceUpdate);

impl Operation for SliceUpdateInPlace {
    fn name(&self) -> &'static str {
        "slice_update_in_place"
    }

    fn key(&self, state: &mut dyn Hasher) {
        self.0.key(state);
    }

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let [x, part] = exact_inputs(inputs)?;
        let mut part = part.clone();
        if x.dtype.is_float() && part.dtype.is_float() {
            part.dtype = x.dtype;
        }
        self.0.results(&[x, &part]).map(|_| vec![])
    }

    fn updates(&self) -> &[usize] {
        &[0]
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let [x, part] = spec::operands(operands);
        if part.layout.count() == 0 {
            return Ok(Kernels::default());
        }
        let updated = OperandSpec {
            dtype: x.dtype,
            layout: self.0.bounds.of(&x.layout),
        };
        Ok(Kernels::one(copy(traits, part, &updated, [1, 0])?))
    }

    fn reference(&self, step: &HostStep<'_>) {
        let part = step.read().values(1);
        step.update_part(0, &part, |layout| self.0.bounds.of(layout));
    }

    fn detail(&self) -> String {
        self.0.detail()
    }
}

impl SliceUpdateInPlace {
    /// Whether the part, of this shape, replaces what x begins with.
    pub fn replaces_beginning(&self, shape: &[usize]) -> bool {
        self.0.replaces_beginning(shape)
    }
}

impl SliceUpdate {
    /// Whether all elements of an array of this shape are replaced, in their order.
    pub fn replaces_all(&self, shape: &[usize]) -> bool {
        let SliceBounds { start, stop, step } = &self.bounds;
        (0..shape.len()).all(|d| start[d] == 0 && stop[d] == shape[d] && (step[d] == 1 || shape[d] <= 1))
    }

    /// Whether this replaces what has this shape at the beginning of an array.
    pub fn replaces_beginning(&self, shape: &[usize]) -> bool {
        let SliceBounds { start, stop, step } = &self.bounds;
        start.iter().all(|&start| start == 0) && stop[..] == *shape && step.iter().all(|&step| step == 1)
    }

    /// Hashes what is part of a program's signature.
    pub fn hash_structure<H: Hasher>(&self, state: &mut H) {
        let Self { bounds, moving } = self;
        let SliceBounds { start, stop, step } = bounds;
        (moving, step).hash(state);
        for (axis, (start, stop)) in start.iter().zip(stop).enumerate() {
            (*moving != Some(axis)).then_some(start).hash(state);
            (stop - start).hash(state);
        }
    }

    /// Where the part starts, if that is no part of a program's signature.
    pub fn moving_start(&self) -> Option<i32> {
        self.moving.map(|axis| self.bounds.start[axis] as i32)
    }

    /// Whether a part of this axis is replaced, whose start is no part of a program's signature.
    pub fn moves_along(&self, axis: usize) -> bool {
        self.moving == Some(axis)
    }

    /// The update as one of rows, for an array of this shape. `None` if the start is part of the signature.
    pub fn as_rows(&self, shape: &[usize]) -> Option<RowsUpdate> {
        let axis = self.moving?;
        Some(RowsUpdate {
            outer: shape[..axis].iter().product(),
            extent: shape[axis],
            count: self.bounds.stop[axis] - self.bounds.start[axis],
            inner: shape[axis + 1..].iter().product(),
        })
    }
}

/// The only axis of which `start..stop` by `step` is a part, if its elements are adjacent.
fn moving_axis(shape: &[usize], start: &[usize], stop: &[usize], step: &[usize]) -> Option<usize> {
    let is_partial = |axis: &usize| stop[*axis].saturating_sub(start[*axis]) != shape[*axis];
    let mut partial = (0..shape.len()).filter(is_partial);
    let (axis, others) = (partial.next()?, partial.next());
    let numbered = i32::try_from(shape.iter().product::<usize>()).is_ok();
    let is_moving = others.is_none() && numbered && start[axis] < stop[axis] && step.iter().all(|&step| step == 1);
    is_moving.then_some(axis)
}

impl Array {
    /// This array with the elements `start, start + step, …` before `stop` of each dimension replaced by those of
    /// `part`, which is converted to its dtype and broadcast. Invalid if the bounds are outside a dimension, if a step
    /// is 0, or if `part` does not broadcast.
    ///
    /// ```
    /// # use refrain::{Array, DType, Device};
    /// let x = Array::zeros(&Device::cpu(), DType::I32, &[5]);
    /// let y = x.slice_update(&Array::full(&Device::cpu(), DType::I32, &[], 7), &[1], &[5], &[2]);
    /// assert_eq!(y.to_vec::<i32>().unwrap(), [0, 7, 0, 7, 0]);
    /// ```
    #[track_caller]
    pub fn slice_update(&self, part: &Array, start: &[usize], stop: &[usize], step: &[usize]) -> Array {
        let call_site = CallSite::new("slice_update");
        let extents = || start.iter().zip(stop).zip(step);
        if [start, stop, step].iter().any(|bounds| bounds.len() != self.rank()) || step.contains(&0) {
            let what = format!("{start:?}..{stop:?} by {step:?} is out of range for {:?}", self.shape());
            return call_site.invalid(&[self, part], what);
        }
        let shape: Dimensions = extents()
            .map(|((start, stop), step)| stop.saturating_sub(*start).div_ceil(*step))
            .collect();
        let part = call_site.broadcast(&part.astype(self.dtype()), &shape);
        // A step beyond the end selects one element.
        let step = extents().map(|((start, stop), step)| (*step).min((stop.saturating_sub(*start)).max(1)));
        let step: Dimensions = step.collect();
        let update = SliceUpdate {
            moving: moving_axis(self.shape(), start, stop, &step),
            bounds: SliceBounds {
                start: start.into(),
                stop: stop.into(),
                step,
            },
        };
        call_site.apply(update, &[self, &part])
    }
}
