//! The same elements seen differently: no operation here copies unless `contiguous` must.

use refrain_kernels::elementwise::Expression;

use super::axis_of;
use crate::{Array, Layout, Primitive};

impl Array {
    /// The same elements in row-major order with another shape; one extent may be −1 (inferred).
    #[track_caller]
    pub fn reshape(&self, shape: &[isize]) -> Array {
        let known: usize = shape.iter().filter(|&&n| n >= 0).map(|&n| n as usize).product();
        let inferred = if known == 0 { 0 } else { self.count() / known };
        let resolved: Vec<usize> = shape
            .iter()
            .map(|&n| if n < 0 { inferred } else { n as usize })
            .collect();
        let unknown = shape.iter().filter(|&&n| n < 0).count();
        if unknown > 1 || resolved.iter().product::<usize>() != self.count() {
            return Array::invalid(self, "reshape", format!("{:?} does not become {shape:?}", self.shape()));
        }
        self.viewed(Primitive::Reshape, &resolved)
    }

    fn viewed(&self, primitive: Primitive, shape: &[usize]) -> Array {
        if shape == self.shape() && matches!(primitive, Primitive::Reshape | Primitive::Broadcast) {
            return self.clone();
        }
        Array::lazy(primitive, &[self], shape, self.dtype())
    }

    /// Dimensions reordered: result dimension `d` is dimension `axes[d]` of this array.
    #[track_caller]
    pub fn permute(&self, axes: &[usize]) -> Array {
        let mut sorted = axes.to_vec();
        sorted.sort_unstable();
        if sorted != (0..self.rank()).collect::<Vec<_>>() {
            return Array::invalid(
                self,
                "permute",
                format!("{axes:?} does not name each dimension of {:?} once", self.shape()),
            );
        }
        let shape: Vec<usize> = axes.iter().map(|&a| self.shape()[a]).collect();
        self.viewed(Primitive::Permute { axes: axes.to_vec() }, &shape)
    }

    /// Two dimensions exchanged; negative axes count from the last.
    #[track_caller]
    pub fn swap_axes(&self, a: isize, b: isize) -> Array {
        let (Some(a), Some(b)) = (axis_of(self, a), axis_of(self, b)) else {
            return Array::invalid(self, "swap_axes", format!("no axes {a} and {b} in {:?}", self.shape()));
        };
        let mut axes: Vec<usize> = (0..self.rank()).collect();
        axes.swap(a, b);
        self.permute(&axes)
    }

    /// All dimensions in reverse order.
    pub fn transpose(&self) -> Array {
        self.permute(&(0..self.rank()).rev().collect::<Vec<_>>())
    }

    /// Elements `start..stop` along one axis (which may count from the last).
    #[track_caller]
    pub fn slice(&self, axis: isize, start: usize, stop: usize) -> Array {
        self.slice_by(axis, start, stop, 1)
    }

    /// Elements `start, start + step, …` before `stop` along one axis.
    #[track_caller]
    pub fn slice_by(&self, axis: isize, start: usize, stop: usize, step: usize) -> Array {
        let fits = axis_of(self, axis).filter(|&a| start <= stop && stop <= self.shape()[a] && step > 0);
        let Some(axis) = fits else {
            return Array::invalid(
                self,
                "slice",
                format!(
                    "{start}..{stop} by {step} along axis {axis} does not lie in {:?}",
                    self.shape()
                ),
            );
        };
        let rank = self.rank();
        let (mut starts, mut stops, mut steps) = (vec![0; rank], self.shape().to_vec(), vec![1; rank]);
        (starts[axis], stops[axis], steps[axis]) = (start, stop, step);
        let shape = Layout::contiguous(self.shape()).slice(&starts, &stops, &steps).shape;
        self.viewed(
            Primitive::Slice {
                start: starts,
                stop: stops,
                step: steps,
            },
            &shape,
        )
    }

    /// Split into `parts` equal pieces along an axis.
    #[track_caller]
    pub fn split(&self, parts: usize, axis: isize) -> Vec<Array> {
        let n = self.dim(axis);
        if parts == 0 || n % parts != 0 {
            let error = Array::invalid(self, "split", format!("{n} does not divide into {parts} parts"));
            return vec![error; parts];
        }
        let piece = n / parts;
        (0..parts)
            .map(|i| self.slice(axis, i * piece, (i + 1) * piece))
            .collect()
    }

    /// Repeated to a larger shape by NumPy's rules, without a copy.
    #[track_caller]
    pub fn broadcast_to(&self, shape: &[usize]) -> Array {
        match Layout::contiguous(self.shape()).broadcast(shape) {
            Some(_) => self.viewed(Primitive::Broadcast, shape),
            None => Array::invalid(
                self,
                "broadcast_to",
                format!("{:?} does not repeat to {shape:?}", self.shape()),
            ),
        }
    }

    /// A new dimension of extent 1 before `axis` (or at the end, for `axis == rank`).
    #[track_caller]
    pub fn expand_dims(&self, axis: usize) -> Array {
        if axis > self.rank() {
            return Array::invalid(self, "expand_dims", format!("no place {axis} in {:?}", self.shape()));
        }
        let mut shape = self.shape().to_vec();
        shape.insert(axis, 1);
        self.viewed(Primitive::Reshape, &shape)
    }

    /// All dimensions of extent 1 dropped.
    pub fn squeeze(&self) -> Array {
        let shape: Vec<usize> = self.shape().iter().copied().filter(|&n| n != 1).collect();
        self.viewed(Primitive::Reshape, &shape)
    }

    /// A copy in row-major order without gaps.
    pub fn contiguous(&self) -> Array {
        let copy = Expression::cast(self.dtype(), self.dtype());
        Array::lazy(Primitive::Elementwise(copy), &[self], self.shape(), self.dtype())
    }
}
