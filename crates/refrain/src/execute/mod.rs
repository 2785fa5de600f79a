//! Executors: the same plan, computed on the CPU or recorded for a Vulkan device.

mod bound;
mod compare;
mod eager;
mod executor;
mod host;
mod inbox;
mod pressure;
mod reference;
mod replay;
mod stepper;
mod tape;

pub use compare::Difference;
pub(crate) use compare::first_difference;
pub use eager::Eager;
pub(crate) use eager::translate;
pub use executor::{Executor, Prepared, Run};
pub(crate) use host::dense;
pub use host::{HostInputs, HostMatrix, HostStep};
pub use inbox::{MOST_WORDS, Write};
pub use reference::Reference;
pub use replay::Replay;
pub use stepper::{StepCommand, Stepper};
pub use tape::Tape;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use refrain_vulkan::MemoryClass;

use crate::device::{Backend, Flush};
use crate::plan::{Block, Operand, Place, Plan};
use crate::storage::Storage;
use crate::{Bindings, Device, Error, Layout};
use bound::BoundCommands;
use inbox::Inbox;

/// A plan with its kernels: ready for memory. It serves any number of [`Executable`]s.
pub struct Compiled {
    plan: Plan,
    commands: Option<eager::Commands>,
}

impl Compiled {
    /// Compiles a plan's kernels, on Vulkan.
    ///
    /// # Errors
    /// Too little memory, or a shader that the driver refuses.
    pub fn new(device: &Device, plan: Plan) -> Result<Compiled, Error> {
        let commands = match device.backend() {
            Backend::Cpu => {
                plan.steps.iter().try_for_each(reference::check_memory)?;
                None
            }
            Backend::Vulkan { .. } => Some(eager::Commands::new(device, &plan)?),
        };
        Ok(Compiled { plan, commands })
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
}

/// A plan with its memory: what [`Executor`]s run, any number of times.
pub struct Executable {
    device: Device,
    compiled: Arc<Compiled>,
    memory: Arc<BlockMemory>,
    /// On Vulkan.
    bound: Option<BoundCommands>,
    inbox: Inbox,
    /// Whether it is run again and again, and without arguments: then its runs are timed on devices that measure time.
    is_tape: bool,
    /// What commands refer to by address alone.
    _kept: Vec<refrain_vulkan::Buffer>,
}

/// The blocks of a plan, resolved.
pub(crate) struct BlockMemory {
    /// By slot.
    slots: Vec<Storage>,
    /// Of each of the plan's leaves, its slot.
    leaves: Vec<usize>,
    arguments: ArgumentMemory,
    scratch: Option<Storage>,
    tickets: Option<Storage>,
    outputs: Vec<Storage>,
    /// Whether outputs hold anything yet.
    is_filled: AtomicBool,
}

/// Where a function's arguments lie.
pub(crate) enum ArgumentMemory {
    /// Together, as the host writes them; there may be none.
    Control(Option<Storage>),
    /// Each in memory of its own: that, and where in the control block the plan has it.
    Arrays(Vec<(u64, Storage)>),
}

impl BlockMemory {
    fn allocate(
        device: &Device,
        compiled: &Compiled,
        bindings: Bindings,
        arguments: ArgumentMemory,
    ) -> Result<BlockMemory, Error> {
        let plan = compiled.plan();
        let scratch = |bytes| device.allocate(MemoryClass::Scratch, bytes);
        Ok(BlockMemory {
            slots: bindings.0,
            leaves: plan.leaves.iter().map(|leaf| leaf.slot).collect(),
            arguments,
            scratch: some(plan.scratch_bytes).map(scratch).transpose()?,
            tickets: (compiled.commands.as_ref()).and_then(|commands| commands.tickets().cloned()),
            outputs: plan
                .output_bytes
                .iter()
                .map(|&bytes| scratch(bytes))
                .collect::<Result<_, _>>()?,
            is_filled: AtomicBool::new(false),
        })
    }

