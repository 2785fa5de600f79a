//! Choosing slices by index.

use std::hash::{Hash, Hasher};

use refrain_kernels::take;

use super::{Caller, axis_of};
use crate::operation::{ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, exactly};
use crate::{Array, DType};

/// (table, indices) → slices of the table along an axis, which the indices replace.
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
        let [table, indices] = exactly(inputs)?;
        if self.axis >= table.rank() || !is_index(indices.dtype) {
            let (axis, shape) = (self.axis, &table.shape);
            return Err(format!("{indices} does not index axis {axis} of {shape:?}"));
        }
        let (before, after) = (&table.shape[..self.axis], &table.shape[self.axis + 1..]);
        Ok(vec![ArraySpec {
            shape: [before, &indices.shape, after].concat(),
            dtype: table.dtype,
        }])
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let [table, indices, out] = operands else {
            unreachable!("two inputs and a result")
        };
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
    /// The slices at `indices` (u32 or i32, any shape) along `axis` (negative ones count from the last),
    /// which the shape of `indices` replaces: `[.., n, ..]` → `[.., indices.., ..]`. An index outside
    /// the axis gives zeros. Invalid where there is no such axis, and for other indices.
    #[track_caller]
    pub fn take(&self, indices: &Array, axis: isize) -> Array {
        let operation = Caller::new("take");
        match axis_of(self, axis) {
            Some(axis) => operation.apply(Take { axis }, &[self, indices]),
            None => {
                let (indices_spec, shape) = (indices.spec(), self.shape());
                let what = format!("{indices_spec} does not index axis {axis} of {shape:?}");
                operation.invalid(&[self, indices], what)
            }
        }
    }
}
