//! Views: the same elements in another shape or order. Nothing is copied, except by `contiguous`.

use refrain_kernels::elementwise::Expression;
use smallvec::smallvec;

use super::{CallSite, axis_of, resolve_axis};
use crate::{Array, Dimensions, Layout, Primitive, SliceBounds};

impl CallSite {
    /// `x` with another shape of the same number of elements.
    pub(crate) fn reshape(self, x: &Array, shape: &[usize]) -> Array {
        if shape == x.shape() {
            return x.clone();
        }
        self.node(Primitive::Reshape, &[x], shape, x.dtype())
    }

    /// `x` broadcast to `shape`. Invalid if the shapes do not allow it.
    pub(crate) fn broadcast(self, x: &Array, shape: &[usize]) -> Array {
        if shape == x.shape() {
            return x.clone();
        }
        match Layout::contiguous(x.shape()).broadcast(shape) {
            Some(_) => self.node(Primitive::Broadcast, &[x], shape, x.dtype()),
            None => self.invalid(&[x], format!("{:?} does not broadcast to {shape:?}", x.shape())),
        }
    }

    pub(crate) fn permute(self, x: &Array, axes: &[usize]) -> Array {
        let shape: Dimensions = axes.iter().map(|&a| x.shape()[a]).collect();
        self.node(Primitive::Permute { axes: axes.into() }, &[x], &shape, x.dtype())
    }

    /// `x` with a new dimension `axis` of extent 1.
    pub(crate) fn expand_dims(self, x: &Array, axis: isize) -> Array {
        let mut shape = Dimensions::from_slice(x.shape());
        let Some(axis) = resolve_axis(axis, shape.len() + 1) else {
            return self.invalid(&[x], format!("{:?} cannot get a new axis {axis}", x.shape()));
        };
        shape.insert(axis, 1);
        self.reshape(x, &shape)
    }

    fn slice(self, x: &Array, axis: isize, range: [usize; 3]) -> Array {
        let [start, stop, step] = range;
        let fits = axis_of(x, axis).filter(|&a| start <= stop && stop <= x.shape()[a] && step > 0);
        let Some(axis) = fits else {
            let what = format!(
                "{start}..{stop} by {step} along axis {axis} is out of range for {:?}",
                x.shape()
            );
            return self.invalid(&[x], what);
        };
        let rank = x.rank();
        let mut shape = Dimensions::from_slice(x.shape());
        let mut bounds = SliceBounds {
            start: smallvec![0; rank],
            stop: shape.clone(),
            step: smallvec![1; rank],
        };
        shape[axis] = (stop - start).div_ceil(step);
        (bounds.start[axis], bounds.stop[axis]) = (start, stop);
        // A step beyond the end selects the first element only.
        bounds.step[axis] = step.min((stop - start).max(1));
        self.node(Primitive::Slice(Box::new(bounds)), &[x], &shape, x.dtype())
    }
}

impl Array {
    /// The same elements in row-major order with another shape; one extent may be −1, which is inferred from the
    /// others. Invalid if the number of elements differs. Copies only if the elements are not in that order in memory.
    #[track_caller]
    pub fn reshape(&self, shape: &[isize]) -> Array {
        let call_site = CallSite::new("reshape");
        let fail = || call_site.invalid(&[self], format!("{:?} cannot be reshaped to {shape:?}", self.shape()));
        let unknown = shape.iter().filter(|&&n| n < 0).count();
        let extents = shape.iter().filter(|&&n| n >= 0).map(|&n| n as usize);
        let known = extents.clone().try_fold(1usize, usize::checked_mul);
        let Some(known) = known.filter(|_| unknown <= 1 && shape.iter().all(|&n| n >= -1)) else {
            return fail();
        };
        let inferred = self.count().checked_div(known).unwrap_or(0);
        if known * if unknown == 1 { inferred } else { 1 } != self.count() {
            return fail();
        }
        let resolved: Dimensions = shape
            .iter()
            .map(|&n| if n < 0 { inferred } else { n as usize })
            .collect();
        call_site.reshape(self, &resolved)
    }

