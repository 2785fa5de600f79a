//! Slots of tokens in a paged KV cache.

use std::hash::{Hash, Hasher};

use refrain_kernels::slots;

use crate::BatchTokens;
use refrain::operation::{
    self, ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values, exact_inputs,
};
use refrain::{Array, DType};

/// (positions `[T]`, sequences `[T]`, pages `[S, P]`) → i32 `[T]`: each position's slot in a paged KV cache, −1 if it
/// has none.
#[derive(Hash, Debug)]
pub(crate) struct Slots {
    /// Slots per page.
    pub page_size: usize,
}

impl Operation for Slots {
    fn name(&self) -> &'static str {
        "slots"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let [positions, sequences, pages] = exact_inputs(inputs)?;
        let dtypes = inputs.iter().map(|x| x.dtype);
        let fits = positions.rank() == 1
            && sequences.shape == positions.shape
            && pages.rank() == 2
            && dtypes.eq([DType::I32, DType::U32, DType::U32])
            && self.page_size > 0;
        if fits {
            return Ok(vec![(*positions).clone()]);
        }
        Err(format!(
            "positions {positions}, sequences {sequences} and pages {pages} of {} slots do not match",
            self.page_size
        ))
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let [positions, sequences, pages, out] = operation::operands(operands);
        let call = slots::call(traits, positions, sequences, pages, out, self.page_size)?;
        Ok(Kernels::one(call))
    }

    fn reference(&self, step: &HostStep<'_>) {
        let x = step.read();
        let found = slots::reference(&x.i32(0), &x.u32(1), &x.u32(2), x.shape(2), self.page_size);
        drop(x);
        step.store(0, &Values::I32(found));
    }
}

/// Returns the slots of tokens' keys and values in a paged KV cache, i32 `[T]`.
///
/// Position p of sequence s has slot `pages[s, p / page_size] · page_size + p mod page_size`. Negative positions and
/// those beyond the page table have −1. The result is invalid if shapes do not match.
#[track_caller]
pub fn slots(tokens: BatchTokens<'_>, page_size: usize) -> Array {
    let inputs = [tokens.positions, tokens.sequences, tokens.pages];
    let [slots] = Array::apply(Slots { page_size }, &inputs);
    slots
}
