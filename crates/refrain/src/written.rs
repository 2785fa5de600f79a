//! A program as arrays wrote it, gone through once: what it is made of and what tells it from others.

use std::hash::{Hash, Hasher};

use crate::Error;
use crate::array::{Array, Content, Value};
use crate::claims::Claim;
use crate::passes::LowerOptions;
use crate::signature::{FastMap, Signature};
use crate::storage::Storage;

/// Every array that some outputs depend on, and states as those leave them.
pub(crate) struct Written {
    /// What is to be computed, in the order in which it was written.
    pub computed: Vec<Array>,
    /// What is evaluated already, in the order in which it was made.
    pub leaves: Vec<Array>,
    pub outputs: Vec<Array>,
    /// The memory of the leaves, each once, in the order in which what is computed first uses it: it does not matter
    /// when leaves were made.
    pub slots: Vec<Storage>,
    slot_numbers: FastMap<usize, usize>,
    /// Equal for programs that differ in nothing but their memory.
    pub signature: Signature,
}

impl Written {
    /// Looks at arrays while no other thread makes any of them ready: inside of [`Claim::of`].
    ///
    /// # Errors
    /// The error of an invalid array; [`Error::StaleState`] where a result went with the state that it was made from;
    /// arrays of several devices, or none.
    pub fn of(outputs: &[&Array], options: LowerOptions) -> Result<Written, Error> {
        let (computed, leaves) = reachable(outputs)?;
        let outputs = outputs.iter().map(|&output| output.clone()).collect();
        Ok(Written::encoded(outputs, computed, leaves, options))
    }

    /// [`Written::of`], with what else is named of the results of computations that have several: they are evaluated
    /// together, for an update happens once.
    ///
    /// # Errors
    /// As [`Written::of`].
    pub fn with_siblings(outputs: &[&Array], options: LowerOptions) -> Result<Written, Error> {
        let (computed, leaves) = reachable(outputs)?;
        let siblings = siblings(outputs, &computed);
        let mut outputs: Vec<Array> = outputs.iter().map(|&output| output.clone()).collect();
        outputs.extend(siblings);
        Ok(Written::encoded(outputs, computed, leaves, options))
    }

    fn encoded(outputs: Vec<Array>, computed: Vec<Array>, leaves: Vec<Array>, options: LowerOptions) -> Written {
        let mut encoder = Encoder {
            ids: computed.iter().map(Array::id).collect(),
            leaf_numbers: FastMap::default(),
            slots: vec![],
            slot_numbers: FastMap::default(),
            // About what an elementwise operation of two inputs takes.
            signature: Signature::with_capacity(24 * computed.len()),
        };
        options.hash(&mut encoder.signature);
        for array in &computed {
            let Content::Lazy(primitive, inputs) = &*array.content() else {
                unreachable!("nobody else makes it ready")
            };
            primitive.hash(&mut encoder.signature);
            encoder.signature.write_usize(inputs.len());
            inputs.iter().for_each(|input| encoder.add_use(input));
            let specs = array.specs();
            encoder.signature.write_usize(specs.len());
            specs.for_each(|spec| spec.hash(&mut encoder.signature));
        }
        encoder.signature.write_usize(outputs.len());
        outputs.iter().for_each(|output| encoder.add_use(output));
        Written {
            computed,
            leaves,
            outputs,
            slots: encoder.slots,
            slot_numbers: encoder.slot_numbers,
            signature: encoder.signature,
        }
    }

    /// [`Written::of`], looked at by itself.
    ///
    /// # Errors
    /// As [`Written::of`].
    pub fn alone(outputs: &[&Array], options: LowerOptions) -> Result<Written, Error> {
        let (written, _) = Claim::of(|| Ok((Written::of(outputs, options)?, vec![])))?;
        Ok(written)
    }

    /// The slot in which an array is stored.
    pub fn slot_of(&self, storage: &Storage) -> usize {
        self.slot_numbers[&storage.key()]
    }

    /// The states that are read or updated.
    pub fn states(&self) -> impl Iterator<Item = &Storage> {
        self.slots.iter().filter(|storage| storage.is_state())
    }
}

struct Encoder {
    /// Of what is computed, ascending.
    ids: Vec<u64>,
    /// Of leaves, by computation and result, in the order of their first uses.
    leaf_numbers: FastMap<(u64, usize), usize>,
    slots: Vec<Storage>,
    slot_numbers: FastMap<usize, usize>,
    signature: Signature,
}

