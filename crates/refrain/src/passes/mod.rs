//! From a graph to a plan, in small passes. Each takes the whole and returns the whole, and what it
//! returns can be printed.

mod canonicalise;
mod choose;
mod fuse;
mod order;
mod place;
mod regions;
mod schedule;
mod write_through;

pub use canonicalise::canonicalise;
pub use choose::{Chosen, Kernels, choose, renumber};
pub use fuse::fuse;
pub use order::{Ordered, order};
pub use place::place;
pub use regions::regions;
pub use schedule::schedule;
pub use write_through::write_through;

use std::fmt::Display;

use crate::graph::Graph;
use crate::plan::Plan;
use crate::{Array, Device, Error};

/// The plan by which [`crate::eval`] would compute arrays, or a function's calls its outputs; runs nothing.
///
/// # Errors
/// Those of [`crate::eval`] short of running: invalid arrays, stale states, what the device cannot do;
/// and no arrays at all.
pub fn plan(outputs: &[&Array]) -> Result<Plan, Error> {
    let graph = Graph::trace(outputs)?;
    lower(graph, outputs[0].device())
}

/// How a graph is lowered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LowerOptions {
    /// Sequences of nodes that one dispatch can compute become one.
    pub regions: bool,
    /// Every result keeps its own memory, so that all can be looked at afterwards.
    pub keep: bool,
}

impl Default for LowerOptions {
    fn default() -> LowerOptions {
        LowerOptions {
            regions: true,
            keep: false,
        }
    }
}

/// [`lower_with`] the usual options.
///
/// # Errors
/// As [`lower_with`].
pub fn lower(graph: Graph, device: &Device) -> Result<Plan, Error> {
    lower_with(graph, device, LowerOptions::default())
}

/// All passes in order.
///
/// # Errors
/// [`Error::Unsupported`] where the device has no kernel for a node.
pub fn lower_with(graph: Graph, device: &Device, options: LowerOptions) -> Result<Plan, Error> {
    stages(graph, device, options, &mut |_, _| ())
}

/// The stages of a lowering, in order: the program as it was traced, and what each pass makes of it.
pub const NAMES: [&str; 9] = [
    "trace",
    "canonicalise",
    "fuse",
    "regions",
    "write_through",
    "choose",
    "order",
    "place",
    "schedule",
];

/// The program that computes `outputs` after the stage `after`, one of [`NAMES`]; nothing else is done
/// with it.
///
/// # Errors
/// As [`plan`]; no such stage.
pub fn printed(outputs: &[&Array], options: LowerOptions, after: &str) -> Result<String, Error> {
    let mut found = None;
    stages(
        Graph::trace(outputs)?,
        outputs[0].device(),
        options,
        &mut |stage, program| {
            if stage == after {
                found = Some(program.to_string());
            }
        },
    )?;
    found.ok_or_else(|| Error::Call(format!("there is no pass {after}; there are {}", NAMES.join(", "))))
}

/// All passes in order, each stage shown to `watch`.
fn stages(
    graph: Graph,
    device: &Device,
    options: LowerOptions,
    watch: &mut dyn FnMut(&'static str, &dyn Display),
) -> Result<Plan, Error> {
    watch("trace", &graph);
    let graph = canonicalise(graph);
    watch("canonicalise", &graph);
    let mut graph = fuse(graph);
    watch("fuse", &graph);
    if options.regions {
        graph = regions(graph, device);
    }
    watch("regions", &graph);
    let graph = write_through(graph);
    watch("write_through", &graph);
    let chosen = choose(graph, device)?;
    watch("choose", &chosen.graph);
    let ordered = order(chosen);
    watch("order", &ordered.graph);
    let plan = place(ordered, options.keep);
    watch("place", &plan);
    let plan = schedule(plan);
    watch("schedule", &plan);
    Ok(plan)
}
