//! What happens when a plan runs twice, in the order in which it is submitted.

use refrain_kernels::CallOrder;
use refrain_vulkan::MemoryClass;

use super::bytes::Bytes;
use crate::plan::{Block, Dispatch, Plan};

/// Two runs of a plan: what reads and writes memory, and what puts it into an order.
#[derive(Clone)]
pub struct Timeline {
    pub(super) events: Vec<Event>,
    barriers: usize,
}

/// Who touches memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Actor {
    /// The host writes arguments.
    Arguments,
    /// Words that the host sends are put into states.
    Inbox,
    /// A step's dispatches.
    Step {
        /// The step's number.
        number: usize,
        /// What it computes.
        name: &'static str,
        /// Of several dispatches, which.
        call: Option<usize>,
    },
    /// Results are copied for the host.
    Results,
    /// The host looks at mapped states.
    Host,
}

/// What the runtime promises whatever the plan: parts of the proof that a test can take away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Given {
    /// The barrier at the head of every command buffer, after all that was submitted before.
    Head,
    /// The barrier at the end of a command buffer that writes what the host sees.
    HostBarrier,
    /// A submission makes visible what the host wrote before it.
    Submit,
    /// The host waits for a run before it looks at what the run wrote, or writes what it read.
    Wait,
}

#[derive(Clone)]
pub(super) enum Event {
    Given(Given),
    /// A barrier of the plan, by its number.
    Barrier(usize),
    Work(Work),
}

#[derive(Clone)]
pub(super) struct Work {
    pub actor: Actor,
    /// 0 or 1.
    pub run: usize,
    pub on_host: bool,
    /// Whether what the host reads is left alone by later runs, though they write beside it.
    pub ring: bool,
    /// The step of a dispatch that shares no bytes with the step's others that one of them writes.
    pub apart: Option<usize>,
    pub reads: Vec<Bytes>,
    pub writes: Vec<Bytes>,
}

impl Work {
    /// Whether both are of one run of a step whose dispatches have nothing to do with each other.
    pub fn is_apart_from(&self, other: &Work) -> bool {
        self.apart.is_some() && (self.apart, self.run) == (other.apart, other.run)
    }
}

impl Timeline {
    /// Two runs of `plan`. Whoever runs it writes its arguments before each run; where it has none, words
    /// are put into its states.
    pub fn of(plan: &Plan) -> Timeline {
        let mut events = vec![];
        for run in 0..2 {
            let work = |actor, on_host| Work {
                actor,
                run,
                on_host,
                ring: false,
                apart: None,
                reads: vec![],
                writes: vec![],
            };
            if plan.inputs.is_empty() {
                events.extend([Given::Submit, Given::Head].map(Event::Given));
                events.push(Event::Work(Work {
                    writes: states(plan, |_| true),
                    ..work(Actor::Inbox, false)
                }));
            } else {
                events.push(Event::Work(Work {
                    writes: vec![Bytes::whole(Block::Control, 0, plan.control_bytes)],
                    ..work(Actor::Arguments, true)
                }));
                events.push(Event::Given(Given::Submit));
            }
            events.push(Event::Given(Given::Head));
            dispatches(plan, run, &mut events);
            events.extend([Given::HostBarrier, Given::Wait].map(Event::Given));
            // Each run leaves its words in a place of its own, and the host keeps fewer runs in flight
            // than there are places.
            events.push(Event::Work(Work {
                ring: true,
                reads: states(plan, |class| class == MemoryClass::Report),
                ..work(Actor::Host, true)
            }));
            events.push(Event::Given(Given::Head));
            events.push(Event::Work(Work {
                reads: plan.outputs.iter().map(Bytes::of).collect(),
                ..work(Actor::Results, false)
            }));
        }
        Timeline {
            events,
            barriers: plan.barriers(),
        }
    }

    /// Barriers of the plan, in one run.
    pub fn barriers(&self) -> usize {
        self.barriers
    }

    /// Both runs without barrier `number` of the plan, counted from 0 in the order of the steps.
    pub fn without_barrier(mut self, number: usize) -> Timeline {
        self.events
            .retain(|event| !matches!(event, Event::Barrier(n) if *n == number));
        self
    }

    /// Both runs without something that the runtime promises.
    pub fn without(mut self, given: Given) -> Timeline {
        self.events
            .retain(|event| !matches!(event, Event::Given(g) if *g == given));
        self
    }
}

/// The dispatches of one run with their barriers.
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
        events.push(Event::Work(Work {
            actor: Actor::Step {
                number,
                name: step.primitive.name(),
                call: is_one_of_several.then_some(call),
            },
            run,
            on_host: false,
            ring: false,
            apart: match step.order {
                CallOrder::InTurn => None,
                CallOrder::BehindFirst => (call > 0).then_some(number),
                CallOrder::Apart => is_one_of_several.then_some(number),
            },
            reads: step.read_by(call).map(Bytes::of).collect(),
            writes: step.written_by(call).map(Bytes::of).collect(),
        }));
    }
}

/// The states of some classes.
fn states(plan: &Plan, wanted: impl Fn(MemoryClass) -> bool) -> Vec<Bytes> {
    let chosen = |class: MemoryClass| class.is_state() && wanted(class);
    (0..plan.leaves.len())
        .filter(|&number| chosen(plan.leaves[number].class))
        .map(Block::Storage)
        .map(|block| Bytes::whole(block, 0, plan.bytes_of(block)))
        .collect()
}
