//! The memory of a plan: a storage for each block.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use refrain_vulkan::MemoryClass;

use crate::plan::{Block, Place, Plan, Step};
use crate::storage::{Bindings, Storage};
use crate::{Device, Error};

/// Memory for intermediate results that several functions of a device share, instead of each having its own.
///
/// The functions must be called and played from one thread: then their runs are executed one after another. Outputs have
/// memory of their own.
#[derive(Clone, Default, Debug)]
pub struct SharedScratch(Arc<Mutex<Option<(u64, Storage)>>>);

impl SharedScratch {
    /// Returns the bytes of the memory.
    pub fn bytes(&self) -> u64 {
        let memory = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        memory.as_ref().map_or(0, |(bytes, _)| *bytes)
    }

    /// Releases the memory once no function uses it.
    pub fn release(&self) {
        *self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = None;
    }

    /// Returns at least `bytes` bytes. Functions that have less keep what they have.
    fn get(&self, device: &Device, bytes: u64) -> Result<Storage, Error> {
        let mut memory = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some((size, storage)) = &*memory
            && *size >= bytes
        {
            return Ok(storage.clone());
        }
        let storage = device.allocate(MemoryClass::Scratch, bytes)?;
        Ok(memory.insert((bytes, storage)).1.clone())
    }
}

/// The memory of each block of a plan.
pub(crate) struct BlockMemory {
    /// By slot number.
    pub(super) slots: Vec<Storage>,
    /// The slot of each of the plan's leaves.
    pub(super) leaves: Vec<usize>,
    pub(super) arguments: ArgumentMemory,
    pub(super) scratch: Option<Storage>,
    pub(super) tickets: Option<Storage>,
    pub(super) outputs: Vec<Storage>,
    /// Whether the program has run, so that outputs hold results.
    pub(super) has_run: AtomicBool,
}

/// The memory of a function's arguments.
pub(crate) enum ArgumentMemory {
    /// One control block that the host writes; `None` without arguments.
    Control(Option<Storage>),
    /// Separate memory for each argument, with the argument's offset in the plan's control block.
    Arrays(Vec<(u64, Storage)>),
}

impl BlockMemory {
    /// Allocates what a plan needs besides leaves, arguments and `tickets`.
    pub(super) fn allocate(
        device: &Device,
        plan: &Plan,
        tickets: Option<&Storage>,
        bindings: Bindings,
        (arguments, shared): (ArgumentMemory, Option<&SharedScratch>),
    ) -> Result<BlockMemory, Error> {
        let output = |bytes| device.allocate(MemoryClass::Scratch, bytes);
        let scratch = |bytes| match shared {
            Some(shared) => shared.get(device, bytes),
            None => output(bytes),
        };
        Ok(BlockMemory {
            slots: bindings.0,
            leaves: plan.leaves.iter().map(|leaf| leaf.slot).collect(),
            arguments,
            scratch: nonzero(plan.scratch_bytes).map(scratch).transpose()?,
            tickets: tickets.cloned(),
            outputs: plan
                .output_bytes
                .iter()
                .map(|&bytes| output(bytes))
                .collect::<Result<_, _>>()?,
            has_run: AtomicBool::new(false),
        })
    }

    pub(crate) fn block(&self, block: Block) -> &Storage {
        match block {
            Block::Storage(n) => &self.slots[self.leaves[n]],
            Block::Control => match &self.arguments {
                ArgumentMemory::Control(control) => control.as_ref().expect("a plan with inputs has a control block"),
                ArgumentMemory::Arrays(_) => unreachable!("arguments in arrays are resolved by their offset"),
            },
            Block::Scratch => self
                .scratch
                .as_ref()
                .expect("a plan with intermediate results has scratch memory"),
            Block::Tickets => self.tickets.as_ref().expect("a plan with counters has ticket memory"),
            Block::Output(n) => &self.outputs[n],
        }
    }

    /// The storage of a place, and the byte offset in it.
    pub(crate) fn resolve(&self, place: Place) -> (&Storage, u64) {
        match (&self.arguments, place.block) {
            (ArgumentMemory::Arrays(arrays), Block::Control) => {
                let argument = arrays.iter().find(|(offset, _)| *offset == place.offset);
                (&argument.expect("every argument is bound").1, 0)
            }
            _ => (self.block(place.block), place.offset),
        }
    }
}

/// `None` for 0 bytes.
pub(super) fn nonzero(bytes: u64) -> Option<u64> {
    (bytes > 0).then_some(bytes)
}

/// Checks that the values of a step fit into host memory. A broadcast view may have more elements than memory holds.
///
/// # Errors
/// [`Error::HostMemory`].
pub(super) fn check_memory(step: &Step) -> Result<(), Error> {
    let counts = step.inputs.iter().chain(&step.outputs).map(|o| o.layout.count() as u64);
    let bytes = counts.fold(0u64, |all, n| all.saturating_add(n.saturating_mul(4)));
    let fits = usize::try_from(bytes).is_ok_and(|bytes| Vec::<u8>::new().try_reserve_exact(bytes).is_ok());
    if fits { Ok(()) } else { Err(Error::HostMemory { bytes }) }
}
