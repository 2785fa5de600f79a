//! Programs that are ready to run: a plan with its kernels and its memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use refrain_vulkan::MemoryClass;

use super::bound::BoundCommands;
use super::commands::{StepCommand, UnboundCommands};
use super::inbox::{self, Inbox, PendingMessage};
use super::memory::{ArgumentMemory, BlockMemory, SharedScratch, check_memory, nonzero};
use super::run::Run;
use super::write::{Write, target_state};
use crate::device::{Backend, Flush};
use crate::plan::{Block, Operand, Plan};
use crate::storage::{Bindings, Storage};
use crate::{Device, Error, Layout};

/// A plan with its compiled kernels, without memory. It serves any number of [`Executable`]s.
pub struct Compiled {
    plan: Plan,
    pub(super) commands: Option<UnboundCommands>,
}

impl Compiled {
    /// Compiles a plan's kernels, on Vulkan.
    ///
    /// # Errors
    /// Fails if memory runs out or the driver rejects a shader.
    pub fn new(device: &Device, plan: Plan) -> Result<Compiled, Error> {
        let commands = match device.backend() {
            Backend::Cpu => {
                plan.steps.iter().try_for_each(check_memory)?;
                None
            }
            Backend::Vulkan { .. } => Some(UnboundCommands::new(device, &plan)?),
        };
        Ok(Compiled { plan, commands })
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Allocates a control block for its arguments, if it has some.
    ///
    /// # Errors
    /// Fails if memory runs out.
    pub(super) fn allocate_arguments(&self, device: &Device) -> Result<ArgumentMemory, Error> {
        let control = nonzero(self.plan.control_bytes);
        let control = control.map(|bytes| device.allocate(MemoryClass::Control, bytes));
        Ok(ArgumentMemory::Control(control.transpose()?))
    }
}

/// A plan with its memory, which [`Executor`](super::Executor)s run any number of times.
pub struct Executable {
    pub(super) device: Device,
    pub(super) compiled: Arc<Compiled>,
    pub(super) memory: Arc<BlockMemory>,
    /// `None` on the CPU executor.
    pub(super) bound: Option<BoundCommands>,
    inbox: Inbox,
    /// Whether it runs repeatedly and without arguments. Devices with timestamps then time its runs.
    pub(super) is_tape: bool,
    /// Buffers that commands refer to by address only.
    pub(super) _keep_alive: Vec<refrain_vulkan::Buffer>,
}

impl Executable {
    /// Allocates a plan's memory, including a control block for its arguments.
    ///
    /// # Errors
    /// Fails if memory runs out.
    pub fn new(device: &Device, compiled: Arc<Compiled>, bindings: Bindings) -> Result<Executable, Error> {
        Executable::sharing(device, compiled, bindings, None)
    }

    /// As [`Executable::new`], with intermediate results in shared memory.
    pub(crate) fn sharing(
        device: &Device,
        compiled: Arc<Compiled>,
        bindings: Bindings,
        scratch: Option<&SharedScratch>,
    ) -> Result<Executable, Error> {
        let arguments = compiled.allocate_arguments(device)?;
        Executable::with_arguments(device, compiled, bindings, (arguments, scratch))
    }

    pub(crate) fn with_arguments(
        device: &Device,
        compiled: Arc<Compiled>,
        bindings: Bindings,
        memory: (ArgumentMemory, Option<&SharedScratch>),
    ) -> Result<Executable, Error> {
        let tickets = compiled.commands.as_ref().and_then(UnboundCommands::tickets);
        let memory = BlockMemory::allocate(device, &compiled.plan, tickets, bindings, memory)?;
        let bound = compiled.commands.as_ref().map(|commands| commands.bind(&memory));
        Ok(Executable::from_parts(device, compiled, memory, bound))
    }

