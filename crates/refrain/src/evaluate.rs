//! Evaluation: from arrays to one plan, one submit, and arrays that are ready.

use crate::array::{Content, Value};
use crate::claims::{Claim, Work};
use crate::device::Flush;
use crate::execute::{Executable, layout_in_storage};
use crate::graph::{Graph, Traced, Update};
use crate::{Array, Error, Layout, passes};

/// Computes several arrays of one device by one plan and one submit. Updates of states among what they
/// depend on happen, in the order in which the program made them, and once: where several threads evaluate
/// what depends on an update, one of them makes it, and all see it.
///
/// # Errors
/// The first error of an invalid array; operations that the device cannot do; a state read at a version
/// that is no longer there; a placeholder of a traced function; failures of the device.
pub fn eval(arrays: &[&Array]) -> Result<(), Error> {
    evaluate(arrays, Flush::Requested)
}

pub(crate) fn evaluate(arrays: &[&Array], reason: Flush) -> Result<(), Error> {
    let (pending, claim) = Claim::of(|| pending(arrays))?;
    let Some(Pending { arrays, traced }) = pending else {
        return Ok(());
    };
    let Traced { graph, updates, seen } = traced;
    let plan = passes::lower(graph, arrays[0].device())?;
    let executable = Executable::new(plan)?;
    executable.run(reason)?;
    claim.end(|| {
        updates.into_iter().for_each(Update::publish);
        for (number, array) in arrays.iter().enumerate() {
            let (operand, storage) = executable.output(number);
            // What aliases a state sees it as it was then, and may be stale by now.
            let version = seen[number].map_or(storage.version(), |seen| seen.version);
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
struct Pending<'a> {
    arrays: Vec<&'a Array>,
    traced: Traced,
}

/// Those of the arrays that are not ready, and what computing them works on.
fn pending<'a>(arrays: &[&'a Array]) -> Result<(Option<Pending<'a>>, Vec<Work>), Error> {
    let mut pending: Vec<&Array> = Vec::new();
    for array in arrays {
        match &*array.content() {
            Content::Invalid(error) => return Err(error.clone()),
            Content::Ready(_) => {}
            Content::Lazy(..) => pending.push(array),
        }
    }
    if pending.is_empty() {
        return Ok((None, vec![]));
    }
    let traced = Graph::of(&pending)?;
    if let Some(name) = traced.graph.inputs().next() {
        return Err(Error::UnboundInput { name: name.to_string() });
    }
    let computed = pending.iter().map(|array| Work::Array(array.id()));
    let work = computed.chain(traced.states().map(Work::on)).collect();
    let arrays = pending;
    Ok((Some(Pending { arrays, traced }), work))
}

impl Update {
    fn publish(self) {
        let Update {
            storage,
            changes,
            array,
        } = self;
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
}
