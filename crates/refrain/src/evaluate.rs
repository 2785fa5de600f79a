//! Evaluation of arrays: trace, lower (or find the cached program), run once, store the results.

use std::sync::Arc;

use crate::array::{Content, Value};
use crate::device::Flush;
use crate::execute::{Executable, layout_in_storage};
use crate::explain::Evaluation;
use crate::locks::{LockKey, WorkLock};
use crate::lookup::Lookup;
use crate::passes::LowerOptions;
use crate::program::StateUpdate;
use crate::storage::Bindings;
use crate::traced_graph::{Kept, TracedGraph};
use crate::{Array, Error, Layout};

/// Computes several arrays of one device by one plan and one submit.
///
/// Updates of states that the arrays depend on happen once each, in program order. If several threads evaluate
/// arrays that depend on the same update, one of them performs it and all see the result. A program of the same
/// structure that was evaluated before is not lowered again, whatever memory it used.
///
/// # Errors
/// Returns the first error of an invalid array. Fails if the device does not support an operation, if a state is
/// read at an old version, if an array depends on a placeholder of a traced function, or if the device fails.
pub fn eval(arrays: &[&Array]) -> Result<(), Error> {
    evaluate(arrays, Flush::Requested)
}

/// [`eval`] that also keeps every array on the way that is still referenced: an array computed once is not computed
/// again. MLX evaluates so. Intermediate results that nothing refers to are fused as ever.
///
/// A program that is evaluated again and again keeps its memory ([`crate::Device::clear_cache`] frees it). It runs again
/// without recording its commands if its leaves are where they were.
///
/// # Errors
/// As [`eval`].
///
/// ```
/// # use refrain::{Array, Device, eval_referenced};
/// let x = Array::from_slice(&Device::cpu(), &[1.0f32, 2.0], &[2]);
/// let squares = &x * &x;
/// let sum = squares.sum(&[0]);
/// eval_referenced(&[&sum])?;
/// assert!(squares.is_evaluated());
/// # Ok::<(), refrain::Error>(())
/// ```
pub fn eval_referenced(arrays: &[&Array]) -> Result<(), Error> {
    evaluate_keeping(arrays, Flush::Requested, Kept::Referenced)
}

pub(crate) fn evaluate(arrays: &[&Array], reason: Flush) -> Result<(), Error> {
    evaluate_keeping(arrays, reason, Kept::Siblings)
}

fn evaluate_keeping(arrays: &[&Array], reason: Flush, kept: Kept) -> Result<(), Error> {
    // What is ready stays ready. Found without the lock, which another thread holds while it traces.
    if arrays.iter().all(|array| array.is_evaluated()) {
        return Ok(());
    }
    let (pending, lock) = WorkLock::acquire(|| pending(arrays, kept))?;
    let Some(Pending { traced, found }) = pending else {
        return Ok(());
    };
    let device = arrays[0].device();
    let TracedGraph {
        computed,
        outputs,
        slots,
        signature,
        in_place,
        integers,
        ..
    } = traced;
    let lowered = found.reason_to_lower(device);
    let rotation = device.programs().rotation();
    let program = found.get_or_lower(device, signature, LowerOptions::default())?;
    // Engines evaluate little, and count on the memory that evaluations give back.
    let is_repeated = lowered.is_none() && kept == Kept::Referenced;
    let (executable, is_replay) = if is_repeated {
        rotation.executable(device, &program, Bindings(slots))?
    } else {
        (
            Executable::new(device, program.compiled.clone(), Bindings(slots))?,
            false,
        )
    };
    let executable = Arc::new(executable);
    let words = program.integers.words(&integers);
    executable.write_integers(&words.expect("the program was found or lowered for these"))?;
    executable.run(reason)?;
    let evaluation = Evaluation {
        arrays: computed.len(),
        steps: program.plan().steps.len(),
        lowered,
        is_replay,
        in_place: in_place.numbers.len(),
        copies: in_place.copies,
    };
    device.programs().log().add(evaluation, &program);
    lock.publish(|| {
        let versions: Vec<Option<u64>> = (program.output_versions.iter())
            .map(|seen| seen.map(|seen| executable.slot(seen.slot).version().wrapping_add_signed(seen.version)))
            .collect();
        let publish = |update: &StateUpdate| update.publish(&computed, executable.slot(update.slot));
        program.updates.iter().for_each(publish);
        for (number, array) in outputs.iter().enumerate() {
            let (operand, storage) = executable.output(number);
            // A view of a state has the version that it was made at, and may be stale by now.
            let version = versions[number].unwrap_or(storage.version());
            array.set_ready(Value {
                version,
                layout: layout_in_storage(operand),
                storage,
            });
        }
    });
    if is_repeated {
        rotation.keep(device, &program, executable);
    }
    Ok(())
}

/// What is left to compute.
struct Pending {
    traced: TracedGraph,
    found: Lookup,
}

/// Traces the arrays that are not ready, and lists what has to be locked to compute them.
fn pending(arrays: &[&Array], kept: Kept) -> Result<(Option<Pending>, Vec<LockKey>), Error> {
    let mut pending: Vec<&Array> = Vec::new();
    for array in arrays {
        match &*array.content() {
            Content::Invalid(error) => return Err(error.clone()),
            Content::Ready(values) if values[array.result()].is_some() => {}
            _ => pending.push(array),
        }
    }
    if pending.is_empty() {
        return Ok((None, vec![]));
    }
    let traced = TracedGraph::for_evaluation(&pending, kept, LowerOptions::default())?;
    // Built while the lock is held: no other thread changes the arrays that were traced.
    let found = Lookup::for_evaluation(pending[0].device(), &traced)?;
    if let Some(name) = found.graph().inputs().next() {
        return Err(Error::UnboundInput { name: name.to_string() });
    }
    let computed = traced.outputs.iter().map(|array| LockKey::Array(array.id()));
    let work = computed.chain(traced.states().map(LockKey::of_state)).collect();
    Ok((Some(Pending { traced, found }), work))
}

impl StateUpdate {
    /// Marks the new version of the state as ready. `computed` are the program's arrays, `storage` the state's memory.
    fn publish(&self, computed: &[Array], storage: &crate::Storage) {
        storage.advance();
        let (number, result) = self.by;
        let array = computed[number].sibling(result);
        array.set_ready(Value {
            version: storage.version(),
            layout: Layout::contiguous(array.shape()),
            storage: storage.clone(),
        });
    }
}
