//! A plan's dispatches in an order of the caller's choice, with all memory open: for proofs by trial.

use std::sync::Arc;

use super::{Compiled, Executable};
use crate::plan::{Block, Plan};
use crate::{Bindings, Device, Error};

/// What a [`Stepper`] does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepCommand {
    /// All before happens before all after.
    Barrier,
    /// A dispatch.
    Call {
        /// Number of the step.
        step: usize,
        /// Which of its dispatches.
        call: usize,
    },
}

/// A plan on a Vulkan device, whose dispatches are run as the caller likes.
pub struct Stepper {
    executable: Executable,
}

impl Stepper {
    /// Compiles the kernels of a plan for `device` and gives it its memory.
    ///
    /// # Errors
    /// Another device than a Vulkan one; as [`Compiled::new`] and [`Executable::new`].
    pub fn new(device: &Device, plan: Plan, bindings: Bindings) -> Result<Stepper, Error> {
        if device.is_cpu() {
            return Err(Error::Call(
                "only a Vulkan device has dispatches to step through".to_string(),
            ));
        }
        let compiled = Arc::new(Compiled::new(device, plan)?);
        let executable = Executable::new(device, compiled, bindings)?;
        Ok(Stepper { executable })
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        self.executable.plan()
    }

    /// Runs parts in that order and waits for the last.
    ///
    /// # Errors
    /// A device that fails.
    ///
    /// # Panics
    /// If a part names no dispatch of the plan.
    pub fn run(&self, parts: &[StepCommand]) -> Result<(), Error> {
        let run = self.executable.submit(parts)?;
        let device = self.executable.vulkan("a stepper")?;
        run.submission
            .map_or(Ok(()), |submission| Ok(device.wait(&submission)?))
    }

    /// One step's dispatches, with the barriers that they need between them.
    pub fn step(&self, number: usize) -> Vec<StepCommand> {
        let of_step = |dispatch: &usize| self.plan().order[*dispatch].step == number;
        self.ordered((0..self.plan().order.len()).filter(of_step))
    }

    /// The plan as it is: each step after the one before it, with the plan's barriers.
    pub fn in_order(&self) -> Vec<StepCommand> {
        self.ordered(0..self.plan().order.len())
    }

    /// An order that the plan permits: each dispatch comes anywhere behind those that it waits for. `below(n)` draws a
    /// number below n.
    pub fn shuffled(&self, below: &mut dyn FnMut(usize) -> usize) -> Vec<StepCommand> {
        let order = &self.plan().order;
        let mut is_over = vec![false; order.len()];
        let mut left: Vec<usize> = (0..order.len()).collect();
        let mut shuffled = vec![];
        while !left.is_empty() {
            let is_ready = |place: &usize| order[left[*place]].after.iter().all(|&earlier| is_over[earlier]);
            let ready: Vec<usize> = (0..left.len()).filter(is_ready).collect();
            let next = left.swap_remove(ready[below(ready.len())]);
            is_over[next] = true;
            shuffled.push(next);
        }
        self.ordered(shuffled)
    }

    /// Dispatches with a barrier before each that waits for one since the last barrier.
    fn ordered(&self, dispatches: impl IntoIterator<Item = usize>) -> Vec<StepCommand> {
        let order = &self.plan().order;
        let (mut parts, mut since) = (vec![], vec![]);
        for number in dispatches {
            let dispatch = &order[number];
            if dispatch.after.iter().any(|earlier| since.contains(earlier)) {
                parts.push(StepCommand::Barrier);
                since.clear();
            }
            since.push(number);
            if dispatch.call < self.plan().steps[dispatch.step].calls.len() {
                parts.push(StepCommand::Call {
                    step: dispatch.step,
                    call: dispatch.call,
                });
            }
        }
        parts
    }

    /// The bytes of a block, as far as [`Plan::blocks`] knows it.
    ///
    /// # Errors
    /// A device that fails.
    pub fn read(&self, block: Block) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; self.plan().bytes_of(block) as usize];
        if !bytes.is_empty() {
            let storage = self.executable.storage(block);
            self.executable.device.read(storage, 0, &mut bytes)?;
        }
        Ok(bytes)
    }

    /// Puts bytes at a block's start.
    ///
    /// # Errors
    /// A device that fails.
    pub fn write(&self, block: Block, bytes: &[u8]) -> Result<(), Error> {
        if bytes.is_empty() {
            return Ok(());
        }
        let fill = &mut |offset: u64, piece: &mut [u8]| piece.copy_from_slice(&bytes[offset as usize..][..piece.len()]);
        let storage = self.executable.storage(block);
        self.executable.device.fill(storage, bytes.len() as u64, fill)
    }
}
