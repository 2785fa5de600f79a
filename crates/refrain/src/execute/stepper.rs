//! Runs a plan's dispatches in any order, with access to all memory. Used to test that the order of a plan suffices.

use std::sync::Arc;

use super::commands::StepCommand;
use super::executable::{Compiled, Executable};
use crate::plan::{Block, Plan};
use crate::{Bindings, Device, Error};

/// A plan on a Vulkan device whose dispatches run in an order that the caller chooses.
pub struct Stepper {
    executable: Executable,
}

impl Stepper {
    /// Compiles a plan's kernels for `device` and allocates its memory.
    ///
    /// # Errors
    /// Fails if `device` is not a Vulkan device; as [`Compiled::new`] and [`Executable::new`].
    pub fn new(device: &Device, plan: Plan, bindings: Bindings) -> Result<Stepper, Error> {
        if device.is_cpu() {
            return Err(Error::Call(
                "only plans of a Vulkan device have dispatches to step through".to_string(),
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

    /// Runs commands in the given order and waits for the last.
    ///
    /// # Errors
    /// Fails if the device fails.
    ///
    /// # Panics
    /// Panics if a command names no dispatch of the plan.
    pub fn run(&self, parts: &[StepCommand]) -> Result<(), Error> {
        let run = self.executable.submit(parts)?;
        let device = self.executable.vulkan("a stepper")?;
        run.submission
            .map_or(Ok(()), |submission| Ok(device.wait(&submission)?))
    }

    /// One step's dispatches, with the barriers between them.
    pub fn step(&self, number: usize) -> Vec<StepCommand> {
        let of_step = |dispatch: &usize| self.plan().order[*dispatch].step == number;
        self.ordered((0..self.plan().order.len()).filter(of_step))
    }

    /// The steps in plan order, with the plan's barriers.
    pub fn in_order(&self) -> Vec<StepCommand> {
        self.ordered(0..self.plan().order.len())
    }

    /// A random order that the plan permits: each dispatch comes anywhere after those that it waits for. `below(n)`
    /// returns a random number below n.
    pub fn shuffled(&self, below: &mut dyn FnMut(usize) -> usize) -> Vec<StepCommand> {
        let order = &self.plan().order;
        let mut is_over = vec![false; order.len()];
        let mut left: Vec<usize> = (0..order.len()).collect();
        let mut shuffled = vec![];
        while !left.is_empty() {
            let is_ready = |index: &usize| order[left[*index]].after.iter().all(|&earlier| is_over[earlier]);
            let ready: Vec<usize> = (0..left.len()).filter(is_ready).collect();
            let next = left.swap_remove(ready[below(ready.len())]);
            is_over[next] = true;
            shuffled.push(next);
        }
        self.ordered(shuffled)
    }

    /// Dispatches with a barrier before each that waits for a dispatch since the last barrier.
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

    /// The bytes of a block, as many as [`Plan::blocks`] says.
    ///
    /// # Errors
    /// Fails if the device fails.
    pub fn read(&self, block: Block) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; self.plan().bytes_of(block) as usize];
        if !bytes.is_empty() {
            let storage = self.executable.storage(block);
            self.executable.device.read(storage, 0, &mut bytes)?;
        }
        Ok(bytes)
    }

    /// Writes bytes at the start of a block.
    ///
    /// # Errors
    /// Fails if the device fails.
    pub fn write(&self, block: Block, bytes: &[u8]) -> Result<(), Error> {
        if bytes.is_empty() {
            return Ok(());
        }
        let fill = &mut |offset: u64, piece: &mut [u8]| piece.copy_from_slice(&bytes[offset as usize..][..piece.len()]);
        let storage = self.executable.storage(block);
        self.executable.device.fill(storage, bytes.len() as u64, fill)
    }
}
