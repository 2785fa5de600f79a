//! Evaluation: from arrays to a program, one submit, and arrays that are ready.

use std::sync::Arc;

use crate::array::{Content, Value};
use crate::claims::{Claim, ClaimedWork};
use crate::device::Flush;
use crate::execute::{Executable, layout_in_storage};
use crate::graph::StateUpdate;
use crate::passes::LowerOptions;
use crate::program::{Bindings, Lookup};
use crate::written::Written;
use crate::{Array, Error, Layout};

/// Computes several arrays of one device by one plan and one submit. Updates of states among what they
/// depend on happen, in the order in which the program made them, and once: where several threads evaluate
/// what depends on an update, one of them makes it, and all see it. What was evaluated before in the same way,
/// from whatever memory, is not lowered again.
///
/// # Errors
/// The first error of an invalid array; operations that the device cannot do; a state read at a version
/// that is no longer there; a placeholder of a traced function; failures of the device.
pub fn eval(arrays: &[&Array]) -> Result<(), Error> {
    evaluate(arrays, Flush::Requested)
}

pub(crate) fn evaluate(arrays: &[&Array], reason: Flush) -> Result<(), Error> {
    let (pending, claim) = Claim::of(|| pending(arrays))?;
    let Some(Pending { written, found }) = pending else {
        return Ok(());
    };
    let device = arrays[0].device();
    let Written {
        computed,
        outputs,
        slots,
        signature,
        ..
    } = written;
    let program = found.lowered(device, signature, LowerOptions::default())?;
    let executable = Arc::new(Executable::new(device, program.compiled.clone(), Bindings(slots))?);
    executable.run(reason)?;
    claim.end(|| {
        let versions: Vec<Option<u64>> = (program.seen.iter())
            .map(|seen| seen.map(|seen| executable.slot(seen.slot).version().wrapping_add_signed(seen.version)))
            .collect();
        let publish = |update: &StateUpdate| update.publish(&computed, executable.slot(update.slot));
        program.updates.iter().for_each(publish);
        for (number, array) in outputs.iter().enumerate() {
            let (operand, storage) = executable.output(number);
            // What aliases a state sees it as it was then, and may be stale by now.
            let version = versions[number].unwrap_or(storage.version());
            array.set_ready(Value {
                version,
                layout: layout_in_storage(operand),
                storage,
            });
        }
    });
    Ok(())
}

/// What is left to compute.
struct Pending {
    written: Written,
    found: Lookup,
}

/// Those of the arrays that are not ready, and what computing them works on.
fn pending(arrays: &[&Array]) -> Result<(Option<Pending>, Vec<ClaimedWork>), Error> {
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
    let written = Written::with_siblings(&pending, LowerOptions::default())?;
    // Here, where nobody else makes arrays ready: the graph is of what was seen.
    let found = Lookup::on(pending[0].device(), &written)?;
    if let Some(name) = found.graph().inputs().next() {
        return Err(Error::UnboundInput { name: name.to_string() });
    }
    let computed = written.outputs.iter().map(|array| ClaimedWork::Array(array.id()));
    let work = computed.chain(written.states().map(ClaimedWork::on)).collect();
    Ok((Some(Pending { written, found }), work))
}

impl StateUpdate {
    /// `computed`: the program's arrays; `storage`: the state's memory.
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
