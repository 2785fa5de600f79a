//! Executors: the same plan, computed on the CPU or recorded for a Vulkan device.

mod compare;
mod eager;
mod pressure;
mod recurrent;
mod reference;
mod replay;
mod stepper;

pub use compare::Difference;
pub(crate) use compare::first_difference;
pub(crate) use eager::translate;
pub use replay::{MOST_WORDS, Run, Tape, TapeMode, Write};
pub use stepper::{Part, Stepper};

use std::sync::atomic::{AtomicBool, Ordering};

use refrain_kernels::cpu;
use refrain_vulkan::MemoryClass;

use crate::device::{Backend, Flush};
use crate::plan::{Block, Operand, Plan};
use crate::storage::Storage;
use crate::{Error, Layout};

/// A plan with its memory: ready to run, any number of times.
pub struct Executable {
    plan: Plan,
    memory: Memory,
    recorded: Option<eager::Recorded>,
    /// Whether outputs hold anything yet.
    ran: AtomicBool,
    /// What recordings refer to by address alone.
    kept: std::sync::Mutex<Vec<refrain_vulkan::Buffer>>,
}

/// The blocks of a plan, resolved.
pub(crate) struct Memory {
    storages: Vec<Storage>,
    control: Option<Storage>,
    scratch: Option<Storage>,
    /// Zero between runs: each dispatch that counts there leaves zeros. One that is cut off does not, but that happens
    /// to a lost device alone, on which nothing runs any more.
    tickets: Option<Storage>,
    outputs: Vec<Storage>,
}

impl Memory {
    fn allocate(plan: &Plan) -> Result<Memory, Error> {
        let some = |class, bytes| {
            if bytes > 0 {
                plan.device.allocate(class, bytes).map(Some)
            } else {
                Ok(None)
            }
        };
        let outputs = plan
            .output_bytes
            .iter()
            .map(|&bytes| plan.device.allocate(MemoryClass::Scratch, bytes));
        let tickets = some(MemoryClass::Scratch, plan.ticket_bytes)?;
        if let Some(tickets) = &tickets {
            let zeros = &mut |_: u64, piece: &mut [u8]| piece.fill(0);
            plan.device.fill(tickets, plan.ticket_bytes, zeros)?;
        }
        Ok(Memory {
            tickets,
            storages: plan.storages.clone(),
            control: some(MemoryClass::Control, plan.control_bytes)?,
            scratch: some(MemoryClass::Scratch, plan.scratch_bytes)?,
            outputs: outputs.collect::<Result<_, _>>()?,
        })
    }

    pub(crate) fn block(&self, block: Block) -> &Storage {
        match block {
            Block::Storage(n) => &self.storages[n],
            Block::Control => self.control.as_ref().expect("a plan with inputs has a control block"),
            Block::Scratch => self
                .scratch
                .as_ref()
                .expect("a plan with intermediate results has an arena"),
            Block::Tickets => self.tickets.as_ref().expect("a plan with counters has memory for them"),
            Block::Output(n) => &self.outputs[n],
        }
    }
}

impl Executable {
    /// Gives a plan its memory and, on Vulkan, compiles its kernels.
    ///
    /// # Errors
    /// Out of memory, or a shader that the driver refuses.
    pub fn new(plan: Plan) -> Result<Executable, Error> {
        let memory = Memory::allocate(&plan)?;
        let recorded = match plan.device.backend() {
            Backend::Cpu => {
                plan.steps.iter().try_for_each(reference::check_memory)?;
                None
            }
            Backend::Vulkan { device, .. } => Some(eager::Recorded::new(device, &plan, &memory)?),
        };
        Ok(Executable {
            plan,
            memory,
            recorded,
            ran: AtomicBool::new(false),
            kept: Default::default(),
        })
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Computes the plan's steps. On Vulkan it returns once they are submitted.
    pub(crate) fn run(&self, reason: Flush) -> Result<(), Error> {
        match (&self.recorded, self.plan.device.backend()) {
            (Some(recorded), Backend::Vulkan { device, .. }) => recorded.submit(device, &self.plan.device, reason)?,
            _ => {
                let steps = &self.plan.steps;
                cpu::together(|| steps.iter().for_each(|step| reference::run(step, &self.memory)));
                self.plan.device.count_flush(reason);
            }
        }
        self.mark_run();
        Ok(())
    }

    /// Writes the control block. Waits until the device has done what it was given with the old one.
    pub(crate) fn write_control(&self, bytes: &[u8]) -> Result<(), Error> {
        let Some(control) = &self.memory.control else {
            return Ok(());
        };
        match (&self.recorded, self.plan.device.backend()) {
            (Some(recorded), Backend::Vulkan { device, .. }) => recorded.write_control(device, control, bytes),
            _ => self.plan.device.fill(control, bytes.len() as u64, &mut |_, piece| {
                piece.copy_from_slice(bytes)
            }),
        }
    }

    /// Microseconds of each step of one run.
    pub(crate) fn profile(&self) -> Result<Vec<f64>, Error> {
        let (Some(recorded), Some(device)) = (&self.recorded, self.plan.device.as_vulkan()) else {
            return Err(Error::Call("only a Vulkan device measures steps".to_string()));
        };
        if !device.measures_time() || !self.plan.inputs.is_empty() {
            let what = "steps are measured of functions without arguments, on devices opened with timestamps";
            return Err(Error::Call(what.to_string()));
        }
        let submission = device.submit(recorded.timed(recorded.list()?))?;
        device.wait(&submission)?;
        let timings = device.timings(&submission);
        Ok(timings.into_iter().map(|(_, us)| us).collect())
    }

    fn mark_run(&self) {
        self.ran.store(true, Ordering::Release);
    }

    /// Whether it was ever run, so that outputs hold something.
    pub(crate) fn has_run(&self) -> bool {
        self.ran.load(Ordering::Acquire)
    }

    /// Keeps a buffer as long as this lives.
    fn keep(&self, buffer: refrain_vulkan::Buffer) {
        let mut kept = self.kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        kept.push(buffer);
    }

    /// Output `number` as stored.
    pub(crate) fn output(&self, number: usize) -> (&Operand, Storage) {
        let operand = &self.plan.outputs[number];
        (operand, self.storage(operand.place.block).clone())
    }

    /// The memory of a block.
    pub(crate) fn storage(&self, block: Block) -> &Storage {
        self.memory.block(block)
    }

    /// Bytes of memory that only this executable uses.
    pub fn own_bytes(&self) -> u64 {
        self.plan.scratch_bytes
            + self.plan.ticket_bytes
            + self.plan.control_bytes
            + self.plan.output_bytes.iter().sum::<u64>()
    }
}

/// The layout of an output counted from the start of its storage.
pub(crate) fn layout_in_storage(operand: &Operand) -> Layout {
    let mut layout = operand.layout.clone();
    layout.offset += operand.place.offset as usize / operand.dtype.size();
    layout
}
