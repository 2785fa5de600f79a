//! Lowered programs and the cache of them, keyed by signature.

use std::sync::{Arc, Mutex};

use crate::execute::Compiled;
use crate::explain::EvaluationLog;
use crate::graph::Graph;
use crate::integers::IntegerSources;
use crate::plan::Plan;
use crate::rotation::Rotation;
use crate::signature::{FastMap, Signature};

/// Number of programs that a device caches. A model has a few for each shape of its steps, a training loop one.
const MAX_CACHED_PROGRAMS: usize = 256;

/// Number of cached programs that ran only once, above which one of them is evicted first.
const MAX_SINGLE_PROGRAMS: usize = 64;

/// A graph lowered for a device, without memory. Leaves are numbered slots, and memory is bound to them when the
/// program runs ([`crate::Bindings`]). One program therefore serves all arrays of the same structure: evaluated again,
/// traced by a [`crate::Function`], or recorded as a [`crate::Tape`].
pub(crate) struct Program {
    /// Where it has the integers that are no part of its signature.
    pub integers: IntegerSources,
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
    /// Where the graph has the integers that are no part of its signature.
    pub integers: IntegerSources,
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
    /// Evaluations that ran the same commands in the same memory as an earlier one, so that nothing was recorded.
    pub replays: u64,
}

/// A device's cache of programs, with least-recently-used eviction, and a log of their evaluations.
#[derive(Default)]
pub(crate) struct ProgramCache {
    entries: Mutex<CacheEntries>,
    log: EvaluationLog,
    rotation: Rotation,
}

#[derive(Default)]
struct CacheEntries {
    programs: FastMap<Signature, CacheEntry>,
    counts: ProgramCounts,
    /// Incremented at each use.
    clock: u64,
}

struct CacheEntry {
    program: Arc<Program>,
    /// The time of the last use.
    used: u64,
    /// Whether it was found again since it was lowered.
    is_reused: bool,
}

/// The result of a search in the cache.
pub(crate) enum Found {
    /// A program for these integers.
    Program(Arc<Program>),
    /// A program that has other integers as constants; where the next one should have them.
    OtherIntegers(IntegerSources),
    Nothing,
}

impl ProgramCache {
    /// Looks for a program that computes with these integers.
    pub fn find(&self, signature: &Signature, integers: &[i32]) -> Found {
        let mut entries = self.lock();
        entries.clock += 1;
        let now = entries.clock;
        let Some(entry) = entries.programs.get_mut(signature) else {
            return Found::Nothing;
        };
        if entry.program.integers.words(integers).is_none() {
            return Found::OtherIntegers(entry.program.integers.generalised(integers));
        }
        entry.used = now;
        entry.is_reused = true;
        let program = entry.program.clone();
        entries.counts.hits += 1;
        Found::Program(program)
    }

    pub fn insert(&self, signature: Signature, program: Arc<Program>) {
        let mut entries = self.lock();
        entries.counts.lowerings += 1;
        let now = entries.clock;
        let entry = CacheEntry {
            program,
            used: now,
            is_reused: false,
        };
        let replaced = entries.programs.insert(signature, entry);
        let evicted = entries.evict();
        // The evicted program's device resources are freed after the lock is released.
        drop(entries);
        drop((replaced, evicted));
    }

    pub fn counts(&self) -> ProgramCounts {
        let [in_place, copies] = self.log.updates();
        ProgramCounts {
            in_place,
            copies,
            replays: self.log.replays(),
            ..self.lock().counts
        }
    }

    pub fn log(&self) -> &EvaluationLog {
        &self.log
    }

    /// Executables of programs that are evaluated again and again.
    pub fn rotation(&self) -> &Rotation {
        &self.rotation
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, CacheEntries> {
        self.entries.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl CacheEntries {
    /// Removes a program if there are too many: the least recently used, or one that ran only once if there are many of
    /// those. So programs that differ at each evaluation do not evict the others.
    fn evict(&mut self) -> Option<CacheEntry> {
        if self.programs.len() <= MAX_CACHED_PROGRAMS {
            return None;
        }
        let single = self.programs.values().filter(|entry| !entry.is_reused).count();
        let candidates = self.programs.iter();
        let candidates = candidates.filter(|(_, entry)| single <= MAX_SINGLE_PROGRAMS || !entry.is_reused);
        let oldest = candidates.min_by_key(|(_, entry)| entry.used)?.0.clone();
        self.programs.remove(&oldest)
    }
}
