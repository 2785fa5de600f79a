//! Checks that a plan's barriers order all conflicting memory accesses.
//!
//! A device may run the dispatches between two barriers concurrently and in any order, and software devices do not
//! reveal a missing barrier. [`prove`] therefore examines every pair of accesses to a common byte of which one is a
//! write, and what orders them. It does not rely on the scheduler.
//!
//! A plan that runs repeatedly is a cycle: its last steps precede its first ones. A [`Timeline`] therefore has two
//! runs, with what the host writes before each and reads after each. [`run_among_poison`] shows by running the steps
//! one at a time that they access no bytes other than those of their operands.

mod bytes;
mod ranges;
mod timeline;

use std::collections::HashMap;
use std::fmt;

pub use ranges::{OutOfBoundsWrite, run_among_poison};
pub use timeline::{Guarantee, Origin, Timeline};

use crate::plan::{Block, Plan, Range};
use bytes::Bytes;
use timeline::{Event, MemoryAccess};

/// The result of checking all conflicting pairs of accesses.
#[derive(Clone, Debug)]
pub struct Proof {
    /// Number of conflicting pairs that are ordered.
    pub ordered: usize,
    /// The pairs that are not ordered.
    pub unordered: Vec<Hazard>,
}

/// How two accesses conflict.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HazardKind {
    /// The second reads what the first writes.
    ReadAfterWrite,
    /// The second writes what the first reads.
    WriteAfterRead,
    /// Both write.
    WriteAfterWrite,
}

/// Two conflicting accesses that nothing orders.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hazard {
    /// How they conflict.
    pub kind: HazardKind,
    /// The first access.
    pub first: Origin,
    /// The second access.
    pub second: Origin,
    /// Whether the second access belongs to the next run.
    pub next_run: bool,
    /// The first bytes that both access.
    pub range: Range,
}

/// Checks all pairs of accesses in two runs of `plan`.
pub fn prove(plan: &Plan) -> Proof {
    Timeline::of(plan).prove()
}

/// The number of ordering events before an access, by kind.
#[derive(Clone, Copy, Default)]
struct EventCounts {
    barriers: usize,
    submits: usize,
    host_barriers: usize,
    waits: usize,
}

/// The accesses to a block so far, as indices among all accesses, with their bytes.
#[derive(Default)]
struct Earlier<'t> {
    reads: Vec<(usize, &'t Bytes)>,
    writes: Vec<(usize, &'t Bytes)>,
}

impl Timeline {
    /// Checks all pairs of accesses.
    pub fn prove(&self) -> Proof {
        let mut accesses: Vec<(&MemoryAccess, EventCounts)> = vec![];
        let mut before = EventCounts::default();
        for event in &self.events {
            match event {
                Event::Barrier(_) | Event::Guarantee(Guarantee::Head) => before.barriers += 1,
                Event::Guarantee(Guarantee::Submit) => before.submits += 1,
                Event::Guarantee(Guarantee::HostBarrier) => before.host_barriers += 1,
                Event::Guarantee(Guarantee::Wait) => before.waits += 1,
                Event::Access(access) => accesses.push((access, before)),
            }
        }
        let mut blocks: HashMap<Block, Earlier> = HashMap::new();
        let mut proof = Proof {
            ordered: 0,
            unordered: vec![],
        };
        // For each earlier access, the last access that it was found to conflict with.
        let mut last_conflict = vec![usize::MAX; accesses.len()];
        for (number, (access, _)) in accesses.iter().enumerate() {
            let mut check_against = |earlier: &[(usize, &Bytes)], bytes: &Bytes, kind| {
                for &(first, theirs) in earlier {
                    if last_conflict[first] == number || accesses[first].0.is_independent_of(access) {
                        continue;
                    }
                    if let Some(range) = theirs.common(bytes) {
                        last_conflict[first] = number;
                        proof.add_pair(accesses[first], accesses[number], kind, range);
                    }
                }
            };
            for bytes in &access.reads {
                if let Some(seen) = blocks.get(&bytes.block) {
                    check_against(&seen.writes, bytes, HazardKind::ReadAfterWrite);
                }
            }
            for bytes in &access.writes {
                if let Some(seen) = blocks.get(&bytes.block) {
                    check_against(&seen.writes, bytes, HazardKind::WriteAfterWrite);
                    check_against(&seen.reads, bytes, HazardKind::WriteAfterRead);
                }
            }
            if access.ring {
                continue;
            }
            for bytes in &access.reads {
                blocks.entry(bytes.block).or_default().reads.push((number, bytes));
            }
            for bytes in &access.writes {
                blocks.entry(bytes.block).or_default().writes.push((number, bytes));
            }
        }
        proof
    }
}

impl Proof {
    fn add_pair(
        &mut self,
        first: (&MemoryAccess, EventCounts),
        second: (&MemoryAccess, EventCounts),
        kind: HazardKind,
        range: Range,
    ) {
        let ((first, counts_then), (second, counts_now)) = (first, second);
        let ordered = match (first.on_host, second.on_host) {
            (false, false) => counts_now.barriers > counts_then.barriers,
            (true, false) => counts_now.submits > counts_then.submits,
            (false, true) => {
                let visible =
                    kind == HazardKind::WriteAfterRead || counts_now.host_barriers > counts_then.host_barriers;
                counts_now.waits > counts_then.waits && visible
            }
            (true, true) => true,
        };
        if ordered {
            self.ordered += 1;
        } else if first.run == 0 {
            // Conflicts within the second run repeat those of the first.
            self.unordered.push(Hazard {
                kind,
                first: first.origin.clone(),
                second: second.origin.clone(),
                next_run: second.run > first.run,
                range,
            });
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Arguments => f.write_str("the host's arguments"),
            Origin::Inbox => f.write_str("the inbox"),
            Origin::Step { number, name, call } => {
                write!(f, "step {number} ({name})")?;
                call.map_or(Ok(()), |call| write!(f, " dispatch {call}"))
            }
            Origin::Results => f.write_str("the copy of the results"),
            Origin::Host => f.write_str("the host"),
        }
    }
}

impl fmt::Display for Hazard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hazard { first, second, .. } = self;
        let (late, early) = match self.kind {
            HazardKind::ReadAfterWrite => ("reads", "writes"),
            HazardKind::WriteAfterRead => ("writes", "reads"),
            HazardKind::WriteAfterWrite => ("writes", "writes"),
        };
        let run = if self.next_run { " of the next run" } else { "" };
        let range = &self.range;
        write!(
            f,
            "{second}{run} {late} {}[{}..{}], which {first} {early}, and nothing orders them",
            range.block, range.start, range.end
        )
    }
}