    pub(crate) fn block(&self, block: Block) -> &Storage {
        match block {
            Block::Storage(n) => &self.slots[self.leaves[n]],
            Block::Control => match &self.arguments {
                ArgumentMemory::Control(control) => control.as_ref().expect("a plan with inputs has a control block"),
                ArgumentMemory::Arrays(_) => unreachable!("arguments are looked for by their places"),
            },
            Block::Scratch => self
                .scratch
                .as_ref()
                .expect("a plan with intermediate results has an arena"),
            Block::Tickets => self.tickets.as_ref().expect("a plan with counters has memory for them"),
            Block::Output(n) => &self.outputs[n],
        }
    }

    /// The memory at a place, and bytes from its start.
    pub(crate) fn at(&self, place: Place) -> (&Storage, u64) {
        match (&self.arguments, place.block) {
            (ArgumentMemory::Arrays(arrays), Block::Control) => {
                let argument = arrays.iter().find(|(offset, _)| *offset == place.offset);
                (&argument.expect("every argument is bound").1, 0)
            }
            _ => (self.block(place.block), place.offset),
        }
    }
}

/// Bytes, unless there are none.
fn some(bytes: u64) -> Option<u64> {
    (bytes > 0).then_some(bytes)
}

impl Executable {
    /// Gives a plan its memory, and its arguments a control block.
    ///
    /// # Errors
    /// Too little memory.
    pub fn new(device: &Device, compiled: Arc<Compiled>, bindings: Bindings) -> Result<Executable, Error> {
        let control = some(compiled.plan.control_bytes);
        let control = control.map(|bytes| device.allocate(MemoryClass::Control, bytes));
        let arguments = ArgumentMemory::Control(control.transpose()?);
        Executable::with_arguments(device, compiled, bindings, arguments)
    }

    pub(crate) fn with_arguments(
        device: &Device,
        compiled: Arc<Compiled>,
        bindings: Bindings,
        arguments: ArgumentMemory,
    ) -> Result<Executable, Error> {
        let memory = BlockMemory::allocate(device, &compiled, bindings, arguments)?;
        let bound = compiled.commands.as_ref().map(|commands| commands.bound_to(&memory));
        Ok(Executable {
            device: device.clone(),
            compiled,
            memory: Arc::new(memory),
            bound,
            inbox: Inbox::default(),
            is_tape: false,
            _kept: vec![],
        })
    }

    /// The same for runs without arguments again and again.
    pub(crate) fn into_tape(self) -> Executable {
        let is_tape = self.plan().inputs.is_empty();
        Executable { is_tape, ..self }
    }

    /// Has the driver translate the commands of each run by itself, unless they are a tape's, whose executor does so.
    pub(crate) fn translate(&self) -> Result<(), Error> {
        match (&self.bound, self.device.as_vulkan()) {
            (Some(bound), Some(vulkan)) if !self.is_tape => bound.translate(vulkan),
            _ => Ok(()),
        }
    }

    /// The same over the same memory, with a wrong number put into the result of a step at each run.
    pub(crate) fn with_fault(&self, step: usize) -> Result<Executable, Error> {
        self.vulkan("a fault")?;
        let (commands, message) = inbox::fault_at(self, step)?;
        let list = self.commands().with(self.bound().list()?, step, commands);
        Ok(Executable {
            device: self.device.clone(),
            compiled: self.compiled.clone(),
            memory: self.memory.clone(),
            bound: Some(BoundCommands::new(vec![list])),
            inbox: Inbox::default(),
            is_tape: self.is_tape,
            _kept: vec![message],
        })
    }

    /// Where it runs.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.compiled.plan
    }

