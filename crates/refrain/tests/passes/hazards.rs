//! An independent check that a plan's barriers order all conflicts, on sets of single bytes.

use std::collections::HashSet;

use refrain::plan::{Block, Operand, Plan, Step};

type Bytes = HashSet<(Block, u64)>;

fn bytes<'a>(operands: impl Iterator<Item = &'a Operand>) -> Bytes {
    let mut found = Bytes::new();
    for operand in operands {
        let size = operand.dtype.size() as u64;
        operand.layout.for_each(|element| {
            let start = operand.place.offset + element as u64 * size;
            found.extend((start..start + size).map(|at| (operand.place.block, at)));
        });
    }
    found
}

/// Whether the steps conflict: the second accesses what the first writes, or writes what it reads.
fn conflict(first: &(Bytes, Bytes), second: &(Bytes, Bytes)) -> bool {
    let ((reads, writes), (later_reads, later_writes)) = (first, second);
    let meet = |a: &Bytes, b: &Bytes| !a.is_disjoint(b);
    meet(writes, later_reads) || meet(writes, later_writes) || meet(reads, later_writes)
}

/// Bytes that each step reads and writes.
fn accesses(plan: &Plan) -> Vec<(Bytes, Bytes)> {
    let written = |step: &Step| {
        let updated = step.primitive.updates().iter().map(|&number| &step.inputs[number]);
        let own = step.workspace.iter().chain(&step.tickets);
        bytes(step.outputs.iter().chain(updated).chain(own))
    };
    plan.steps
        .iter()
        .map(|step| (bytes(step.inputs.iter()), written(step)))
        .collect()
}

/// Pairs of steps that conflict without a barrier between them.
pub fn unordered(plan: &Plan) -> Vec<(usize, usize)> {
    let accesses = accesses(plan);
    let barriers = plan.barriers_before_steps();
    let mut found = vec![];
    for second in 0..plan.steps.len() {
        for first in 0..second {
            let ordered = barriers[first + 1..=second].contains(&true);
            if !ordered && conflict(&accesses[first], &accesses[second]) {
                found.push((first, second));
            }
        }
    }
    found
}
