//! Where tokens go in a paged state.

use std::hash::{Hash, Hasher};

use refrain_kernels::slots;

use crate::BatchTokens;
use refrain::operation::{ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values, exactly};
use refrain::{Array, DType};

/// (positions `[T]`, sequences `[T]`, pages `[S, P]`) → i32 `[T]`: each position's slot in a paged state, −1 where
/// there is none.
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
        let [positions, sequences, pages] = exactly(inputs)?;
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
            "positions {positions}, sequences {sequences} and pages {pages} of {} slots do not fit",
            self.page_size
        ))
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let [positions, sequences, pages, out] = operands else {
            unreachable!("three inputs and a result")
        };
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

/// Where tokens' keys and values go in a paged state: slot `pages[s, p / page_size] · page_size +
/// p mod page_size` of position p of sequence s, −1 for negative positions and for those beyond the table:
/// i32 `[T]`. Invalid where shapes do not fit.
#[track_caller]
pub fn slots(tokens: BatchTokens<'_>, page_size: usize) -> Array {
    let inputs = [tokens.positions, tokens.sequences, tokens.pages];
    let [slots] = Array::apply(Slots { page_size }, &inputs);
    slots
}
