//! A plan's dispatches in an order of the caller's choice, with all memory open: for proofs by trial.

use std::sync::Arc;

use refrain_vulkan::CommandList;

use super::{Compiled, Executable};
use crate::device::Backend;
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
        let (Some(recorded), Backend::Vulkan { device, .. }) =
            (&self.executable.recorded, self.executable.device.backend())
        else {
            unreachable!("a stepper has a Vulkan device")
        };
        let list: CommandList = self.executable.commands().parts(recorded, parts);
        let submission = device.submit(list)?;
        Ok(device.wait(&submission)?)
    }

    /// One step's dispatches, with the barriers between them if they are chained.
    pub fn step(&self, number: usize) -> Vec<StepCommand> {
        let step = &self.plan().steps[number];
        let call = |call| {
            let barrier = (step.chained && call > 0).then_some(StepCommand::Barrier);
            barrier.into_iter().chain([StepCommand::Call { step: number, call }])
        };
        (0..step.calls.len()).flat_map(call).collect()
    }

    /// The plan as it is: each step after the one before it, with the plan's barriers.
    pub fn in_order(&self) -> Vec<StepCommand> {
        let barrier = |step: usize| self.plan().steps[step].barrier.then_some(StepCommand::Barrier);
        let steps = 0..self.plan().steps.len();
        steps
            .flat_map(|step| barrier(step).into_iter().chain(self.step(step)))
            .collect()
    }

    /// An order that the plan's barriers permit: between two of them dispatches come as they may, chained
    /// ones after each other. `below(n)` draws a number below n.
    pub fn shuffled(&self, below: &mut dyn FnMut(usize) -> usize) -> Vec<StepCommand> {
        let mut parts = vec![];
        let mut level: Vec<Vec<StepCommand>> = vec![];
        let mut draw = |level: &mut Vec<Vec<StepCommand>>, parts: &mut Vec<StepCommand>| {
            while !level.is_empty() {
                let chosen = below(level.len());
                let next = level[chosen].pop().expect("no chain is empty");
                if matches!(next, StepCommand::Call { step, call } if call > 0 && self.plan().steps[step].chained) {
                    parts.push(StepCommand::Barrier);
                }
                parts.push(next);
                level.retain(|chain| !chain.is_empty());
            }
        };
        for (number, step) in self.plan().steps.iter().enumerate() {
            if step.barrier {
                draw(&mut level, &mut parts);
                parts.push(StepCommand::Barrier);
            }
            let calls = (0..step.calls.len()).map(|call| StepCommand::Call { step: number, call });
            match step.chained {
                true => level.push(calls.rev().collect()),
                false => level.extend(calls.map(|call| vec![call])),
            }
        }
        draw(&mut level, &mut parts);
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
