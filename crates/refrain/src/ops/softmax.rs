//! Softmax.

use std::hash::Hasher;

use refrain_kernels::softmax;

use super::CallSite;
use crate::Array;
use crate::operation::prelude::{
    ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values, exact_inputs, spec,
};

/// (x) → softmax over the last dimension.
#[derive(Debug)]
pub struct Softmax;

impl Operation for Softmax {
    fn name(&self) -> &'static str {
        "softmax"
    }

    fn key(&self, _state: &mut dyn Hasher) {}

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let [x] = exact_inputs(inputs)?;
        if x.rank() == 0 || !x.dtype.is_float() {
            return Err(format!("it needs floats of at least one dimension, not {x}"));
        }
        Ok(vec![(*x).clone()])
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let [x, out] = spec::operands(operands);
        Ok(Kernels::one(softmax::call(traits, x, out)?))
    }

    fn reference(&self, step: &HostStep<'_>) {
        step.result(|x| Values::F32(softmax::reference(&x.f32(0), x.columns(0))));
    }
}

impl Array {
    /// Softmax over the last dimension of floats `[.., n]`, computed in f32. Shape and dtype stay. Invalid for scalars
    /// and integers.
    #[track_caller]
    pub fn softmax(&self) -> Array {
        CallSite::new("softmax").apply(Softmax, &[self])
    }
}
