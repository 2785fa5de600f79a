use refrain_kernels::CallOrder;

use crate::plan::{Block, Dispatch, Operand, Plan, Range, Step};
use crate::signature::FastMap;

/// Finds the dispatches that each dispatch must wait for: those that wrote bytes that it accesses, those that read
/// bytes that it writes, and those of its own step that precede it.
pub fn schedule(mut plan: Plan) -> Plan {
    let mut accesses = Accesses::default();
    let mut ranges = vec![];
    plan.order.clear();
    for (number, step) in plan.steps.iter().enumerate() {
        let first = plan.order.len();
        for call in 0..step.calls.len().max(1) {
            let of_step = match step.order {
                CallOrder::Independent => None,
                CallOrder::AfterFirst => (call > 0).then_some(first),
                CallOrder::Sequential => (call > 0).then(|| plan.order.len() - 1),
            };
            // It does not wait for the other calls of its step.
            let before = of_step.map_or(first, |number| number + 1);
            ranges.clear();
            ranges.extend(ranges_of(step, call));
            // A later dispatch that conflicts with an overwritten access also conflicts with the one that overwrites
            // it, and waits for that one. This does not hold for dispatches of the same step that do not wait for each
            // other.
            let replaces = step.order == CallOrder::Sequential || step.calls.len() <= 1;
            let mut after = accesses.conflicts(&ranges, before, replaces);
            after.extend(of_step);
            after.sort_unstable();
            after.dedup();
            accesses.add(&ranges, plan.order.len());
            plan.order.push(Dispatch {
                step: number,
                call,
                after,
            });
        }
    }
    plan
}

/// Accesses that later dispatches may have to wait for, by block.
#[derive(Default)]
struct Accesses(FastMap<Block, Vec<Access>>);

struct Access {
    range: Range,
    dispatch: usize,
    writes: bool,
}

impl Accesses {
    /// Indices of dispatches before `before` that conflict with a dispatch that accesses `ranges`. With `replaces`,
    /// later dispatches that conflict with an overwritten access wait for this dispatch, so the old access is dropped.
    fn conflicts(&mut self, ranges: &[(Range, bool)], before: usize, replaces: bool) -> Vec<usize> {
        let mut found = vec![];
        for &(range, writes) in ranges {
            let Some(earlier) = self.0.get_mut(&range.block) else {
                continue;
            };
            let mut left = vec![];
            earlier.retain_mut(|access| {
                let conflicts = (writes || access.writes) && access.dispatch < before && access.range.overlaps(&range);
                if conflicts {
                    found.push(access.dispatch);
                }
                if !(conflicts && writes && replaces) {
                    return true;
                }
                // The parts before and after the overwritten bytes remain.
                let [front, back] = [
                    Range {
                        end: range.start,
                        ..access.range
                    },
                    Range {
                        start: range.end,
                        ..access.range
                    },
                ]
                .map(|piece| (piece.start < piece.end).then_some(piece));
                left.extend(
                    back.filter(|_| front.is_some())
                        .map(|range| Access { range, ..*access }),
                );
                front.or(back).map(|piece| access.range = piece).is_some()
            });
            earlier.append(&mut left);
        }
        found
    }

    fn add(&mut self, ranges: &[(Range, bool)], dispatch: usize) {
        for &(range, writes) in ranges {
            self.0.entry(range.block).or_default().push(Access {
                range,
                dispatch,
                writes,
            });
        }
    }
}

/// Byte ranges that a dispatch accesses, and whether it writes them.
fn ranges_of(step: &Step, call: usize) -> impl Iterator<Item = (Range, bool)> + '_ {
    let read = step.read_by(call).map(|operand: &Operand| (operand.range(), false));
    read.chain(step.written_by(call).map(|operand| (operand.range(), true)))
}