    /// Runs it once. On Vulkan it returns once that is submitted.
    pub(crate) fn run(self: &Arc<Self>, reason: Flush) -> Result<(), Error> {
        if self.bound.as_ref().is_none_or(|bound| !bound.is_empty()) {
            self.device.count_flush(reason);
        }
        self.device.evaluator().prepare(self)?.play(None, &[], 1)?;
        self.mark_run();
        Ok(())
    }

    /// Puts words into states, behind all that was submitted before. Of several writes to one word the last counts.
    ///
    /// # Errors
    /// More than [`MOST_WORDS`] words, words outside of a state, a failing device.
    pub fn deliver(&self, writes: &[Write]) -> Result<(), Error> {
        let Some(vulkan) = self.device.as_vulkan() else {
            for write in writes {
                let bytes: &[u8] = bytemuck::cast_slice(&write.words);
                self.device
                    .write(&inbox::state_of(write)?, 4 * write.at as u64, bytes)?;
            }
            return Ok(());
        };
        if let Some(delivery) = self.inbox.write(self, writes)? {
            let submissions = vulkan.submit_recorded(&[delivery.recording()])?;
            delivery.submitted(submissions[0]);
        }
        Ok(())
    }

    /// Submits dispatches and barriers in an order of the caller's, by one submit.
    ///
    /// # Errors
    /// Another device than a Vulkan one, or one that fails.
    ///
    /// # Panics
    /// If a part names no dispatch of the plan.
    pub fn submit(&self, parts: &[StepCommand]) -> Result<Run, Error> {
        let vulkan = self.vulkan("a submit of single dispatches")?;
        let submission = vulkan.submit(self.commands().parts(self.bound(), parts))?;
        Ok(Run::untimed(Some(submission)))
    }

    /// Writes the control block. Waits until the device has done what it was given with the old one.
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

    /// Microseconds of each step of one run.
    pub(crate) fn profile(&self) -> Result<Vec<f64>, Error> {
        let (Some(bound), Some(device)) = (&self.bound, self.device.as_vulkan()) else {
            return Err(Error::Call("only a Vulkan device measures steps".to_string()));
        };
        let has_arguments = self.plan().inputs.is_empty() || self.memory.is_filled.load(Ordering::Acquire);
        if !device.measures_time() || !has_arguments {
            let what = "steps are measured of functions that have their arguments, on devices opened with timestamps";
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

    /// The plan's commands, on Vulkan.
    fn commands(&self) -> &eager::Commands {
        self.compiled.commands.as_ref().expect("a Vulkan device has commands")
    }

    /// The commands over this memory, on Vulkan.
    fn bound(&self) -> &BoundCommands {
        self.bound.as_ref().expect("a Vulkan device has commands")
    }

    /// The Vulkan device, which `what` needs.
    fn vulkan(&self, what: &str) -> Result<&Arc<refrain_vulkan::Device>, Error> {
        let none = || Error::Call(format!("{what} needs a Vulkan device, not the CPU executor"));
        self.device.as_vulkan().ok_or_else(none)
    }

    fn mark_run(&self) {
        self.memory.is_filled.store(true, Ordering::Release);
    }

    /// Whether it was ever run, so that outputs hold something.
    pub(crate) fn has_run(&self) -> bool {
        self.memory.is_filled.load(Ordering::Acquire)
    }

    /// Output `number` as stored.
    pub(crate) fn output(&self, number: usize) -> (&Operand, Storage) {
        let operand = &self.plan().outputs[number];
        (operand, self.storage(operand.place.block).clone())
    }

    /// The memory of a block.
    pub(crate) fn storage(&self, block: Block) -> &Storage {
        self.memory.block(block)
    }

    /// The memory bound to a slot.
    pub(crate) fn slot(&self, number: usize) -> &Storage {
        &self.memory.slots[number]
    }
}

/// The layout of an output counted from the start of its storage.
pub(crate) fn layout_in_storage(operand: &Operand) -> Layout {
    let mut layout = operand.layout.clone();
    layout.offset += operand.place.offset as usize / operand.dtype.size();
    layout
}
