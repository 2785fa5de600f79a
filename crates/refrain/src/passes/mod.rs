//! Lowering: small passes that turn a graph into a plan. Each takes the whole program and returns a new one, which can
//! be printed.
//!
//! [`canonicalise()`] removes views, [`overwrite()`] lets updates write over values, [`fuse()`] joins elementwise nodes,
//! [`regions()`] joins products with what surrounds them, [`write_through()`] removes transposing copies, [`choose()`]
//! selects kernels, [`order()`] groups independent nodes, [`place()`] assigns memory and [`schedule()`] finds the
//! dependencies.

mod canonicalise;
mod choose;
mod fuse;
mod options;
mod order;
mod overwrite;
mod place;
mod regions;
mod schedule;
mod write_through;

pub use crate::operation::{Kernels, renumber};
pub use canonicalise::canonicalise;
pub use choose::{Chosen, choose};
pub use fuse::fuse;
pub use options::LowerOptions;
pub use order::{Ordered, order};
pub use overwrite::overwrite;
pub use place::place;
pub use regions::regions;
pub use schedule::schedule;
pub use write_through::write_through;

use std::fmt::Display;

use crate::graph::Graph;
use crate::plan::Plan;
use crate::{Array, Device, Error};

/// The plan by which [`crate::eval`] would compute arrays. Runs nothing.
///
/// # Errors
/// As [`crate::eval`], except for errors of running; also fails if there are no arrays.
pub fn plan(outputs: &[&Array]) -> Result<Plan, Error> {
    let graph = Graph::trace(outputs)?;
    lower(graph, outputs[0].device())
}

/// [`lower_with`] default options.
///
/// # Errors
/// As [`lower_with`].
pub fn lower(graph: Graph, device: &Device) -> Result<Plan, Error> {
    lower_with(graph, device, LowerOptions::default())
}

/// Runs all passes in order.
///
/// # Errors
/// [`Error::Unsupported`] if the device has no kernel for a node.
pub fn lower_with(graph: Graph, device: &Device, options: LowerOptions) -> Result<Plan, Error> {
    stages(graph, device, options, &mut |_, _| ())
}

/// The stages of lowering, in order: the traced graph, then the result of each pass.
pub const STAGE_NAMES: [&str; 10] = [
    "trace",
    "canonicalise",
    "overwrite",
    "fuse",
    "regions",
    "write_through",
    "choose",
    "order",
    "place",
    "schedule",
];

/// The program that computes `outputs` as text, after the stage `after`, one of [`STAGE_NAMES`].
///
/// # Errors
/// As [`plan`]; also fails if there is no such stage.
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
    found.ok_or_else(|| {
        Error::Call(format!(
            "there is no pass {after}; the passes are {}",
            STAGE_NAMES.join(", ")
        ))
    })
}

/// Runs all passes in order, and calls `watch` with the result of each.
fn stages(
    graph: Graph,
    device: &Device,
    options: LowerOptions,
    watch: &mut dyn FnMut(&'static str, &dyn Display),
) -> Result<Plan, Error> {
    watch("trace", &graph);
    let graph = canonicalise(graph);
    watch("canonicalise", &graph);
    let graph = overwrite(graph);
    watch("overwrite", &graph);
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
