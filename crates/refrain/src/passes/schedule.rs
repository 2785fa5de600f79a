use refrain_kernels::CallOrder;

use crate::plan::{Block, Dispatch, Operand, Plan, Range, Step};
use crate::signature::FastMap;

/// Finds what each dispatch must wait for: those that wrote bytes that it reads or writes, those that read bytes that
/// it writes, and of its own step the dispatches that it comes behind.
pub fn schedule(mut plan: Plan) -> Plan {
    let mut touched = Touched::default();
    let mut ranges = vec![];
    plan.order.clear();
    for (number, step) in plan.steps.iter().enumerate() {
        let first = plan.order.len();
        for call in 0..step.calls.len().max(1) {
            let of_step = match step.order {
                CallOrder::Apart => None,
                CallOrder::BehindFirst => (call > 0).then_some(first),
                CallOrder::InTurn => (call > 0).then(|| plan.order.len() - 1),
            };
            // The others of its step it does not wait for.
            let before = of_step.map_or(first, |number| number + 1);
            ranges.clear();
            ranges.extend(ranges_of(step, call));
            // Whoever conflicts with what is written over conflicts with what writes over it, which waits for it; but
            // another dispatch of the same step does not wait for that one.
            let replaces = step.order == CallOrder::InTurn || step.calls.len() <= 1;
            let mut after = touched.conflicts(&ranges, before, replaces);
            after.extend(of_step);
            after.sort_unstable();
            after.dedup();
            touched.add(&ranges, plan.order.len());
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
struct Touched(FastMap<Block, Vec<Touch>>);

struct Touch {
    range: Range,
    dispatch: usize,
    writes: bool,
}

impl Touched {
    /// Numbers of dispatches before `before` that one which touches `ranges` conflicts with. `replaces`: later ones that
    /// conflict with what it writes over wait for it.
    fn conflicts(&mut self, ranges: &[(Range, bool)], before: usize, replaces: bool) -> Vec<usize> {
        let mut found = vec![];
        for &(range, writes) in ranges {
            let Some(earlier) = self.0.get_mut(&range.block) else {
                continue;
            };
            let mut left = vec![];
            earlier.retain_mut(|touch| {
                let conflicts = (writes || touch.writes) && touch.dispatch < before && touch.range.overlaps(&range);
                if conflicts {
                    found.push(touch.dispatch);
                }
                if !(conflicts && writes && replaces) {
                    return true;
                }
                // What is not written over stays: a piece before it, a piece behind it.
                let [front, back] = [
                    Range {
                        end: range.start,
                        ..touch.range
                    },
                    Range {
                        start: range.end,
                        ..touch.range
                    },
                ]
                .map(|piece| (piece.start < piece.end).then_some(piece));
                left.extend(back.filter(|_| front.is_some()).map(|range| Touch { range, ..*touch }));
                front.or(back).map(|piece| touch.range = piece).is_some()
            });
            earlier.append(&mut left);
        }
        found
    }

    fn add(&mut self, ranges: &[(Range, bool)], dispatch: usize) {
        for &(range, writes) in ranges {
            self.0.entry(range.block).or_default().push(Touch {
                range,
                dispatch,
                writes,
            });
        }
    }
}

/// Byte ranges that a dispatch touches, and whether it writes them.
fn ranges_of(step: &Step, call: usize) -> impl Iterator<Item = (Range, bool)> + '_ {
    let read = step.read_by(call).map(|operand: &Operand| (operand.range(), false));
    read.chain(step.written_by(call).map(|operand| (operand.range(), true)))
}
