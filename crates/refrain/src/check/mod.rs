//! The proof that a plan's barriers order all that must be ordered.
//!
//! A device runs dispatches between two barriers at once and in any order, and software devices do not
//! show it when one is missing. So this looks at every pair of accesses to a common byte of which one
//! is a write, and at what stands between them. It knows nothing of how the plan was scheduled.
//!
//! A plan that runs again and again is a cycle: its last steps come before its first ones. Two runs are
//! looked at, with the words that the host puts in before each and what it reads after each
//! ([`Timeline`]). That the steps touch no other bytes than those of their operands is shown by
//! running them one at a time ([`run_among_poison`]).

mod bytes;
mod ranges;
mod timeline;

use std::collections::HashMap;
use std::fmt;

pub use ranges::{Trespass, run_among_poison};
pub use timeline::{Actor, Given, Timeline};

use crate::plan::{Block, Plan, Range};
use bytes::Bytes;
use timeline::{Event, Work};

/// What became of all pairs of accesses that conflict.
#[derive(Clone, Debug)]
pub struct Proof {
    /// How many pairs are in order.
    pub ordered: usize,
    /// Those that are not.
    pub unordered: Vec<Hazard>,
}

/// How two accesses conflict.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The second reads what the first writes.
    ReadAfterWrite,
    /// The second writes what the first reads.
    WriteAfterRead,
    /// Both write.
    WriteAfterWrite,
}

/// Two accesses to the same bytes that nothing orders.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hazard {
    /// How they conflict.
    pub kind: Kind,
    /// Who comes first.
    pub first: Actor,
    /// Who comes second.
    pub second: Actor,
    /// Whether the second belongs to the next run.
    pub next_run: bool,
    /// The first bytes that both touch.
    pub range: Range,
}

/// Looks at all pairs of accesses in two runs of `plan`.
pub fn prove(plan: &Plan) -> Proof {
    Timeline::of(plan).prove()
}

/// How much stands before an event.
#[derive(Clone, Copy, Default)]
struct Before {
    barriers: usize,
    submits: usize,
    host_barriers: usize,
    waits: usize,
}

/// What was seen of a block so far: numbers of events, and the bytes.
#[derive(Default)]
struct Seen<'t> {
    reads: Vec<(usize, &'t Bytes)>,
    writes: Vec<(usize, &'t Bytes)>,
}

impl Timeline {
    /// Looks at all pairs of accesses.
    pub fn prove(&self) -> Proof {
        let mut works: Vec<(&Work, Before)> = vec![];
        let mut before = Before::default();
        for event in &self.events {
            match event {
                Event::Barrier(_) | Event::Given(Given::Head) => before.barriers += 1,
                Event::Given(Given::Submit) => before.submits += 1,
                Event::Given(Given::HostBarrier) => before.host_barriers += 1,
                Event::Given(Given::Wait) => before.waits += 1,
                Event::Work(work) => works.push((work, before)),
            }
        }
        let mut blocks: HashMap<Block, Seen> = HashMap::new();
        let mut proof = Proof {
            ordered: 0,
            unordered: vec![],
        };
        // For each earlier access, the last one that it was found to conflict with.
        let mut met = vec![usize::MAX; works.len()];
        for (number, (work, _)) in works.iter().enumerate() {
            let mut meet = |earlier: &[(usize, &Bytes)], bytes: &Bytes, kind| {
                for &(first, theirs) in earlier {
                    if met[first] == number || works[first].0.is_apart_from(work) {
                        continue;
                    }
                    if let Some(range) = theirs.common(bytes) {
                        met[first] = number;
                        proof.judge(works[first], works[number], kind, range);
                    }
                }
            };
            for bytes in &work.reads {
                if let Some(seen) = blocks.get(&bytes.block) {
                    meet(&seen.writes, bytes, Kind::ReadAfterWrite);
                }
            }
            for bytes in &work.writes {
                if let Some(seen) = blocks.get(&bytes.block) {
                    meet(&seen.writes, bytes, Kind::WriteAfterWrite);
                    meet(&seen.reads, bytes, Kind::WriteAfterRead);
                }
            }
            if work.ring {
                continue;
            }
            for bytes in &work.reads {
                blocks.entry(bytes.block).or_default().reads.push((number, bytes));
            }
            for bytes in &work.writes {
                blocks.entry(bytes.block).or_default().writes.push((number, bytes));
            }
        }
        proof
    }
}

impl Proof {
    fn judge(&mut self, first: (&Work, Before), second: (&Work, Before), kind: Kind, range: Range) {
        let ((first, then), (second, now)) = (first, second);
        let ordered = match (first.on_host, second.on_host) {
            (false, false) => now.barriers > then.barriers,
            (true, false) => now.submits > then.submits,
            (false, true) => {
                let visible = kind == Kind::WriteAfterRead || now.host_barriers > then.host_barriers;
                now.waits > then.waits && visible
            }
            (true, true) => true,
        };
        if ordered {
            self.ordered += 1;
        } else if first.run == 0 {
            // The second run is the first over again.
            self.unordered.push(Hazard {
                kind,
                first: first.actor.clone(),
                second: second.actor.clone(),
                next_run: second.run > first.run,
                range,
            });
        }
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Actor::Arguments => f.write_str("the host's arguments"),
            Actor::Inbox => f.write_str("the inbox"),
            Actor::Step { number, name, call } => {
                write!(f, "step {number} ({name})")?;
                call.map_or(Ok(()), |call| write!(f, " dispatch {call}"))
            }
            Actor::Results => f.write_str("the copy of the results"),
            Actor::Host => f.write_str("the host"),
        }
    }
}

impl fmt::Display for Hazard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hazard { first, second, .. } = self;
        let (late, early) = match self.kind {
            Kind::ReadAfterWrite => ("reads", "writes"),
            Kind::WriteAfterRead => ("writes", "reads"),
            Kind::WriteAfterWrite => ("writes", "writes"),
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
