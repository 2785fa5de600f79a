//! The arrays that some outputs depend on, collected once, and the signature of the program that they make.

mod encoder;

use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Error;
use crate::array::{Array, ArrayNumber, Content, Value};
use crate::in_place::InPlaceUpdates;
use crate::locks::WorkLock;
use crate::passes::LowerOptions;
use crate::signature::{FastMap, FastSet, Signature};
use crate::storage::{Bindings, Storage};
use encoder::Encoder;

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
        let mut traced = Encoder::of(&computed, leaves.len(), options).finish(outputs, computed, leaves);
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
        let encoder = Encoder::of(&computed, leaves.len(), options);
        let further = encoder.uses.referenced(outputs, &computed, kept);
        let mut outputs: Vec<Array> = outputs.iter().map(|&output| output.clone()).collect();
        outputs.extend(further);
        let mut traced = encoder.finish(outputs, computed, leaves);
        let numbers = &traced.in_place.numbers;
        if !numbers.is_empty() {
            (IN_PLACE_FOLLOW, numbers).hash(&mut traced.signature);
        }
        Ok(traced)
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

/// The results that an evaluation keeps beside those that it was asked for, if arrays still refer to them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kept {
    /// Other results of computations that have several.
    Siblings,
    /// All results.
    Referenced,
}

/// The number of the next walk.
static NEXT_WALK: AtomicU64 = AtomicU64::new(1);

/// The arrays to compute and the evaluated arrays, each in the order of their creation. Those to compute are numbered.
pub(crate) fn reachable(outputs: &[&Array]) -> Result<(Vec<Array>, Vec<Array>), Error> {
    let walk = NEXT_WALK.fetch_add(1, Ordering::Relaxed);
    // Computed results, of computations that have several.
    let mut found: FastSet<(u64, usize)> = FastSet::default();
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
                if !array.is_only_result() && !found.insert((array.id(), 0)) {
                    continue;
                }
                pending.extend(inputs.iter().filter(|input| is_new(input)).cloned());
                &mut computed
            }
            Content::Ready(values) => {
                if !array.is_only_result() && !found.insert((array.id(), array.result())) {
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
    // Ids are behind pointers, and a sort compares each of them often.
    computed.sort_by_cached_key(Array::id);
    leaves.sort_by_cached_key(Array::id);
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
