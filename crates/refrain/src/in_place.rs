//! Updates of values that need no copy, because nothing else refers to the memory of the value.

use crate::array::{Array, Value};
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
    /// Number of updates of evaluated arrays, or of views, that copy them, because something else refers to them. What
    /// the program computes itself is written over without that.
    pub copies: usize,
}

/// A computation whose first input is evaluated, and the whole of memory that no other array has.
pub(crate) struct Candidate {
    number: usize,
    slot: usize,
    /// The number of the input among the leaves.
    leaf: u32,
    /// Number of handles to it.
    handles: usize,
}

impl Candidate {
    /// The computation with this number, if it could write over `input`, its first one, which is the leaf with number
    /// `leaf`. `slot_of` is the slot of memory.
    pub fn of(number: usize, input: &Array, leaf: u32, slot_of: impl Fn(&Storage) -> usize) -> Option<Candidate> {
        let content = input.content();
        let value = content.value(input.result())?;
        is_unshared(value, input.shape()).then(|| Candidate {
            number,
            slot: slot_of(&value.storage),
            leaf,
            handles: input.handle_count(),
        })
    }
}

impl InPlaceUpdates {
    /// The candidates whose input nothing else refers to. `updates` counts all updates, candidates or not, and `uses` the
    /// computations that have each leaf as an input. When candidates were found, the caller held one handle to each leaf,
    /// and one to the memory of each slot.
    pub fn among(candidates: Vec<Candidate>, updates: usize, uses: &[usize]) -> InPlaceUpdates {
        let mut found = InPlaceUpdates {
            copies: updates,
            ..InPlaceUpdates::default()
        };
        for candidate in candidates {
            // The handles of the update and of the caller.
            if uses[candidate.leaf as usize] == 1 && candidate.handles == 2 {
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

impl Primitive {
    /// The primitive that computes the result in the memory of the first input, if there is one.
    pub(crate) fn in_place(&self) -> Option<Primitive> {
        match self {
            Primitive::Operation(operation) => operation.in_place().map(Primitive::Operation),
            _ => None,
        }
    }

    /// Whether there is such a primitive.
    pub(crate) fn has_in_place(&self) -> bool {
        matches!(self, Primitive::Operation(operation) if operation.has_in_place())
    }
}
