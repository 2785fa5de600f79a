//! Checks by running a plan that its steps access no bytes other than those of their operands.

use std::collections::HashMap;

use super::bytes::Bytes;
use crate::Error;
use crate::execute::Stepper;
use crate::plan::{Block, Operand, Step};

/// A byte pattern that is NaN in every float type and out of range as an index in every integer type.
const POISON: u8 = 0xff;

/// A byte that a step changed although it is not in the operands that it writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfBoundsWrite {
    /// Number of the step.
    pub step: usize,
    /// The block.
    pub block: Block,
    /// Byte offset in the block.
    pub at: u64,
}

/// Runs the plan's steps one at a time. Before each step, poisons every byte of intermediate results, arguments and
/// outputs that the step does not read. After it, every byte that the step does not write, except of weights, must be
/// unchanged; weights are compared once at the end.
///
/// A step that reads poison makes the results differ from those of an ordinary run; the caller has to compare them.
/// Memory ends up as after an ordinary run.
///
/// # Errors
/// Fails if the device fails.
pub fn run_among_poison(stepper: &Stepper) -> Result<Vec<OutOfBoundsWrite>, Error> {
    let plan = stepper.plan();
    let is_still = |block: Block| match block {
        Block::Storage(number) => !plan.leaves[number].class.is_state(),
        _ => false,
    };
    let (still, changing): (Vec<Block>, Vec<Block>) =
        (plan.blocks().into_iter().map(|(block, _)| block)).partition(|&block| is_still(block));
    let contents = |blocks: &[Block]| -> Result<HashMap<Block, Vec<u8>>, Error> {
        blocks.iter().map(|&block| Ok((block, stepper.read(block)?))).collect()
    };
    let weights = contents(&still)?;
    let mut memory = contents(&changing)?;
    let mut found = vec![];
    for (number, step) in plan.steps.iter().enumerate() {
        let writes: Vec<Bytes> = step.written().map(Bytes::of).collect();
        let mut before = memory.clone();
        for (&block, bytes) in &mut before {
            if matches!(block, Block::Scratch | Block::Control | Block::Output(_)) {
                *bytes = poisoned(&memory[&block], block, step);
                stepper.write(block, bytes)?;
            }
        }
        stepper.run(&stepper.step(number))?;
        for (block, expected) in before {
            let after = stepper.read(block)?;
            let kept_bytes = memory.get_mut(&block).expect("every block was read before");
            let mut allowed = expected;
            for &(start, end) in writes.iter().filter(|w| w.block == block).flat_map(Bytes::pieces) {
                let piece = start as usize..end as usize;
                allowed[piece.clone()].copy_from_slice(&after[piece.clone()]);
                kept_bytes[piece.clone()].copy_from_slice(&after[piece]);
            }
            found.extend(first_difference(&allowed, &after).map(|at| OutOfBoundsWrite {
                step: number,
                block,
                at,
            }));
        }
    }
    for (&block, bytes) in &memory {
        stepper.write(block, bytes)?;
    }
    for (block, bytes) in weights {
        let changed = first_difference(&bytes, &stepper.read(block)?);
        let step = plan.steps.len();
        found.extend(changed.map(|at| OutOfBoundsWrite { step, block, at }));
    }
    Ok(found)
}

/// The contents of a block in which only the bytes that the step reads are kept_bytes.
fn poisoned(bytes: &[u8], block: Block, step: &Step) -> Vec<u8> {
    let mut poisoned = vec![POISON; bytes.len()];
    let read = |operand: &&Operand| operand.place.block == block;
    for bytes_read in step.inputs.iter().filter(read).map(Bytes::of) {
        for &(start, end) in bytes_read.pieces() {
            let piece = start as usize..end as usize;
            poisoned[piece.clone()].copy_from_slice(&bytes[piece]);
        }
    }
    poisoned
}

fn first_difference(expected: &[u8], found: &[u8]) -> Option<u64> {
    if expected == found {
        return None;
    }
    let at = expected.iter().zip(found).position(|(a, b)| a != b);
    at.map(|at| at as u64)
}
