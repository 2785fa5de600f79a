//! Updates of values that need no copy, because nothing else refers to the memory of the value.

use crate::array::{Array, ArrayNumber, Content, Value};
use crate::signature::FastMap;
use crate::storage::Storage;
use crate::{Layout, Primitive};
use refrain_vulkan::MemoryClass;

/// The computations of an evaluation that could write their result over their first input.
#[derive(Default)]
pub(crate) struct InPlaceUpdates {
    /// Those that do, as indices of the computed arrays, ascending.
    pub numbers: Vec<usize>,
    /// The slots of the memory that they write over.
    pub slots: Vec<usize>,
    /// Number of those that copy their first input, because something else refers to it.
    pub copies: usize,
}

/// A computation whose first input is evaluated.
struct Candidate {
    number: usize,
    slot: usize,
    /// Id of the first input's computation.
    input: u64,
    /// Number of computed arrays that have it as an input, counted twice if they have it twice.
    uses: usize,
    /// Number of handles to it.
    handles: usize,
}

impl InPlaceUpdates {
    /// Finds the updates among `computed`. `slot_of` is the slot of an evaluated array's memory. The caller holds one
    /// handle to each evaluated input, and one to the memory of each slot.
    pub fn among(computed: &[Array], slot_of: impl Fn(&Storage) -> usize) -> InPlaceUpdates {
        let mut candidates: Vec<Candidate> = vec![];
        let mut found = InPlaceUpdates::default();
        for (number, array) in computed.iter().enumerate() {
            let content = array.content();
            let Content::Lazy(primitive, inputs) = &*content else {
                continue;
            };
            if primitive.in_place().is_none() {
                continue;
            }
            found.copies += 1;
            let input = &inputs[0];
            if let Some(value) = input.content().value(input.result())
                && is_unshared(value, input.shape())
            {
                candidates.push(Candidate {
                    number,
                    slot: slot_of(&value.storage),
                    input: input.id(),
                    uses: 0,
                    handles: input.handle_count(),
                });
            }
        }
        count_uses(&mut candidates, computed);
        for candidate in candidates {
            // The handles of the update and of the caller.
            if candidate.uses == 1 && candidate.handles == 2 {
                found.copies -= 1;
                found.numbers.push(candidate.number);
                found.slots.push(candidate.slot);
            }
        }
        found
    }
}

/// Whether a value is the whole of memory that no other array has.
fn is_unshared(value: &Value, shape: &[usize]) -> bool {
    let Value {
        storage,
        layout,
        version,
    } = value;
    // The handles of the value and of the slot.
    storage.class() == MemoryClass::Scratch
        && storage.handle_count() == 2
        && storage.version() == *version
        && *layout == Layout::contiguous(shape)
}

fn count_uses(candidates: &mut [Candidate], computed: &[Array]) {
    if candidates.is_empty() {
        return;
    }
    let mut uses: FastMap<u64, usize> = candidates.iter().map(|candidate| (candidate.input, 0)).collect();
    for array in computed {
        if let Content::Lazy(_, inputs) = &*array.content() {
            let evaluated = |input: &&Array| !matches!(input.number(), ArrayNumber::Computed(_));
            for input in inputs.iter().filter(evaluated) {
                uses.entry(input.id()).and_modify(|uses| *uses += 1);
            }
        }
    }
    for candidate in candidates {
        candidate.uses = uses[&candidate.input];
    }
}

impl Primitive {
    /// The primitive that computes the result in the memory of the first input, if there is one.
    pub(crate) fn in_place(&self) -> Option<Primitive> {
        match self {
            Primitive::Operation(operation) => operation.in_place().map(Primitive::Operation),
            _ => None,
        }
    }
}