    /// An executable over this memory, with the commands that have its addresses.
    pub(super) fn from_parts(
        device: &Device,
        compiled: Arc<Compiled>,
        memory: BlockMemory,
        bound: Option<BoundCommands>,
    ) -> Executable {
        Executable {
            device: device.clone(),
            compiled,
            memory: Arc::new(memory),
            bound,
            inbox: Inbox::default(),
            is_tape: false,
            _keep_alive: vec![],
        }
    }

    /// Marks it as run repeatedly, if it has no arguments.
    pub(crate) fn into_tape(self) -> Executable {
        let is_tape = self.plan().inputs.is_empty();
        Executable { is_tape, ..self }
    }

    /// Records the commands ahead of the first run. Does nothing for a tape, whose executor records them.
    pub(crate) fn translate(&self) -> Result<(), Error> {
        match (&self.bound, self.device.as_vulkan()) {
            (Some(bound), Some(vulkan)) if !self.is_tape => bound.translate(vulkan),
            _ => Ok(()),
        }
    }

    /// A program over the same memory that writes a wrong number into the result of step `step` at each run.
    pub(crate) fn with_fault(&self, step: usize) -> Result<Executable, Error> {
        self.vulkan("a fault")?;
        let (commands, message) = inbox::fault_commands(&self.device, self.plan(), &self.memory, step)?;
        let list = self.commands().with(self.bound().list()?, step, commands);
        Ok(Executable {
            device: self.device.clone(),
            compiled: self.compiled.clone(),
            memory: self.memory.clone(),
            bound: Some(BoundCommands::new(vec![list])),
            inbox: Inbox::default(),
            is_tape: self.is_tape,
            _keep_alive: vec![message],
        })
    }

    /// The device that it runs on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.compiled.plan
    }

    /// Runs it once. On Vulkan, returns once the work is submitted.
    pub(crate) fn run(self: &Arc<Self>, reason: Flush) -> Result<(), Error> {
        if self.bound.as_ref().is_none_or(|bound| !bound.is_empty()) {
            self.device.count_flush(reason);
        }
        self.device.evaluator().prepare(self)?.play(&[], 1)?;
        self.mark_run();
        Ok(())
    }

    /// Writes words into states, after all work submitted before. If a word is written several times, the last counts.
    ///
    /// # Errors
    /// Fails for more than [`MAX_INBOX_WORDS`](super::MAX_INBOX_WORDS) words, for words outside a state, or if the
    /// device fails.
    pub fn deliver(&self, writes: &[Write]) -> Result<(), Error> {
        let Some(vulkan) = self.device.as_vulkan() else {
            for write in writes {
                let bytes: &[u8] = bytemuck::cast_slice(&write.words);
                self.device.write(&target_state(write)?, 4 * write.at as u64, bytes)?;
            }
            return Ok(());
        };
        if let Some(message) = self.write_message(writes)? {
            let submissions = vulkan.submit_recorded(&[message.recording()])?;
            message.submitted(submissions[0]);
        }
        Ok(())
    }

    /// Allocates the message buffers of [`Executable::deliver`] ahead of the first write.
    pub(super) fn prepare_inbox(&self) -> Result<(), Error> {
        self.inbox.prepare(&self.device, self.bound())
    }

