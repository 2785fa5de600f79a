//! Evaluation: from arrays to one plan, one submit, and arrays that are ready.

use crate::array::{Content, Value};
use crate::device::Flush;
use crate::execute::{Executable, layout_in_storage};
use crate::graph::{Graph, Update};
use crate::{Array, Error, Layout, passes};

/// Computes several arrays of one device by one plan and one submit. Updates of states among what they
/// depend on happen, in the order in which the program made them.
///
/// # Errors
/// The first error of an invalid array; operations that the device cannot do; a state read at a version
/// that is no longer there; a placeholder of a traced function; failures of the device.
pub fn eval(arrays: &[&Array]) -> Result<(), Error> {
    evaluate(arrays, Flush::Requested)
}

pub(crate) fn evaluate(arrays: &[&Array], reason: Flush) -> Result<(), Error> {
    let mut pending: Vec<&Array> = Vec::new();
    for array in arrays {
        match &*array.content() {
            Content::Invalid(error) => return Err(error.clone()),
            Content::Ready(_) => {}
            Content::Lazy(..) => pending.push(array),
        }
    }
    let Some(device) = pending.first().map(|a| a.device().clone()) else {
        return Ok(());
    };
    let traced = Graph::of(&pending)?;
    if let Some(name) = traced.graph.inputs().next() {
        return Err(Error::UnboundInput { name: name.to_string() });
    }
    let plan = passes::lower(traced.graph, &device)?;
    let executable = Executable::new(plan)?;
    executable.run(reason)?;
    for Update {
        storage,
        changes,
        array,
    } in traced.updates
    {
        if changes {
            storage.advance();
        }
        if let Some(array) = array {
            array.set_ready(Value {
                version: storage.version(),
                layout: Layout::contiguous(array.shape()),
                storage,
            });
        }
    }
    for (number, array) in pending.iter().enumerate() {
        let (operand, storage) = executable.output(number);
        // What aliases a state sees it as it was then, and may be stale by now.
        let version = traced.seen[number].map_or(storage.version(), |seen| seen.version);
        array.set_ready(Value {
            version,
            layout: layout_in_storage(operand),
            storage,
        });
    }
    Ok(())
}
