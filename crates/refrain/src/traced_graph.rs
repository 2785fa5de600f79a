//! The arrays that some outputs depend on, collected once, and the signature of the program that they make.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Error;
use crate::array::{Array, ArrayNumber, Content, Value};
use crate::in_place::InPlaceUpdates;
use crate::locks::WorkLock;
use crate::passes::LowerOptions;
use crate::signature::{FastMap, Signature};
use crate::storage::{Bindings, Storage};

/// Every array that some outputs depend on: those to compute and those already evaluated.
pub(crate) struct TracedGraph {
    /// The arrays to compute, in program order.
    pub computed: Vec<Array>,
    /// The arrays that are evaluated already, in the order of their creation.
    pub leaves: Vec<Array>,
    pub outputs: Vec<Array>,
    /// The memory of the leaves, each storage once, in the order of first use. The order in which leaves were created
    /// has no effect on it.
    pub slots: Vec<Storage>,
    slot_numbers: FastMap<usize, usize>,
    /// Updates that write over evaluated arrays.
    pub in_place: InPlaceUpdates,
    /// The integers of the computed arrays that are no part of the signature of an evaluation.
    pub integers: Vec<i32>,
    /// Equal for programs that differ in nothing but their memory.
    pub signature: Signature,
}

/// Words of a signature that say what follows the outputs.
const INTEGERS_FOLLOW: u64 = u64::MAX;
const IN_PLACE_FOLLOW: u64 = u64::MAX - 1;

impl TracedGraph {
    /// Collects what `outputs` depend on. Call it inside [`WorkLock::acquire`], so that no other thread evaluates
    /// meanwhile.
    ///
    /// # Errors
    /// Returns the error of an invalid array. [`Error::StaleState`] if a result was dropped when its computation ran.
    /// Fails if there are no outputs, or arrays of several devices.
    pub fn of(outputs: &[&Array], options: LowerOptions) -> Result<TracedGraph, Error> {
        let (computed, leaves) = reachable(outputs)?;
        let outputs = outputs.iter().map(|&output| output.clone()).collect();
        let mut traced = TracedGraph::encoded(outputs, computed, leaves, options);
        // They are constants of a function.
        if !traced.integers.is_empty() {
            (INTEGERS_FOLLOW, &traced.integers).hash(&mut traced.signature);
        }
        Ok(traced)
    }

    /// [`TracedGraph::of`] with further outputs: other results that arrays still refer to. Results of one computation
    /// have to be evaluated together, because a computation that updates a state runs once.
    ///
    /// # Errors
    /// As [`TracedGraph::of`].
    pub fn for_evaluation(outputs: &[&Array], kept: Kept, options: LowerOptions) -> Result<TracedGraph, Error> {
        let (computed, leaves) = reachable(outputs)?;
        let further = referenced(outputs, &computed, kept);
        let mut outputs: Vec<Array> = outputs.iter().map(|&output| output.clone()).collect();
        outputs.extend(further);
        let mut traced = TracedGraph::encoded(outputs, computed, leaves, options);
        let in_place = InPlaceUpdates::among(&traced.computed, |storage| traced.slot_of(storage));
        if !in_place.numbers.is_empty() {
            (IN_PLACE_FOLLOW, &in_place.numbers).hash(&mut traced.signature);
        }
        Ok(TracedGraph { in_place, ..traced })
    }

    fn encoded(outputs: Vec<Array>, computed: Vec<Array>, leaves: Vec<Array>, options: LowerOptions) -> TracedGraph {
        let mut encoder = Encoder {
            leaves: 0,
            leaf_numbers: FastMap::default(),
            slots: vec![],
            slot_numbers: FastMap::default(),
            // The approximate size of an elementwise operation of two inputs.
            signature: Signature::with_capacity(24 * computed.len()),
        };
        let mut integers = vec![];
        options.hash(&mut encoder.signature);
        for array in &computed {
            let Content::Lazy(primitive, inputs) = &*array.content() else {
                unreachable!("no other thread evaluates while the lock is held")
            };
            primitive.hash_structure(&mut encoder.signature);
            integers.extend(primitive.integer());
            encoder.signature.write_usize(inputs.len());
            inputs.iter().for_each(|input| encoder.add_use(input));
            let specs = array.specs();
            encoder.signature.write_usize(specs.len());
            specs.for_each(|spec| spec.hash(&mut encoder.signature));
        }
        encoder.signature.write_usize(outputs.len());
        outputs.iter().for_each(|output| encoder.add_use(output));
        TracedGraph {
            computed,
            leaves,
            outputs,
            slots: encoder.slots,
            slot_numbers: encoder.slot_numbers,
            in_place: InPlaceUpdates::default(),
            integers,
            signature: encoder.signature,
        }
    }

    /// [`TracedGraph::of`] under a lock of its own.
    ///
    /// # Errors
    /// As [`TracedGraph::of`].
    pub fn under_lock(outputs: &[&Array], options: LowerOptions) -> Result<TracedGraph, Error> {
        let (traced, _) = WorkLock::acquire(|| Ok((TracedGraph::of(outputs, options)?, vec![])))?;
        Ok(traced)
    }

    /// The slot of a leaf's memory.
    pub fn slot_of(&self, storage: &Storage) -> usize {
        self.slot_numbers[&storage.key()]
    }

    /// The states that are read or updated.
    pub fn states(&self) -> impl Iterator<Item = &Storage> {
        self.slots.iter().filter(|storage| storage.is_state())
    }
}

