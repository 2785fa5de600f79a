//! From a graph to a plan, in small passes. Each takes the whole and returns the whole, and what it
//! returns can be printed.

mod canonicalise;
mod choose;
mod fuse;
mod place;
mod schedule;
mod write_through;

pub use canonicalise::canonicalise;
pub use choose::choose;
pub use fuse::fuse;
pub use place::place;
pub use schedule::schedule;
pub use write_through::write_through;

use crate::graph::Graph;
use crate::plan::Plan;
use crate::{Device, Error};

/// All passes in order.
///
/// # Errors
/// [`Error::Unsupported`] where the device has no kernel for a node.
pub fn lower(graph: Graph, device: &Device) -> Result<Plan, Error> {
    let graph = canonicalise(graph);
    let graph = fuse(graph);
    let graph = write_through(graph);
    let chosen = choose(graph, device)?;
    Ok(schedule(place(chosen, device)))
}
