use std::collections::HashMap;

use crate::plan::{Block, Dispatch, Operand, Plan, Range, Step};

/// Finds what each dispatch must wait for: those that wrote bytes that it reads or writes, those that read bytes that
/// it writes, and in a chained step the one before it.
pub fn schedule(mut plan: Plan) -> Plan {
    let mut touched = Touched::default();
    plan.order.clear();
    for (number, step) in plan.steps.iter().enumerate() {
        // Dispatches that are not chained do not wait for each other.
        let first = plan.order.len();
        for call in 0..step.calls.len().max(1) {
            let before = if step.chained { plan.order.len() } else { first };
            let mut after = touched.conflicts(step, call, before);
            if step.chained && call > 0 {
                after.push(before - 1);
            }
            after.sort_unstable();
            after.dedup();
            touched.add(step, call, plan.order.len());
            plan.order.push(Dispatch {
                step: number,
                call,
                after,
            });
        }
    }
    plan
}

/// Who touched which bytes, as far as later dispatches may have to wait for them.
#[derive(Default)]
struct Touched(HashMap<Block, Vec<Touch>>);

struct Touch {
    range: Range,
    dispatch: usize,
    writes: bool,
}

impl Touched {
    /// Numbers of dispatches before `before` that a step's dispatch conflicts with.
    fn conflicts(&mut self, step: &Step, call: usize, before: usize) -> Vec<usize> {
        let mut found = vec![];
        // Whoever conflicts with what is written over conflicts with what writes over it, which waits for it; but
        // another dispatch of the same step does not wait for that one.
        let replaces = step.chained || step.calls.len() <= 1;
        for (range, writes) in ranges(step, call) {
            let Some(earlier) = self.0.get_mut(&range.block) else {
                continue;
            };
            earlier.retain(|touch| {
                let conflicts = (writes || touch.writes) && touch.dispatch < before && touch.range.overlaps(&range);
                if conflicts {
                    found.push(touch.dispatch);
                }
                let inside = range.start <= touch.range.start && touch.range.end <= range.end;
                !(conflicts && writes && inside && replaces)
            });
        }
        found
    }

    fn add(&mut self, step: &Step, call: usize, dispatch: usize) {
        for (range, writes) in ranges(step, call) {
            self.0.entry(range.block).or_default().push(Touch {
                range,
                dispatch,
                writes,
            });
        }
    }
}

/// Byte ranges that a dispatch touches, and whether it writes them.
fn ranges(step: &Step, call: usize) -> impl Iterator<Item = (Range, bool)> + '_ {
    let read = step.read_by(call).map(|operand: &Operand| (operand.range(), false));
    read.chain(step.written_by(call).map(|operand| (operand.range(), true)))
}
