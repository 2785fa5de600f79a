//! Where the largest element is.

use std::hash::Hasher;

use refrain_kernels::argmax;

use super::Caller;
use crate::operation::{ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values, exactly};
use crate::{Array, DType};

/// (x) → index of the largest value along the last dimension, u32.
#[derive(Debug)]
struct ArgMax;

impl Operation for ArgMax {
    fn name(&self) -> &'static str {
        "argmax"
    }

    fn key(&self, _state: &mut dyn Hasher) {}

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let [x] = exactly(inputs)?;
        match x.shape.split_last() {
            Some((&n, outer)) if n > 0 => Ok(vec![ArraySpec {
                shape: outer.to_vec(),
                dtype: DType::U32,
            }]),
            _ => Err(format!("there is nothing to choose from in {:?}", x.shape)),
        }
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        Ok(Kernels::one(argmax::call(traits, &operands[0], &operands[1])?))
    }

    fn reference(&self, step: &HostStep<'_>) {
        step.result(|x| Values::U32(argmax::reference(&x.values(0), x.columns(0))));
    }
}

impl Array {
    /// Largest index along the last dimension: `[.., n]` of any dtype → `[..]`, u32; the lowest of
    /// equals, NaN above all numbers. Invalid for scalars and n = 0.
    #[track_caller]
    pub fn argmax(&self) -> Array {
        Caller::new("argmax").apply(ArgMax, &[self])
    }
}
