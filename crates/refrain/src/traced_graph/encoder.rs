//! One walk over the arrays to compute: it encodes them as a signature, and counts their uses.

use std::hash::{Hash, Hasher};

use super::{Kept, TracedGraph};
use crate::Primitive;
use crate::array::{Array, ArrayNumber, Content};
use crate::in_place::{Candidate, InPlaceUpdates};
use crate::passes::LowerOptions;
use crate::signature::{FastMap, Signature};
use crate::storage::Storage;

/// What the walk found so far.
pub(super) struct Encoder {
    /// Numbers of the leaves whose computations have several results, by computation and result.
    leaf_numbers: FastMap<(u64, usize), u32>,
    slots: Vec<Storage>,
    slot_numbers: FastMap<usize, usize>,
    integers: Vec<i32>,
    /// The computations that could write over their first input.
    candidates: Vec<Candidate>,
    /// Number of computations that would write over their first input, or copy it.
    updates: usize,
    pub uses: Uses,
    signature: Signature,
}

impl Encoder {
    /// Encodes the computed arrays, which are numbered. `leaves` is the number of the others.
    pub fn of(computed: &[Array], leaves: usize, options: LowerOptions) -> Encoder {
        let mut encoder = Encoder {
            leaf_numbers: FastMap::default(),
            slots: Vec::with_capacity(leaves),
            slot_numbers: FastMap::with_capacity_and_hasher(leaves, Default::default()),
            integers: vec![],
            candidates: vec![],
            updates: 0,
            uses: Uses {
                computed: vec![0; computed.len()],
                leaves: Vec::with_capacity(leaves),
                several: FastMap::default(),
            },
            // The approximate size of an elementwise operation of two inputs.
            signature: Signature::with_capacity(24 * computed.len()),
        };
        options.hash(&mut encoder.signature);
        for (number, array) in computed.iter().enumerate() {
            encoder.add(number, array);
        }
        encoder
    }

    fn add(&mut self, number: usize, array: &Array) {
        let Content::Lazy(primitive, inputs) = &*array.content() else {
            unreachable!("no other thread evaluates while the lock is held")
        };
        primitive.hash_structure(&mut self.signature);
        self.integers.extend(primitive.integer());
        self.signature.write_usize(inputs.len());
        let mut first_leaf = None;
        for (position, input) in inputs.iter().enumerate() {
            let leaf = self.add_use(input);
            self.uses.add(input, leaf);
            first_leaf = first_leaf.or(leaf.filter(|_| position == 0));
        }
        let specs = array.specs();
        self.signature.write_usize(specs.len());
        specs.for_each(|spec| spec.hash(&mut self.signature));
        if primitive.has_in_place() && (first_leaf.is_some() || is_view(&inputs[0])) {
            self.updates += 1;
            let slot_of = |storage: &Storage| self.slot_numbers[&storage.key()];
            let candidate = first_leaf.and_then(|leaf| Candidate::of(number, &inputs[0], leaf, slot_of));
            self.candidates.extend(candidate);
        }
    }

    /// Encodes the outputs, and then has encoded everything.
    pub fn finish(mut self, outputs: Vec<Array>, computed: Vec<Array>, leaves: Vec<Array>) -> TracedGraph {
        self.signature.write_usize(outputs.len());
        for output in &outputs {
            self.add_use(output);
        }
        TracedGraph {
            in_place: InPlaceUpdates::among(self.candidates, self.updates, &self.uses.leaves),
            computed,
            leaves,
            outputs,
            slots: self.slots,
            slot_numbers: self.slot_numbers,
            integers: self.integers,
            signature: self.signature,
        }
    }

    /// Encodes a use of an array. A leaf is described at its first use. Returns its number, if it is one.
    fn add_use(&mut self, array: &Array) -> Option<u32> {
        let next = self.uses.leaves.len() as u32;
        let number = match array.number() {
            ArrayNumber::Computed(number) => {
                self.signature.write_u64(2 * u64::from(number));
                self.signature.write_usize(array.result());
                return None;
            }
            ArrayNumber::Leaf(number) => number,
            ArrayNumber::None if array.is_only_result() => {
                array.set_number(ArrayNumber::Leaf(next));
                next
            }
            ArrayNumber::None => *self.leaf_numbers.entry(array.identity()).or_insert(next),
        };
        self.signature.write_u64(2 * u64::from(number) + 1);
        if number == next {
            self.uses.leaves.push(0);
            self.describe(array);
        }
        Some(number)
    }

    fn describe(&mut self, leaf: &Array) {
        let content = leaf.content();
        let Some(value) = content.value(leaf.result()) else {
            unreachable!("an array that is not computed is an evaluated leaf")
        };
        let storage = &value.storage;
        let next = self.slots.len();
        let slot = *self.slot_numbers.entry(storage.key()).or_insert(next);
        if slot == next {
            self.slots.push(storage.clone());
        }
        let updates_since = storage.version() - value.version;
        (slot, storage.class(), updates_since).hash(&mut self.signature);
        (leaf.spec(), &value.layout).hash(&mut self.signature);
    }
}

/// How often computed arrays have others as inputs. One that has an array twice counts twice.
pub(super) struct Uses {
    /// Of computed arrays that are only results, by number.
    computed: Vec<usize>,
    /// Of leaves, by number.
    leaves: Vec<usize>,
    /// Of computed results among several, by computation and result.
    several: FastMap<(u64, usize), usize>,
}

impl Uses {
    /// Counts a use of `input`, which is a leaf if it has a number as one.
    fn add(&mut self, input: &Array, leaf: Option<u32>) {
        match (leaf, input.number()) {
            (Some(leaf), _) => self.leaves[leaf as usize] += 1,
            (None, ArrayNumber::Computed(number)) if input.is_only_result() => self.computed[number as usize] += 1,
            _ => *self.several.entry(input.identity()).or_default() += 1,
        }
    }

    /// Results of the computed arrays that others still refer to and that are not among `outputs`.
    pub fn referenced(&self, outputs: &[&Array], computed: &[Array], kept: Kept) -> Vec<Array> {
        let is_kept = |array: &Array| kept == Kept::Referenced || !array.is_only_result();
        let is_asked = |identity| outputs.iter().any(|output| output.identity() == identity);
        let mut found = vec![];
        for (array, &uses) in computed.iter().zip(&self.computed) {
            if !is_kept(array) {
                continue;
            }
            for result in 0..array.specs().len() {
                let identity = (array.id(), result);
                let uses = if array.is_only_result() {
                    uses
                } else {
                    self.several.get(&identity).copied().unwrap_or(0)
                };
                // `computed` itself holds one handle.
                let own = usize::from(result == array.result());
                let is_held = array.handles_of(result) > own + uses;
                if is_held && !is_asked(identity) && result < array.new_results() {
                    found.push(array.sibling(result));
                }
            }
        }
        found
    }
}

/// Whether an array that is not computed has the elements of another one.
fn is_view(array: &Array) -> bool {
    let views = |primitive: &Primitive| {
        matches!(
            primitive,
            Primitive::Reshape | Primitive::Permute { .. } | Primitive::Slice(_)
        )
    };
    matches!(&*array.content(), Content::Lazy(primitive, _) if views(primitive))
}
