//! Softmax.

use std::hash::Hasher;

use refrain_kernels::softmax;

use super::Caller;
use crate::Array;
use crate::operation::{ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values, exactly};

/// (x) → softmax over the last dimension.
#[derive(Debug)]
pub struct Softmax;

impl Operation for Softmax {
    fn name(&self) -> &'static str {
        "softmax"
    }

    fn key(&self, _state: &mut dyn Hasher) {}

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let [x] = exactly(inputs)?;
        if x.rank() == 0 || !x.dtype.is_float() {
            return Err(format!("floats along an axis are needed, not {x}"));
        }
        Ok(vec![(*x).clone()])
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        Ok(Kernels::one(softmax::call(traits, &operands[0], &operands[1])?))
    }

    fn reference(&self, step: &HostStep<'_>) {
        step.result(|x| Values::F32(softmax::reference(&x.f32(0), x.columns(0))));
    }
}

impl Array {
    /// Softmax over the last dimension: floats `[.., n]` → the same, computed in f32. Invalid for
    /// scalars and integers.
    #[track_caller]
    pub fn softmax(&self) -> Array {
        Caller::new("softmax").apply(Softmax, &[self])
    }
}