impl Encoder {
    /// Says which array is used: a leaf is described where it is used first.
    fn add_use(&mut self, array: &Array) {
        if let Ok(number) = self.ids.binary_search(&array.id()) {
            self.signature.write_usize(2 * number);
            self.signature.write_usize(array.result());
            return;
        }
        let next = self.leaf_numbers.len();
        let number = *self.leaf_numbers.entry((array.id(), array.result())).or_insert(next);
        self.signature.write_usize(2 * number + 1);
        if number == next {
            self.describe(array);
        }
    }

    fn describe(&mut self, leaf: &Array) {
        let content = leaf.content();
        let Some(value) = content.value(leaf.result()) else {
            unreachable!("what is reachable and not computed is a leaf")
        };
        let storage = &value.storage;
        let next = self.slots.len();
        let slot = *self.slot_numbers.entry(storage.key()).or_insert(next);
        if slot == next {
            self.slots.push(storage.clone());
        }
        let behind = storage.version() - value.version;
        (slot, storage.class(), behind).hash(&mut self.signature);
        (leaf.spec(), &value.layout).hash(&mut self.signature);
    }
}

/// What else is named, by anything but these computations themselves, of the results of those that have several.
fn siblings(outputs: &[&Array], computed: &[Array]) -> Vec<Array> {
    let several: Vec<&Array> = computed.iter().filter(|array| array.specs().len() > 1).collect();
    if several.is_empty() {
        return vec![];
    }
    let mut uses: FastMap<u64, usize> = several.iter().map(|array| (array.id(), 0)).collect();
    for array in computed {
        if let Content::Lazy(_, inputs) = &*array.content() {
            inputs.iter().for_each(|input| {
                uses.entry(input.id()).and_modify(|uses| *uses += 1);
            });
        }
    }
    let mut found = vec![];
    for array in several {
        let is_asked = |result: usize| outputs.iter().any(|o| o.id() == array.id() && o.result() == result);
        let asked = (0..array.specs().len()).filter(|&result| is_asked(result)).count();
        // One name is that in the list of what is computed.
        if array.names() > 1 + uses[&array.id()] + asked {
            let new = (0..array.new_results()).filter(|&result| !is_asked(result));
            found.extend(new.map(|result| array.sibling(result)));
        }
    }
    found
}

/// What is to be computed and what is there, each in the order in which it was made.
fn reachable(outputs: &[&Array]) -> Result<(Vec<Array>, Vec<Array>), Error> {
    let mut found: FastMap<(u64, usize), ()> = FastMap::default();
    let (mut computed, mut leaves, mut invalid) = (Vec::new(), Vec::new(), Vec::new());
    let mut pending: Vec<Array> = outputs.iter().map(|&a| a.clone()).collect();
    while let Some(array) = pending.pop() {
        let kind = match &*array.content() {
            // The results of a computation are computed as one.
            Content::Lazy(_, inputs) => {
                if found.insert((array.id(), 0), ()).is_some() {
                    continue;
                }
                pending.extend(inputs.iter().cloned());
                &mut computed
            }
            Content::Ready(values) => {
                if found.insert((array.id(), array.result()), ()).is_some() {
                    continue;
                }
                if values[array.result()].is_none() {
                    invalid.push((array.id(), gone(values)));
                    continue;
                }
                &mut leaves
            }
            Content::Invalid(error) => {
                invalid.push((array.id(), error.clone()));
                continue;
            }
        };
        kind.push(array);
    }
    let mut arrays = computed.iter().chain(&leaves);
    if let Some((_, error)) = invalid.into_iter().min_by_key(|(id, _)| *id) {
        return Err(error);
    }
    let Some(device) = arrays.next().map(|array: &Array| array.device().clone()) else {
        return Err(Error::Call("there is no output to compute".to_string()));
    };
    if let Some(other) = arrays.find(|a| !a.device().same(&device)) {
        return Err(Error::Call(format!(
            "arrays on {:?} and {:?} cannot be computed together; evaluate them apart",
            device,
            other.device()
        )));
    }
    computed.sort_unstable_by_key(Array::id);
    leaves.sort_unstable_by_key(Array::id);
    Ok((computed, leaves))
}

/// Why there is no result of a computation that was made for the states that it updates alone.
fn gone(values: &[Option<Value>]) -> Error {
    let updated = values.iter().flatten().next();
    let [read, current] = updated.map_or([0, 0], |state| {
        [state.version.saturating_sub(1), state.storage.version()]
    });
    Error::StaleState {
        op: "a result that was not asked for when its computation ran".to_string(),
        read,
        current,
    }
}
