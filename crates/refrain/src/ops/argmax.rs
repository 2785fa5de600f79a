//! The index of the largest element.

use std::hash::Hasher;

use refrain_kernels::argmax;

use super::CallSite;
use crate::operation::prelude::{
    ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values, exact_inputs, spec,
};
use crate::{Array, DType};

/// (x) → index (u32) of the largest value along the last dimension.
#[derive(Debug)]
struct ArgMax;

impl Operation for ArgMax {
    fn name(&self) -> &'static str {
        "argmax"
    }

    fn key(&self, _state: &mut dyn Hasher) {}

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let [x] = exact_inputs(inputs)?;
        match x.shape.split_last() {
            Some((&n, outer)) if n > 0 => Ok(vec![ArraySpec::new(outer, DType::U32)]),
            _ => Err(format!("{:?} has no elements along its last axis", x.shape)),
        }
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let [x, out] = spec::operands(operands);
        Ok(Kernels::with_workspace(argmax::calls(traits, x, out)?))
    }

    fn reference(&self, step: &HostStep<'_>) {
        step.result(|x| Values::U32(argmax::reference(&x.values(0), x.columns(0))));
    }
}

impl Array {
    /// The index of the largest element along the last dimension: `[.., n]` of any dtype → u32 `[..]`. Of equal
    /// elements the lowest index wins; NaN counts as larger than all numbers. Invalid for scalars and n = 0.
    #[track_caller]
    pub fn argmax(&self) -> Array {
        CallSite::new("argmax").apply(ArgMax, &[self])
    }
}
