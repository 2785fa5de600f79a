//! Concatenation, stacking and padding.

use std::hash::{Hash, Hasher};

use refrain_kernels::elementwise::{self, Expression};

use super::elementwise::promote;
use super::number::{Number, full};
use super::{CallSite, axis_of};
use crate::operation::prelude::{
    ArraySpec, HostInputs, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values, renumber,
};
use crate::{Array, DType};

/// (x0, x1, …), all of one dtype → concatenated along `axis`.
#[derive(Hash, Debug)]
struct Concatenate {
    axis: usize,
}

impl Operation for Concatenate {
    fn name(&self) -> &'static str {
        "concatenate"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let axis = self.axis;
        let [first, others @ ..] = inputs else {
            return Err("there are no arrays to concatenate".to_string());
        };
        let mut joined = (*first).clone();
        for x in others {
            let fits = x.dtype == first.dtype
                && x.rank() == first.rank()
                && (0..x.rank()).all(|d| d == axis || x.shape[d] == first.shape[d]);
            let extent = joined
                .dim(axis)
                .checked_add(x.dim(axis))
                .filter(|_| fits && axis < x.rank());
            let misfit = || format!("{:?} does not fit {:?} along axis {axis}", x.shape, first.shape);
            joined.shape[axis] = extent.ok_or_else(misfit)?;
        }
        Ok(vec![joined])
    }

    /// Copies each input into its part of the result.
    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let (out, inputs) = operands.split_last().expect("there is a result");
        let mut calls = Vec::new();
        let (mut start, mut stop) = (vec![0; out.layout.rank()], out.layout.shape.clone());
        let step = vec![1; out.layout.rank()];
        for (number, x) in inputs.iter().enumerate() {
            stop[self.axis] = start[self.axis] + x.layout.shape[self.axis];
            let part = OperandSpec {
                dtype: out.dtype,
                layout: out.layout.slice(&start, &stop, &step),
            };
            start[self.axis] = stop[self.axis];
            if x.layout.count() == 0 {
                continue;
            }
            let mut call = elementwise::call(traits, &Expression::cast(x.dtype, out.dtype), &[x, &part])?;
            renumber(&mut call, &[number, inputs.len()]);
            calls.push(call);
        }
        Ok(Kernels {
            calls,
            ..Kernels::default()
        })
    }

    fn reference(&self, step: &HostStep<'_>) {
        step.result(|x| concatenated(x, self.axis));
    }

    fn detail(&self) -> String {
        format!(" axis {}", self.axis)
    }
}

fn concatenated(x: &HostInputs<'_>, axis: usize) -> Values {
    fn join<T: Copy>(parts: &[(Vec<T>, usize)], outer: usize) -> Vec<T> {
        let rows = (0..outer).flat_map(|row| {
            parts
                .iter()
                .flat_map(move |(values, width)| &values[row * width..][..*width])
        });
        rows.copied().collect()
    }
    let outer = x.shape(0)[..axis].iter().product();
    macro_rules! joined {
        ($variant:ident) => {{
            let parts = (0..x.count()).map(|n| match x.values(n) {
                Values::$variant(values) => (values, x.shape(n)[axis..].iter().product()),
                _ => unreachable!("concatenated arrays have one dtype"),
            });
            Values::$variant(join(&parts.collect::<Vec<_>>(), outer))
        }};
    }
    match x.dtype(0).compute() {
        DType::F32 => joined!(F32),
        DType::I32 => joined!(I32),
        _ => joined!(U32),
    }
}

/// Concatenates arrays `[.., n₀, ..]`, `[.., n₁, ..]` … along `axis` (negative axes count from the last) →
/// `[.., n₀ + n₁ + …, ..]`, in their promoted dtype. Invalid if there are no arrays, if there is no such axis, or if
/// another extent differs.
#[track_caller]
pub fn concatenate(arrays: &[&Array], axis: isize) -> Array {
    joined(CallSite::new("concatenate"), arrays, axis)
}

/// Stacks arrays of one shape along a new dimension `axis` of the result (negative axes count from its last) →
/// `[.., n, ..]`, in their promoted dtype. Invalid if there are no arrays, if the result has no such dimension, or if
/// shapes differ.
#[track_caller]
pub fn stack(arrays: &[&Array], axis: isize) -> Array {
    let call_site = CallSite::new("stack");
    if let Some(other) = arrays.iter().find(|x| x.shape() != arrays[0].shape()) {
        let what = format!("{:?} cannot be stacked with {:?}", other.shape(), arrays[0].shape());
        return call_site.invalid(arrays, what);
    }
    let expanded: Vec<Array> = arrays.iter().map(|x| call_site.expand_dims(x, axis)).collect();
    joined(call_site, &expanded.iter().collect::<Vec<_>>(), axis)
}

impl Array {
    /// Pads each dimension with `value`; `widths` has the number of elements before and after it: `[n₀, ..]` →
    /// `[before₀ + n₀ + after₀, ..]`. Invalid unless there is a pair for each dimension.
    #[track_caller]
    pub fn pad(&self, widths: &[(usize, usize)], value: impl Into<Number>) -> Array {
        let call_site = CallSite::new("pad");
        if widths.len() != self.rank() {
            let what = format!("{} pairs of widths do not fit {:?}", widths.len(), self.shape());
            return call_site.invalid(&[self], what);
        }
        let value = value.into();
        let mut padded = self.clone();
        for (axis, &(before, after)) in widths.iter().enumerate() {
            let side = |extent: usize| {
                let mut shape = padded.shape().to_vec();
                shape[axis] = extent;
                full(call_site, self.device(), self.dtype(), &shape, value)
            };
            let parts = [(before, side(before)), (1, padded.clone()), (after, side(after))];
            let parts: Vec<&Array> = parts.iter().filter(|part| part.0 > 0).map(|part| &part.1).collect();
            if parts.len() > 1 {
                padded = joined(call_site, &parts, axis as isize);
            }
            if padded.error().is_some() {
                break;
            }
        }
        padded
    }
}

fn joined(call_site: CallSite, arrays: &[&Array], axis: isize) -> Array {
    let [first, ..] = arrays else {
        return call_site.invalid(&[], "there are no arrays to concatenate".to_string());
    };
    let Some(axis) = axis_of(first, axis) else {
        return call_site.invalid(arrays, format!("there is no axis {axis} in {:?}", first.shape()));
    };
    let dtype = arrays.iter().map(|x| x.dtype()).fold(first.dtype(), promote);
    let converted: Vec<Array> = arrays.iter().map(|x| x.astype(dtype)).collect();
    let inputs: Vec<&Array> = converted.iter().collect();
    call_site.apply(Concatenate { axis }, &inputs)
}
