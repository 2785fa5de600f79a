//! Looks for the programs of traced arrays in the cache of their device, and lowers those that are new.

use std::sync::Arc;

use crate::execute::Compiled;
use crate::graph::Graph;
use crate::integers::IntegerSources;
use crate::passes::{self, LowerOptions};
use crate::program::{Found, OutputVersion, Program, ProgramGraph};
use crate::signature::Signature;
use crate::traced_graph::TracedGraph;
use crate::{Device, Error};

/// The result of a cache lookup: the cached program, or the graph to lower.
pub(crate) enum Lookup {
    Cached(Arc<Program>),
    New(ProgramGraph),
    /// The graph of a cached program with other integers.
    OtherIntegers(ProgramGraph),
}

impl Lookup {
    /// Looks for the program of `traced` in the cache of `device`. Reads the arrays and lowers nothing.
    ///
    /// # Errors
    /// [`Error::StaleState`].
    pub fn on(device: &Device, traced: &TracedGraph) -> Result<Lookup, Error> {
        Lookup::or_new(device, traced, || IntegerSources::constant(&traced.integers))
    }

    /// [`Lookup::on`] for an evaluation, which can write integers that its program reads.
    ///
    /// # Errors
    /// As [`Lookup::on`].
    pub fn for_evaluation(device: &Device, traced: &TracedGraph) -> Result<Lookup, Error> {
        Lookup::or_new(device, traced, || {
            let adopted = device.programs().log().integer_sources(&traced.integers);
            adopted.unwrap_or_else(|| IntegerSources::constant(&traced.integers))
        })
    }

    /// The cached program, or the graph of a new one with these integers.
    fn or_new(
        device: &Device,
        traced: &TracedGraph,
        integers: impl FnOnce() -> IntegerSources,
    ) -> Result<Lookup, Error> {
        match device.programs().find(&traced.signature, &traced.integers) {
            Found::Program(program) => Ok(Lookup::Cached(program)),
            Found::OtherIntegers(integers) => Ok(Lookup::OtherIntegers(ProgramGraph::of(traced, integers)?)),
            Found::Nothing => Ok(Lookup::New(ProgramGraph::of(traced, integers())?)),
        }
    }

    /// For each output that is a state or a view of one, the version that it reads.
    pub fn output_versions(&self) -> &[Option<OutputVersion>] {
        match self {
            Lookup::Cached(program) => &program.output_versions,
            Lookup::New(traced) | Lookup::OtherIntegers(traced) => &traced.output_versions,
        }
    }

    /// The graph before the passes.
    pub fn graph(&self) -> &Graph {
        match self {
            Lookup::Cached(program) => &program.graph,
            Lookup::New(traced) | Lookup::OtherIntegers(traced) => &traced.graph,
        }
    }

    /// Why the program has to be lowered. `None` if it is cached.
    pub fn reason_to_lower(&self, device: &Device) -> Option<String> {
        match self {
            Lookup::Cached(_) => None,
            Lookup::New(traced) => Some(device.programs().log().difference(&traced.graph)),
            Lookup::OtherIntegers(_) => Some(
                "its integers (positions, lengths, starts of slices) changed, and are read from memory now".to_string(),
            ),
        }
    }

    /// Returns the program, and lowers and caches it if it is new.
    ///
    /// # Errors
    /// Fails if the device does not support an operation, if memory runs out, or if the driver rejects a shader.
    pub fn get_or_lower(
        self,
        device: &Device,
        signature: Signature,
        options: LowerOptions,
    ) -> Result<Arc<Program>, Error> {
        match self {
            Lookup::Cached(program) => Ok(program),
            Lookup::New(traced) | Lookup::OtherIntegers(traced) => {
                let program = Arc::new(lower(traced, device, options)?);
                device.programs().insert(signature, program.clone());
                Ok(program)
            }
        }
    }
}

fn lower(traced: ProgramGraph, device: &Device, options: LowerOptions) -> Result<Program, Error> {
    let ProgramGraph {
        graph,
        integers,
        updates,
        output_versions,
    } = traced;
    let plan = passes::lower_with(graph.clone(), device, options)?;
    Ok(Program {
        graph,
        integers,
        updates,
        output_versions,
        compiled: Arc::new(Compiled::new(device, plan)?),
    })
}
