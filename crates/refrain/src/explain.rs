//! What the last evaluations of a device did, as text for the user.

use std::collections::VecDeque;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use crate::DType;
use crate::graph::{Graph, Node};
use crate::integers::IntegerSources;
use crate::program::Program;
use crate::signature::Signature;

/// Number of evaluations that are remembered.
const MAX_EVALUATIONS: usize = 16;

/// Number of programs with which a new one is compared.
const MAX_PROGRAMS: usize = 4;

/// An evaluation that took place.
pub(crate) struct Evaluation {
    /// Number of arrays that were computed.
    pub arrays: usize,
    /// Number of steps that its program computes them in.
    pub steps: usize,
    /// Why its program was lowered. `None` if it was found in the cache.
    pub lowered: Option<String>,
    /// Whether the same commands ran before, in the same memory.
    pub is_replay: bool,
    /// Number of updates that wrote over their input.
    pub in_place: usize,
    /// Number of updates that copied their input.
    pub copies: usize,
}

/// The last evaluations of a device.
#[derive(Default)]
pub(crate) struct EvaluationLog(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    /// Number of evaluations so far.
    count: u64,
    in_place: u64,
    copies: u64,
    replays: u64,
    evaluations: VecDeque<Evaluation>,
    /// The programs that ran last, the newest first.
    programs: VecDeque<Arc<Program>>,
}

impl EvaluationLog {
    pub fn add(&self, evaluation: Evaluation, program: &Arc<Program>) {
        let mut entries = self.lock();
        entries.count += 1;
        entries.in_place += evaluation.in_place as u64;
        entries.copies += evaluation.copies as u64;
        entries.replays += u64::from(evaluation.is_replay);
        entries.evaluations.push_back(evaluation);
        if entries.evaluations.len() > MAX_EVALUATIONS {
            entries.evaluations.pop_front();
        }
        entries.programs.retain(|other| !Arc::ptr_eq(other, program));
        entries.programs.push_front(program.clone());
        let evicted = (entries.programs.len() > MAX_PROGRAMS).then(|| entries.programs.pop_back());
        // Device resources are freed after the lock is released.
        drop(entries);
        drop(evicted);
    }

    /// Numbers of updates that wrote over their input, and that copied it.
    pub fn updates(&self) -> [u64; 2] {
        let entries = self.lock();
        [entries.in_place, entries.copies]
    }

    /// Number of evaluations that ran the same commands in the same memory as an earlier one.
    pub fn replays(&self) -> u64 {
        self.lock().replays
    }

    /// Sources of the integers of a new program, from a similar one that ran lately and whose integers changed.
    pub fn integer_sources(&self, integers: &[i32]) -> Option<IntegerSources> {
        let entries = self.lock();
        entries
            .programs
            .iter()
            .find_map(|program| program.integers.adopted(integers))
    }

    /// Why no program that ran lately computes `graph`.
    pub fn difference(&self, graph: &Graph) -> String {
        let programs: Vec<Arc<Program>> = self.lock().programs.iter().cloned().collect();
        let distance = |program: &&Arc<Program>| program.graph.nodes.len().abs_diff(graph.nodes.len());
        match programs.iter().min_by_key(distance) {
            None => "it is the first program".to_string(),
            Some(program) => first_difference(graph, &program.graph),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Where a graph differs from an earlier one.
fn first_difference(graph: &Graph, earlier: &Graph) -> String {
    // Constants i32 without dimensions may be integers that are no part of the signature.
    let is_integer = |node: &Node| node.inputs.is_empty() && node.shape.is_empty() && node.dtype == DType::I32;
    let is_computed = |node: &&Node| !node.primitive.is_leaf() && !is_integer(node);
    let [new, old] = [graph, earlier].map(|graph| graph.nodes.iter().filter(is_computed).collect::<Vec<_>>());
    match new
        .iter()
        .zip(&old)
        .position(|(new, old)| signature(new) != signature(old))
    {
        Some(number) => format!(
            "array {number} of {} is {}, not {} as before",
            new.len(),
            described(new[number]),
            described(old[number])
        ),
        None if new.len() != old.len() => format!("there are {} arrays, not {} as before", new.len(), old.len()),
        None => "the arrays depend on each other in another way, or others of them are kept".to_string(),
    }
}

fn signature(node: &Node) -> Signature {
    let mut signature = Signature::default();
    (&node.primitive, &node.shape, node.dtype).hash(&mut signature);
    signature
}

fn described(node: &Node) -> String {
    format!("{} {}{:?}", node.primitive, node.dtype, node.shape)
}

impl fmt::Display for EvaluationLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.lock();
        let Entries { in_place, copies, .. } = *entries;
        writeln!(f, "updates of arrays: {in_place} in place, {copies} copied")?;
        writeln!(f, "evaluations: {}, of which the last:", entries.count)?;
        let first = entries.count - entries.evaluations.len() as u64;
        for (number, evaluation) in (first + 1..).zip(&entries.evaluations) {
            let Evaluation {
                arrays,
                steps,
                lowered,
                is_replay,
                in_place,
                copies,
            } = evaluation;
            write!(f, "  {number}: {arrays} arrays in {steps} steps, ")?;
            match lowered {
                None if *is_replay => f.write_str("program replayed")?,
                None => f.write_str("program found in the cache")?,
                Some(reason) => write!(f, "program lowered: {reason}")?,
            }
            if *in_place + *copies > 0 {
                write!(f, "; updates: {in_place} in place, {copies} copied")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
