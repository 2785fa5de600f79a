//! Indexing along an axis.

use std::hash::{Hash, Hasher};

use refrain_kernels::take;

use super::{CallSite, axis_of};
use crate::operation::prelude::{
    ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, exact_inputs, spec,
};
use crate::{Array, DType};

/// (table, indices) → slices of the table along an axis; the shape of the indices replaces the axis.
#[derive(Hash, Debug)]
struct Take {
    axis: usize,
}

impl Operation for Take {
    fn name(&self) -> &'static str {
        "take"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let [table, indices] = exact_inputs(inputs)?;
        if self.axis >= table.rank() || !is_index(indices.dtype) {
            let (axis, shape) = (self.axis, &table.shape);
            return Err(format!("{indices} does not index axis {axis} of {shape:?}"));
        }
        let (before, after) = (&table.shape[..self.axis], &table.shape[self.axis + 1..]);
        Ok(vec![ArraySpec::new(
            &[before, &indices.shape, after].concat(),
            table.dtype,
        )])
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let [table, indices, out] = spec::operands(operands);
        Ok(Kernels::one(take::call(traits, table, indices, self.axis, out)?))
    }

    fn reference(&self, step: &HostStep<'_>) {
        step.result(|x| take::reference(&x.values(0), x.shape(0), &x.values(1), self.axis));
    }

    fn detail(&self) -> String {
        format!(" axis {}", self.axis)
    }

    fn rows_read(&self, operands: &[OperandSpec]) -> Option<[usize; 2]> {
        Some([operands[1].layout.count(), operands[0].layout.shape[self.axis]])
    }
}

pub(super) fn is_index(dtype: DType) -> bool {
    matches!(dtype, DType::U32 | DType::I32)
}

impl Array {
    /// The slices at `indices` (u32 or i32, any shape) along `axis` (negative axes count from the last). The shape of
    /// `indices` replaces the axis: `[.., n, ..]` → `[.., indices.., ..]`. An index out of range gives zeros. Invalid
    /// if there is no such axis, or if the indices have another dtype.
    #[track_caller]
    pub fn take(&self, indices: &Array, axis: isize) -> Array {
        let call_site = CallSite::new("take");
        match axis_of(self, axis) {
            Some(axis) => call_site.apply(Take { axis }, &[self, indices]),
            None => {
                let (indices_spec, shape) = (indices.spec(), self.shape());
                let what = format!("{indices_spec} does not index axis {axis} of {shape:?}");
                call_site.invalid(&[self, indices], what)
            }
        }
    }
}
