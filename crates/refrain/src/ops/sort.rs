//! Sorting along an axis.

use std::hash::{Hash, Hasher};

use refrain_kernels::sort;

use super::{CallSite, axis_of};
use crate::Array;
use crate::operation::prelude::{
    ArraySpec, HostArray, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, exact_inputs, spec,
};

/// (x) → x sorted along its last dimension.
#[derive(Hash, Debug)]
struct Sort;

impl Operation for Sort {
    fn name(&self) -> &'static str {
        "sort"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let [x] = exact_inputs(inputs)?;
        Ok(vec![(*x).clone()])
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let [x, out] = spec::operands(operands);
        let made = sort::calls(traits, x, out)?;
        Ok(Kernels::with_workspace(made))
    }

    fn reference(&self, step: &HostStep<'_>) {
        step.compute(|inputs| {
            let HostArray { values, shape } = &inputs[0];
            vec![sort::reference(values, shape.last().copied().unwrap_or(1))]
        });
    }

    fn multiplications(&self, operands: &[OperandSpec]) -> u64 {
        // Each step of the sorting network accesses every element.
        let layout = &operands[0].layout;
        let steps = u64::from(layout.shape.last().copied().unwrap_or(1).max(2).ilog2() + 1);
        layout.count() as u64 * steps * (steps + 1) / 2
    }
}

impl Array {
    /// The elements sorted along `axis` (negative axes count from the last) in ascending order, of any dtype. NaN comes
    /// last and -0 before 0. Invalid if there is no such axis.
    ///
    /// ```
    /// # use refrain::{Array, Device};
    /// let x = Array::from_slice(&Device::cpu(), &[3.0f32, 1.0, 2.0, 0.0], &[2, 2]);
    /// assert_eq!(x.sort(0).to_vec::<f32>().unwrap(), [2.0, 0.0, 3.0, 1.0]);
    /// assert_eq!(x.sort(-1).to_vec::<f32>().unwrap(), [1.0, 3.0, 0.0, 2.0]);
    /// ```
    #[track_caller]
    pub fn sort(&self, axis: isize) -> Array {
        let call_site = CallSite::new("sort");
        let Some(axis) = axis_of(self, axis) else {
            return call_site.invalid(&[self], format!("there is no axis {axis} in {:?}", self.shape()));
        };
        let mut axes: Vec<usize> = (0..self.rank()).collect();
        axes.swap(axis, self.rank() - 1);
        let last = call_site.permute(self, &axes);
        let [sorted] = Array::apply(Sort, &[&last]);
        call_site.permute(&sorted, &axes)
    }
}