impl Bindings {
    /// The bindings with which the plan of `outputs` ([`crate::passes::plan`]) is evaluated.
    ///
    /// # Errors
    /// Returns the error of an invalid array. Fails if there are no arrays, or arrays of several devices.
    pub fn of(outputs: &[&Array]) -> Result<Bindings, Error> {
        Ok(Bindings(
            TracedGraph::under_lock(outputs, LowerOptions::default())?.slots,
        ))
    }
}

struct Encoder {
    /// Number of leaves so far, in the order of first use.
    leaves: u32,
    /// Numbers of the leaves whose computations have several results, by computation and result.
    leaf_numbers: FastMap<(u64, usize), u32>,
    slots: Vec<Storage>,
    slot_numbers: FastMap<usize, usize>,
    signature: Signature,
}

impl Encoder {
    /// Encodes a use of an array. A leaf is described at its first use.
    fn add_use(&mut self, array: &Array) {
        let next = self.leaves;
        let number = match array.number() {
            ArrayNumber::Computed(number) => {
                self.signature.write_u64(2 * u64::from(number));
                self.signature.write_usize(array.result());
                return;
            }
            ArrayNumber::Leaf(number) => number,
            ArrayNumber::None if array.is_only_result() => {
                array.set_number(ArrayNumber::Leaf(next));
                next
            }
            ArrayNumber::None => *self.leaf_numbers.entry((array.id(), array.result())).or_insert(next),
        };
        self.signature.write_u64(2 * u64::from(number) + 1);
        if number == next {
            self.leaves += 1;
            self.describe(array);
        }
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

/// The results that an evaluation keeps beside those that it was asked for, if arrays still refer to them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kept {
    /// Other results of computations that have several.
    Siblings,
    /// All results.
    Referenced,
}

/// Results of the given computations that other arrays still refer to and that are not among `outputs`.
fn referenced(outputs: &[&Array], computed: &[Array], kept: Kept) -> Vec<Array> {
    let is_kept = |array: &Array| kept == Kept::Referenced || !array.is_only_result();
    if !computed.iter().any(is_kept) {
        return vec![];
    }
    let asked: FastMap<(u64, usize), ()> = outputs.iter().map(|o| ((o.id(), o.result()), ())).collect();
    let mut uses = vec![0; computed.len()];
    // Of results of computations that have several, by computation and result.
    let mut uses_of_several: FastMap<(u64, usize), usize> = FastMap::default();
    for array in computed {
        if let Content::Lazy(_, inputs) = &*array.content() {
            for input in inputs {
                match input.number() {
                    ArrayNumber::Computed(number) if input.is_only_result() => uses[number as usize] += 1,
                    ArrayNumber::Computed(_) => *uses_of_several.entry(input.identity()).or_default() += 1,
                    _ => {}
                }
            }
        }
    }
    let mut found = vec![];
    for (array, uses) in computed.iter().zip(uses) {
        if !is_kept(array) {
            continue;
        }
        for result in 0..array.specs().len() {
            let identity = (array.id(), result);
            let uses = if array.is_only_result() {
                uses
            } else {
                uses_of_several.get(&identity).copied().unwrap_or(0)
            };
            // `computed` itself holds one handle.
            let own = usize::from(result == array.result());
            let is_held = array.handles_of(result) > own + uses && !asked.contains_key(&identity);
            if is_held && result < array.new_results() {
                found.push(array.sibling(result));
            }
        }
    }
    found
}

/// The number of the next walk.
static NEXT_WALK: AtomicU64 = AtomicU64::new(1);

/// The arrays to compute and the evaluated arrays, each in the order of their creation. Those to compute are numbered.
pub(crate) fn reachable(outputs: &[&Array]) -> Result<(Vec<Array>, Vec<Array>), Error> {
    let walk = NEXT_WALK.fetch_add(1, Ordering::Relaxed);
    // Computed results, of computations that have several.
    let mut found: FastMap<(u64, usize), ()> = FastMap::default();
    let (mut computed, mut leaves, mut invalid) = (Vec::new(), Vec::new(), Vec::new());
    let is_new = |array: &Array| array.visit(walk) || !array.is_only_result();
    let mut pending: Vec<Array> = vec![];
    for &output in outputs {
        if is_new(output) {
            pending.push(output.clone());
        }
    }
    while let Some(array) = pending.pop() {
        let kind = match &*array.content() {
            // All results of a computation are computed together.
            Content::Lazy(_, inputs) => {
                if !array.is_only_result() && found.insert((array.id(), 0), ()).is_some() {
                    continue;
                }
                pending.extend(inputs.iter().filter(|input| is_new(input)).cloned());
                &mut computed
            }
            Content::Ready(values) => {
                if !array.is_only_result() && found.insert((array.id(), array.result()), ()).is_some() {
                    continue;
                }
                if values[array.result()].is_none() {
                    invalid.push((array.id(), dropped_result(values)));
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
        return Err(Error::Call("no arrays to evaluate".to_string()));
    };
    if let Some(other) = arrays.find(|a| !a.device().same(&device)) {
        return Err(Error::Call(format!(
            "arrays on {:?} and {:?} cannot be computed together; evaluate them separately",
            device,
            other.device()
        )));
    }
    computed.sort_unstable_by_key(Array::id);
    leaves.sort_unstable_by_key(Array::id);
    for (number, array) in (0..).zip(&computed) {
        array.set_number(ArrayNumber::Computed(number));
    }
    Ok((computed, leaves))
}

/// The error for a result that was dropped because only its computation's state updates were requested.
fn dropped_result(values: &[Option<Value>]) -> Error {
    let updated = values.iter().flatten().next();
    let [read, current] = updated.map_or([0, 0], |state| {
        [state.version.saturating_sub(1), state.storage.version()]
    });
    Error::StaleState {
        op: "a result that was not requested when its computation ran".to_string(),
        read,
        current,
    }
}
