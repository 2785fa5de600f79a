//! Programs without memory, found again by what they are.

use std::sync::{Arc, Mutex};

use crate::execute::Compiled;
use crate::graph::{Graph, SeenVersion, StateUpdate, Traced};
use crate::passes::{self, LowerOptions};
use crate::plan::Plan;
use crate::signature::{FastMap, Signature};
use crate::storage::Storage;
use crate::written::Written;
use crate::{Array, Device, Error};

/// The most programs that a device keeps: a model has a few for each of its sessions' shapes, a training loop one.
const MOST_KEPT: usize = 256;

/// What some arrays compute, lowered for a device. Leaves of its graph are numbered slots, and memory is bound to
/// them when it runs ([`Bindings`]), so one program serves all arrays that are made in the same way: evaluated
/// again, traced by a [`crate::Function`], or recorded as a [`crate::Tape`].
pub(crate) struct Program {
    /// As it was written.
    pub graph: Graph,
    pub updates: Vec<StateUpdate>,
    /// For each output that is a state or a view of one: what it sees of it.
    pub seen: Vec<Option<SeenVersion>>,
    pub compiled: Arc<Compiled>,
}

impl Program {
    fn lower(traced: Traced, device: &Device, options: LowerOptions) -> Result<Program, Error> {
        let Traced { graph, updates, seen } = traced;
        let plan = passes::lower_with(graph.clone(), device, options)?;
        Ok(Program {
            graph,
            updates,
            seen,
            compiled: Arc::new(Compiled::new(device, plan)?),
        })
    }

    pub fn plan(&self) -> &Plan {
        self.compiled.plan()
    }
}

/// A program that was looked for: its own, or what it is to be lowered from.
pub(crate) enum Lookup {
    Kept(Arc<Program>),
    New(Traced),
}

impl Lookup {
    /// The program of what was written on `device`. Looks at the arrays and lowers nothing.
    ///
    /// # Errors
    /// [`Error::StaleState`].
    pub fn on(device: &Device, written: &Written) -> Result<Lookup, Error> {
        match device.programs().find(&written.signature) {
            Some(program) => Ok(Lookup::Kept(program)),
            None => Ok(Lookup::New(Traced::of(written)?)),
        }
    }

    /// For each output that is a state or a view of one: what it sees of it.
    pub fn seen(&self) -> &[Option<SeenVersion>] {
        match self {
            Lookup::Kept(program) => &program.seen,
            Lookup::New(traced) => &traced.seen,
        }
    }

    /// The program as it was written.
    pub fn graph(&self) -> &Graph {
        match self {
            Lookup::Kept(program) => &program.graph,
            Lookup::New(traced) => &traced.graph,
        }
    }

    /// The program, lowered now if it was not before.
    ///
    /// # Errors
    /// What the device cannot compute; too little memory; a shader that the driver refuses.
    pub fn lowered(self, device: &Device, written: Signature, options: LowerOptions) -> Result<Arc<Program>, Error> {
        match self {
            Lookup::Kept(program) => Ok(program),
            Lookup::New(traced) => {
                let program = Arc::new(Program::lower(traced, device, options)?);
                device.programs().keep(written, program.clone());
                Ok(program)
            }
        }
    }
}

/// How often programs were lowered on a device, and how often one was there already.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProgramCounts {
    /// Programs that were new, or had gone.
    pub lowerings: u64,
    /// Programs that were found again.
    pub hits: u64,
}

/// The programs of a device, those that were used last.
#[derive(Default)]
pub(crate) struct Programs(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    programs: FastMap<Signature, (Arc<Program>, u64)>,
    counts: ProgramCounts,
    /// Grows with each use.
    clock: u64,
}

impl Programs {
    fn find(&self, signature: &Signature) -> Option<Arc<Program>> {
        let mut kept = self.lock();
        kept.clock += 1;
        let now = kept.clock;
        let (program, used) = kept.programs.get_mut(signature)?;
        *used = now;
        let program = program.clone();
        kept.counts.hits += 1;
        Some(program)
    }

    fn keep(&self, signature: Signature, program: Arc<Program>) {
        let mut kept = self.lock();
        kept.counts.lowerings += 1;
        let now = kept.clock;
        kept.programs.insert(signature, (program, now));
        let mut gone = None;
        if kept.programs.len() > MOST_KEPT {
            let oldest = kept.programs.iter().min_by_key(|(_, (_, used))| *used);
            let oldest = oldest.map(|(signature, _)| signature.clone());
            gone = oldest.and_then(|oldest| kept.programs.remove(&oldest));
        }
        // What it held of the device is given back once others may look again.
        drop(kept);
        drop(gone);
    }

    pub fn counts(&self) -> ProgramCounts {
        self.lock().counts
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The memory of a program's leaves, by slot.
#[derive(Clone, Debug)]
pub struct Bindings(pub(crate) Vec<Storage>);

impl Bindings {
    /// What the plan of `outputs` ([`crate::passes::plan`]) is bound to when they are evaluated.
    ///
    /// # Errors
    /// The error of an invalid array; arrays of several devices, or none.
    pub fn of(outputs: &[&Array]) -> Result<Bindings, Error> {
        Ok(Bindings(Written::alone(outputs, LowerOptions::default())?.slots))
    }
}
