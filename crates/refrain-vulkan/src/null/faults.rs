//! Fault injection and kernel stubs of null devices.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Null, NullState};
use crate::backend::Failure;
use crate::class::MemoryClass;
use crate::mapped::Mapped;
use crate::null_event::RecordedCommand;
use crate::queue::Queue;

/// A fault of a null device. Command lists, submit calls and allocations are counted from 1. Only lists of the compute
/// queue count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The device is lost while it runs that list, and every call reports the loss.
    LostAt(u64),
    /// From that list on nothing is computed, though every call succeeds and timelines are signalled. Only the device
    /// status reports the loss.
    SilentFrom(u64),
    /// From that list on nothing is computed, and timelines jump to the maximum value.
    CounterJumpsAt(u64),
    /// That list never completes.
    HangsAt(u64),
    /// From that list on, reading a timeline fails.
    CounterFailsFrom(u64),
    /// That submit call fails and has no effect.
    SubmitFails(u64),
    /// That allocation fails, with an error other than out of memory.
    AllocationFails(u64),
}

/// Replacement for kernels. It is called for each dispatch that completes on the compute queue, with the kernel name,
/// its push constants, and the host-visible memory.
pub type KernelStub = Arc<dyn Fn(&str, &[u8], &NullMemory<'_>) + Send + Sync>;

/// Options of a null device.
#[derive(Clone, Default)]
pub struct NullOptions {
    /// Faults to inject.
    pub faults: Vec<Fault>,
    /// Whether to ignore uploads. This allows programs with large weights to be planned from their shapes alone.
    pub without_contents: bool,
    /// Time without a completed list after which the device counts as hanging; as
    /// [`crate::OpenOptions::stall_timeout`].
    pub stall_timeout: Option<Duration>,
    /// Directory of the shader cache; as [`crate::OpenOptions::cache_dir`].
    pub cache_dir: Option<PathBuf>,
    /// Whether scratch memory is kept; as [`crate::OpenOptions::keep_scratch`].
    pub keep_scratch: bool,
    /// Replacement for kernels.
    pub kernel_stub: Option<KernelStub>,
    /// Counts the reads of timeline values.
    pub counter_reads: Arc<AtomicU64>,
}

impl std::fmt::Debug for NullOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a null device with faults {:?}", self.faults)
    }
}

/// Mapped blocks by start address.
pub(super) type MappedBlocks = BTreeMap<u64, (MemoryClass, Mapped)>;

/// Host-visible memory of a null device.
pub struct NullMemory<'a>(&'a MappedBlocks);

impl NullMemory<'_> {
    /// Returns the memory class and the 32-bit word at an address.
    pub fn load(&self, address: u64) -> Option<(MemoryClass, u32)> {
        let (class, mapped) = self.at(address)?;
        let mut word = [0; 4];
        mapped.read(&mut word);
        Some((class, u32::from_ne_bytes(word)))
    }

    /// Writes the 32-bit word at an address. Does nothing if the address is not host-visible.
    pub fn store(&self, address: u64, word: u32) {
        if let Some((_, mapped)) = self.at(address) {
            mapped.write(&word.to_ne_bytes());
        }
    }

    fn at(&self, address: u64) -> Option<(MemoryClass, Mapped)> {
        let (start, (class, mapped)) = self.0.range(..=address).next_back()?;
        let word = mapped.part(address - start, 4);
        word.holds(4).then_some((*class, word))
    }
}

impl Null {
    fn has(&self, wanted: impl Fn(Fault) -> bool) -> bool {
        self.options.faults.iter().any(|fault| wanted(*fault))
    }

    /// Returns the status that the device reports.
    pub(super) fn reported_status(&self, state: &NullState) -> Result<(), Failure> {
        let submitted = state.submitted[Queue::Compute as usize];
        if self.has(|fault| matches!(fault, Fault::SilentFrom(list) if submitted >= list)) {
            Err(Failure::Lost)
        } else {
            Ok(())
        }
    }

    /// Returns the timeline value of a queue.
    pub(super) fn counter(&self, queue: Queue, state: &NullState) -> Result<u64, Failure> {
        self.options.counter_reads.fetch_add(1, Ordering::Relaxed);
        let submitted = state.submitted[Queue::Compute as usize];
        if self.has(|fault| matches!(fault, Fault::CounterFailsFrom(list) if submitted >= list)) {
            return Err(Failure::Call("vkGetSemaphoreCounterValue", "ERROR_UNKNOWN".to_owned()));
        }
        if self.has(|fault| matches!(fault, Fault::CounterJumpsAt(list) if submitted >= list)) {
            Ok(u64::MAX)
        } else {
            Ok(state.completed[queue as usize])
        }
    }

    /// Completes the work of a queue up to a value, as far as possible. Returns whether that is all of it.
    pub(super) fn run(&self, queue: Queue, value: u64, state: &mut NullState) -> Result<bool, Failure> {
        let mut reached = state.stuck[queue as usize].map_or(value, |stuck| value.min(stuck - 1));
        if queue == Queue::Compute {
            if self.has(|fault| matches!(fault, Fault::LostAt(list) if value >= list)) {
                return Err(Failure::Lost);
            }
            for fault in &self.options.faults {
                if let Fault::HangsAt(list) = fault {
                    reached = reached.min(list - 1);
                }
            }
            self.run_stubs(reached, state);
        }
        let completed = &mut state.completed[queue as usize];
        *completed = reached.max(*completed);
        Ok(reached == value)
    }

    /// Whether one of the values is never reached.
    pub(super) fn is_stuck(&self, waits: &[(Queue, u64)]) -> bool {
        let never = |value: u64| self.has(|fault| matches!(fault, Fault::HangsAt(list) if value >= list));
        waits
            .iter()
            .any(|(queue, value)| *queue == Queue::Compute && never(*value))
    }

    fn run_stubs(&self, reached: u64, state: &mut NullState) {
        while state.running.front().is_some_and(|(value, _)| *value <= reached) {
            let Some((value, commands)) = state.running.pop_front() else {
                return;
            };
            let silent =
                |fault| matches!(fault, Fault::SilentFrom(list) | Fault::CounterJumpsAt(list) if value >= list);
            let Some(kernel_stub) = self.options.kernel_stub.as_ref().filter(|_| !self.has(silent)) else {
                continue;
            };
            for command in &commands {
                if let RecordedCommand::Dispatch { kernel, push, .. } = command {
                    kernel_stub(kernel, push, &NullMemory(&state.mapped));
                }
            }
        }
    }

    pub(super) fn fail_to_submit(&self, queue: Queue, signal: u64, call: u64) -> Result<(), Failure> {
        // A list after the one that was lost.
        let lost = |fault| matches!(fault, Fault::LostAt(list) if signal > list);
        if queue == Queue::Compute && self.has(lost) {
            return Err(Failure::Lost);
        }
        if self.has(|fault| fault == Fault::SubmitFails(call)) {
            Err(Failure::Call("vkQueueSubmit2", "ERROR_OUT_OF_HOST_MEMORY".to_owned()))
        } else {
            Ok(())
        }
    }

    pub(super) fn fail_to_allocate(&self, number: u64) -> Result<(), Failure> {
        if self.has(|fault| fault == Fault::AllocationFails(number)) {
            Err(Failure::Call("vkAllocateMemory", "ERROR_UNKNOWN".to_owned()))
        } else {
            Ok(())
        }
    }
}
