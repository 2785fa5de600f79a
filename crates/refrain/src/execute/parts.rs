//! What an executable leaves for the next run of its program: its memory, and the commands with the addresses of that.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::bound::BoundCommands;
use super::executable::{Compiled, Executable};
use super::memory::BlockMemory;
use crate::storage::{Bindings, Storage};
use crate::{Device, Error};

/// An executable without its device and its plan. Its handles to memory are idle.
pub(crate) struct IdleExecutable(Option<Parts>);

struct Parts {
    memory: BlockMemory,
    bound: Option<BoundCommands>,
}

impl Parts {
    fn handles(&self) -> impl Iterator<Item = &Storage> {
        self.memory.slots.iter().chain(&self.memory.outputs)
    }
}

impl IdleExecutable {
    /// Takes an executable apart. `None` if something else still uses it.
    pub(crate) fn of(executable: Arc<Executable>) -> Option<IdleExecutable> {
        let Executable { memory, bound, .. } = Arc::into_inner(executable)?;
        let parts = Parts {
            memory: Arc::into_inner(memory)?,
            bound,
        };
        parts.handles().for_each(|storage| storage.set_idle(true));
        Some(IdleExecutable(Some(parts)))
    }

    fn parts(&self) -> &Parts {
        self.0.as_ref().expect("it is not taken")
    }

    fn take(mut self) -> Parts {
        let parts = self.0.take().expect("it is taken once");
        parts.handles().for_each(|storage| storage.set_idle(false));
        parts
    }

    /// Whether no array refers to its outputs.
    pub(crate) fn is_free(&self) -> bool {
        let mut outputs = self.parts().memory.outputs.iter();
        outputs.all(|storage| storage.handle_count() == 0)
    }

    /// Whether its leaves are in the same memory.
    pub(crate) fn is_bound_to(&self, slots: &[Storage]) -> bool {
        let own = &self.parts().memory.slots;
        own.len() == slots.len() && own.iter().zip(slots).all(|(own, slot)| own.same(slot))
    }

    /// The memory of its outputs, as [`Storage::key`].
    pub(crate) fn output_keys(&self) -> impl Iterator<Item = usize> {
        self.parts().memory.outputs.iter().map(Storage::key)
    }

    /// Bytes of leaves that no array refers to any more, without those in `outputs`.
    pub(crate) fn dead_bytes(&self, outputs: &HashSet<usize>) -> u64 {
        let slots = self.parts().memory.slots.iter();
        slots
            .filter(|storage| storage.handle_count() == 0 && !outputs.contains(&storage.key()))
            .map(Storage::bytes)
            .sum()
    }

    /// Takes out its leaves and the commands that read them, for the caller to drop. It serves as memory for the results
    /// of another run.
    pub(crate) fn take_leaves(&mut self) -> impl Sized + use<> {
        let parts = self.0.as_mut().expect("it is not taken");
        let leaves = std::mem::take(&mut parts.memory.slots);
        leaves.iter().for_each(|storage| storage.set_idle(false));
        (leaves, parts.bound.take())
    }

    /// The executable that runs again over the same memory.
    pub(crate) fn into_executable(self, device: &Device, compiled: Arc<Compiled>) -> Executable {
        let Parts { memory, bound } = self.take();
        Executable::from_parts(device, compiled, memory, bound)
    }

    /// An executable that writes its results into the same memory and has other leaves.
    pub(crate) fn rebound(
        self,
        device: &Device,
        compiled: Arc<Compiled>,
        bindings: Bindings,
    ) -> Result<Executable, Error> {
        // The device may still read the last run's arguments.
        let arguments = compiled.allocate_arguments(device)?;
        let memory = BlockMemory {
            slots: bindings.0,
            arguments,
            has_run: AtomicBool::new(false),
            ..self.take().memory
        };
        let bound = compiled.commands.as_ref().map(|commands| commands.bind(&memory));
        Ok(Executable::from_parts(device, compiled, memory, bound))
    }
}

impl Drop for IdleExecutable {
    fn drop(&mut self) {
        if let Some(parts) = &self.0 {
            parts.handles().for_each(|storage| storage.set_idle(false));
        }
    }
}
