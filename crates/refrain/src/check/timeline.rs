//! The accesses of two runs of a plan, in submission order.

use refrain_kernels::CallOrder;
use refrain_vulkan::MemoryClass;

use super::bytes::Bytes;
use crate::plan::{Block, Dispatch, Plan};

/// Two runs of a plan: memory accesses, and the events that order them.
#[derive(Clone)]
pub struct Timeline {
    pub(super) events: Vec<Event>,
    barriers: usize,
}

/// The origin of an access.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The host writes arguments.
    Arguments,
    /// The inbox writes words from the host into states.
    Inbox,
    /// A dispatch of a step.
    Step {
        /// Index of the step.
        number: usize,
        /// Name of its primitive.
        name: &'static str,
        /// Index of the dispatch, if the step has several.
        call: Option<usize>,
    },
    /// Outputs are copied for the host.
    Results,
    /// The host reads mapped states.
    Host,
}

/// Orderings that the runtime guarantees for every plan. Tests remove them one by one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Guarantee {
    /// The barrier at the start of every command buffer, after all earlier submissions.
    Head,
    /// The barrier at the end of a command buffer that writes host-visible memory.
    HostBarrier,
    /// A submission makes the host's earlier writes visible.
    Submit,
    /// The host waits for a run before it reads what the run wrote, or overwrites what it read.
    Wait,
}

#[derive(Clone)]
pub(super) enum Event {
    Guarantee(Guarantee),
    /// A barrier of the plan, by index.
    Barrier(usize),
    Access(MemoryAccess),
}

#[derive(Clone)]
pub(super) struct MemoryAccess {
    pub origin: Origin,
    /// Index of the run: 0 or 1.
    pub run: usize,
    pub on_host: bool,
    /// Whether the host reads a ring buffer: later runs write other slots than those it reads.
    pub ring: bool,
    /// The step of a dispatch that does not conflict with other dispatches of the same step.
    pub independent_of: Option<usize>,
    pub reads: Vec<Bytes>,
    pub writes: Vec<Bytes>,
}

impl MemoryAccess {
    /// Whether both belong to the same run of a step whose dispatches are independent.
    pub fn is_independent_of(&self, other: &MemoryAccess) -> bool {
        self.independent_of.is_some() && (self.independent_of, self.run) == (other.independent_of, other.run)
    }
}

impl Timeline {
    /// Two runs of `plan`. The host writes the arguments before each run. A plan without arguments receives inbox
    /// writes to its states instead.
    pub fn of(plan: &Plan) -> Timeline {
        let mut events = vec![];
        for run in 0..2 {
            let access = |origin, on_host| MemoryAccess {
                origin,
                run,
                on_host,
                ring: false,
                independent_of: None,
                reads: vec![],
                writes: vec![],
            };
            if plan.inputs.is_empty() {
                events.extend([Guarantee::Submit, Guarantee::Head].map(Event::Guarantee));
                events.push(Event::Access(MemoryAccess {
                    writes: states(plan, |_| true),
                    ..access(Origin::Inbox, false)
                }));
            } else {
                events.push(Event::Access(MemoryAccess {
                    writes: vec![Bytes::whole(Block::Control, 0, plan.control_bytes)],
                    ..access(Origin::Arguments, true)
                }));
                events.push(Event::Guarantee(Guarantee::Submit));
            }
            events.push(Event::Guarantee(Guarantee::Head));
            dispatches(plan, run, &mut events);
            events.extend([Guarantee::HostBarrier, Guarantee::Wait].map(Event::Guarantee));
            // Each run writes its words into its own slot of a ring, and the host keeps fewer runs in flight than the
            // ring has slots.
            events.push(Event::Access(MemoryAccess {
                ring: true,
                reads: states(plan, |class| class == MemoryClass::Report),
                ..access(Origin::Host, true)
            }));
            events.push(Event::Guarantee(Guarantee::Head));
            events.push(Event::Access(MemoryAccess {
                reads: plan.outputs.iter().map(Bytes::of).collect(),
                ..access(Origin::Results, false)
            }));
        }
        Timeline {
            events,
            barriers: plan.barriers(),
        }
    }

    /// Number of barriers of the plan in one run.
    pub fn barriers(&self) -> usize {
        self.barriers
    }

    /// Both runs without barrier `number` of the plan.
    pub fn without_barrier(mut self, number: usize) -> Timeline {
        self.events
            .retain(|event| !matches!(event, Event::Barrier(n) if *n == number));
        self
    }

    /// Both runs without one of the runtime's guarantees.
    pub fn without(mut self, guarantee: Guarantee) -> Timeline {
        self.events
            .retain(|event| !matches!(event, Event::Guarantee(g) if *g == guarantee));
        self
    }
}

/// The dispatches of one run, with the barriers between them.
fn dispatches(plan: &Plan, run: usize, events: &mut Vec<Event>) {
    let mut barriers = 0;
    for (dispatch, barrier) in plan.order.iter().zip(plan.barriers_before()) {
        if barrier {
            events.push(Event::Barrier(barriers));
            barriers += 1;
        }
        let &Dispatch { step: number, call, .. } = dispatch;
        let step = &plan.steps[number];
        let is_one_of_several = step.calls.len() > 1;
        events.push(Event::Access(MemoryAccess {
            origin: Origin::Step {
                number,
                name: step.primitive.name(),
                call: is_one_of_several.then_some(call),
            },
            run,
            on_host: false,
            ring: false,
            independent_of: match step.order {
                CallOrder::Sequential => None,
                CallOrder::AfterFirst => (call > 0).then_some(number),
                CallOrder::Independent => is_one_of_several.then_some(number),
            },
            reads: step.read_by(call).map(Bytes::of).collect(),
            writes: step.written_by(call).map(Bytes::of).collect(),
        }));
    }
}

/// The bytes of the states of some memory classes.
fn states(plan: &Plan, wanted: impl Fn(MemoryClass) -> bool) -> Vec<Bytes> {
    let chosen = |class: MemoryClass| class.is_state() && wanted(class);
    (0..plan.leaves.len())
        .filter(|&number| chosen(plan.leaves[number].class))
        .map(Block::Storage)
        .map(|block| Bytes::whole(block, 0, plan.bytes_of(block)))
        .collect()
}