    /// Writes an inbox message, which the caller submits. `None` if there are no writes.
    pub(super) fn write_message(&self, writes: &[Write]) -> Result<Option<PendingMessage<'_>>, Error> {
        self.inbox.write(&self.device, self.bound(), writes)
    }

    /// Submits dispatches and barriers in the given order, by one submit.
    ///
    /// # Errors
    /// Fails if the device is not a Vulkan device, or if it fails.
    ///
    /// # Panics
    /// Panics if a command names no dispatch of the plan.
    pub fn submit(&self, parts: &[StepCommand]) -> Result<Run, Error> {
        let vulkan = self.vulkan("a submit of single dispatches")?;
        let submission = vulkan.submit(self.commands().parts(self.bound(), parts))?;
        Ok(Run::untimed(Some(submission)))
    }

    /// Writes the control block, once the device has finished the work that reads its old contents.
    pub(crate) fn write_control(&self, bytes: &[u8]) -> Result<(), Error> {
        let ArgumentMemory::Control(Some(control)) = &self.memory.arguments else {
            return Ok(());
        };
        match (&self.bound, self.device.backend()) {
            (Some(bound), Backend::Vulkan { device, .. }) => bound.write_control(device, control, bytes),
            _ => self.device.fill(control, bytes.len() as u64, &mut |_, piece| {
                piece.copy_from_slice(bytes)
            }),
        }
    }

    /// Writes the integers that the program reads from its control block.
    pub(crate) fn write_integers(&self, words: &[i32]) -> Result<(), Error> {
        // A program whose integers change but have no effect reads none.
        let Some(input) = self.plan().inputs.first().filter(|_| !words.is_empty()) else {
            return Ok(());
        };
        let mut control = vec![0; self.plan().control_bytes as usize];
        let bytes: &[u8] = bytemuck::cast_slice(words);
        control[input.offset as usize..][..bytes.len()].copy_from_slice(bytes);
        self.write_control(&control)
    }

    /// The time of each step of one run, in microseconds.
    pub(crate) fn profile(&self) -> Result<Vec<f64>, Error> {
        let (Some(bound), Some(device)) = (&self.bound, self.device.as_vulkan()) else {
            return Err(Error::Call("only Vulkan devices measure the time of steps".to_string()));
        };
        let has_arguments = self.plan().inputs.is_empty() || self.memory.has_run.load(Ordering::Acquire);
        if !device.has_timestamps() || !has_arguments {
            let what =
                "profiling needs a device opened with timestamps, and a function that was called or has no arguments";
            return Err(Error::Call(what.to_string()));
        }
        let mut times = vec![];
        for list in self.commands().timed(bound) {
            let submission = device.submit(list)?;
            device.wait(&submission)?;
            times.extend(device.timings(&submission).into_iter().map(|(_, us)| us));
        }
        Ok(times)
    }

    /// The plan's commands; only on Vulkan.
    pub(super) fn commands(&self) -> &UnboundCommands {
        self.compiled.commands.as_ref().expect("a Vulkan device has commands")
    }

    /// The commands with addresses; only on Vulkan.
    pub(super) fn bound(&self) -> &BoundCommands {
        self.bound.as_ref().expect("a Vulkan device has commands")
    }

    /// The Vulkan device; an error says that `what` needs it.
    pub(super) fn vulkan(&self, what: &str) -> Result<&Arc<refrain_vulkan::Device>, Error> {
        let none = || Error::Call(format!("{what} needs a Vulkan device, not the CPU executor"));
        self.device.as_vulkan().ok_or_else(none)
    }

    pub(super) fn mark_run(&self) {
        self.memory.has_run.store(true, Ordering::Release);
    }

    /// Whether it has run, so that outputs hold results.
    pub(crate) fn has_run(&self) -> bool {
        self.memory.has_run.load(Ordering::Acquire)
    }

    /// Output `number` and its storage.
    pub(crate) fn output(&self, number: usize) -> (&Operand, Storage) {
        let operand = &self.plan().outputs[number];
        (operand, self.storage(operand.place.block).clone())
    }

    /// The storage of a block.
    pub(crate) fn storage(&self, block: Block) -> &Storage {
        self.memory.block(block)
    }

    /// The storage bound to a slot.
    pub(crate) fn slot(&self, number: usize) -> &Storage {
        &self.memory.slots[number]
    }
}

/// The layout of an output relative to the start of its storage.
pub(crate) fn layout_in_storage(operand: &Operand) -> Layout {
    let mut layout = operand.layout.clone();
    layout.offset += operand.place.offset as usize / operand.dtype.size();
    layout
}