    /// Reorders dimensions: result dimension `d` is dimension `axes[d]` of this array; negative axes count from the
    /// last. Invalid unless `axes` names each dimension once.
    #[track_caller]
    pub fn permute(&self, axes: &[isize]) -> Array {
        let call_site = CallSite::new("permute");
        let resolved: Dimensions = axes.iter().filter_map(|&axis| axis_of(self, axis)).collect();
        let mut sorted = resolved.clone();
        sorted.sort_unstable();
        if axes.len() != self.rank() || !sorted.into_iter().eq(0..self.rank()) {
            let what = format!("{axes:?} does not name each dimension of {:?} once", self.shape());
            return call_site.invalid(&[self], what);
        }
        call_site.permute(self, &resolved)
    }

    /// Swaps two dimensions; negative axes count from the last. Invalid if there is no such axis.
    #[track_caller]
    pub fn swap_axes(&self, a: isize, b: isize) -> Array {
        let call_site = CallSite::new("swap_axes");
        let (Some(a), Some(b)) = (axis_of(self, a), axis_of(self, b)) else {
            return call_site.invalid(&[self], format!("there are no axes {a} and {b} in {:?}", self.shape()));
        };
        let mut axes: Dimensions = (0..self.rank()).collect();
        axes.swap(a, b);
        call_site.permute(self, &axes)
    }

    /// Reverses the order of the dimensions: `[a, b, ..]` → `[.., b, a]`.
    #[track_caller]
    pub fn transpose(&self) -> Array {
        CallSite::new("transpose").permute(self, &(0..self.rank()).rev().collect::<Dimensions>())
    }

    /// Elements `start..stop` along one axis (negative axes count from the last). Invalid if the range is not within
    /// the axis.
    #[track_caller]
    pub fn slice(&self, axis: isize, start: usize, stop: usize) -> Array {
        CallSite::new("slice").slice(self, axis, [start, stop, 1])
    }

    /// Elements `start, start + step, …` before `stop` along one axis. Invalid as [`Array::slice`], and for step 0.
    #[track_caller]
    pub fn slice_by(&self, axis: isize, start: usize, stop: usize, step: usize) -> Array {
        CallSite::new("slice_by").slice(self, axis, [start, stop, step])
    }

    /// Splits an axis into N equal parts: `let [gate, up] = x.split(-1);`. All are invalid if there is no such axis, or
    /// if its extent is not divisible by N.
    #[track_caller]
    pub fn split<const N: usize>(&self, axis: isize) -> [Array; N] {
        let call_site = CallSite::new("split");
        let n = self.dim(axis);
        std::array::from_fn(|piece| {
            if !n.is_multiple_of(N) {
                return call_site.invalid(
                    &[self],
                    format!(
                        "axis {axis} of {:?} cannot be split evenly into {N} pieces",
                        self.shape()
                    ),
                );
            }
            call_site.slice(self, axis, [piece * (n / N), (piece + 1) * (n / N), 1])
        })
    }

    /// Broadcasts to a larger shape by NumPy's rules, without a copy. Invalid if the rules do not allow it.
    #[track_caller]
    pub fn broadcast_to(&self, shape: &[usize]) -> Array {
        CallSite::new("broadcast_to").broadcast(self, shape)
    }

    /// Adds a dimension of extent 1, which is dimension `axis` of the result; negative axes count from its last.
    /// Invalid if the result has no such dimension.
    #[track_caller]
    pub fn expand_dims(&self, axis: isize) -> Array {
        CallSite::new("expand_dims").expand_dims(self, axis)
    }

    /// Drops all dimensions of extent 1.
    #[track_caller]
    pub fn squeeze(&self) -> Array {
        let shape: Dimensions = self.shape().iter().copied().filter(|&n| n != 1).collect();
        CallSite::new("squeeze").reshape(self, &shape)
    }

    /// A contiguous copy in row-major order. Never needed for correctness: operations read any layout.
    #[track_caller]
    pub fn contiguous(&self) -> Array {
        let copy = Primitive::Elementwise(Expression::cast(self.dtype(), self.dtype()));
        CallSite::new("contiguous").node(copy, &[self], self.shape(), self.dtype())
    }
}
