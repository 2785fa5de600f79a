//! Lowered programs and the cache of them, keyed by signature.

use std::sync::{Arc, Mutex};

use crate::execute::Compiled;
use crate::explain::EvaluationLog;
use crate::graph::Graph;
use crate::plan::Plan;
use crate::signature::{FastMap, Signature};

/// Number of programs that a device caches. A model has a few for each of its sessions' shapes, a training loop one.
const MAX_CACHED_PROGRAMS: usize = 256;

/// A graph lowered for a device, without memory. Leaves are numbered slots, and memory is bound to them when the
/// program runs ([`crate::Bindings`]). One program therefore serves all arrays of the same structure: evaluated again,
/// traced by a [`crate::Function`], or recorded as a [`crate::Tape`].
pub(crate) struct Program {
    /// The graph before the passes.
    pub graph: Graph,
    pub updates: Vec<StateUpdate>,
    /// For each output that is a state or a view of one, the version that it reads.
    pub output_versions: Vec<Option<OutputVersion>>,
    pub compiled: Arc<Compiled>,
}

impl Program {
    pub fn plan(&self) -> &Plan {
        self.compiled.plan()
    }
}

/// A program's graph before the passes, and its effects on states. It refers to no memory.
pub(crate) struct ProgramGraph {
    pub graph: Graph,
    /// In program order.
    pub updates: Vec<StateUpdate>,
    /// For each output that is a state or a view of one, the version that it reads.
    pub output_versions: Vec<Option<OutputVersion>>,
}

/// The version of a state that an output reads, and the last version that the program makes. Both count updates
/// from the version that the program starts with.
#[derive(Clone, Copy)]
pub(crate) struct OutputVersion {
    pub slot: usize,
    pub version: i64,
    pub last: i64,
}

/// An in-place update of a state.
pub(crate) struct StateUpdate {
    pub slot: usize,
    /// The computation that makes the next version, as its index in `TracedGraph::computed`, and which of its results.
    pub by: (usize, usize),
}

/// Counters of a device's program cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProgramCounts {
    /// Programs lowered: new, or evicted before.
    pub lowerings: u64,
    /// Programs found in the cache.
    pub hits: u64,
    /// Updates of values, such as [`crate::Array::slice_update`], that wrote over their input, because nothing else
    /// referred to it.
    pub in_place: u64,
    /// Updates of values that copied their input.
    pub copies: u64,
}

/// A device's cache of programs, with least-recently-used eviction, and a log of their evaluations.
#[derive(Default)]
pub(crate) struct ProgramCache {
    entries: Mutex<CacheEntries>,
    log: EvaluationLog,
}

#[derive(Default)]
struct CacheEntries {
    programs: FastMap<Signature, (Arc<Program>, u64)>,
    counts: ProgramCounts,
    /// Incremented at each use.
    clock: u64,
}

impl ProgramCache {
    pub fn find(&self, signature: &Signature) -> Option<Arc<Program>> {
        let mut entries = self.lock();
        entries.clock += 1;
        let now = entries.clock;
        let (program, used) = entries.programs.get_mut(signature)?;
        *used = now;
        let program = program.clone();
        entries.counts.hits += 1;
        Some(program)
    }

    pub fn insert(&self, signature: Signature, program: Arc<Program>) {
        let mut entries = self.lock();
        entries.counts.lowerings += 1;
        let now = entries.clock;
        entries.programs.insert(signature, (program, now));
        let mut evicted = None;
        if entries.programs.len() > MAX_CACHED_PROGRAMS {
            let oldest = entries.programs.iter().min_by_key(|(_, (_, used))| *used);
            let oldest = oldest.map(|(signature, _)| signature.clone());
            evicted = oldest.and_then(|oldest| entries.programs.remove(&oldest));
        }
        // The evicted program's device resources are freed after the lock is released.
        drop(entries);
        drop(evicted);
    }

    pub fn counts(&self) -> ProgramCounts {
        let [in_place, copies] = self.log.updates();
        ProgramCounts {
            in_place,
            copies,
            ..self.lock().counts
        }
    }

    pub fn log(&self) -> &EvaluationLog {
        &self.log
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, CacheEntries> {
        self.entries.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
