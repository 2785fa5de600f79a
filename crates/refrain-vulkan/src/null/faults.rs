//! How a null device fails, and what stands for kernels on it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Null, NullState, RecordedCommand};
use crate::backend::{Failure, Queue};
use crate::class::MemoryClass;
use crate::mapped::Mapped;

/// A way in which a null device fails. Command lists, submit calls and allocations are counted from 1, lists
/// those of the compute queue alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The device is lost while it runs that list, and every call says so.
    LostAt(u64),
    /// From that list on nothing is computed, though every call succeeds and timelines are signalled; the
    /// device's status tells.
    SilentFrom(u64),
    /// From that list on nothing is computed, and timelines count to the end of numbers.
    JumpsAt(u64),
    /// That list never ends.
    StuckAt(u64),
    /// From that list on no timeline can be read.
    CounterFailsFrom(u64),
    /// That call to submit fails, and has no effect.
    SubmitFails(u64),
    /// That allocation fails, and not for lack of memory.
    AllocationFails(u64),
}

/// What stands for kernels: called for each dispatch that completes on the compute queue, with the kernel's
/// name, its push constants, and the memory that the host sees.
pub type StandIn = Arc<dyn Fn(&str, &[u8], &Words<'_>) + Send + Sync>;

/// How a null device behaves.
#[derive(Clone, Default)]
pub struct NullOptions {
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// Uploads are not even filled: for what is known of a program from its shapes alone, however large its
    /// weights are.
    pub without_contents: bool,
    /// How long it may go without ending a list; as [`crate::OpenOptions::patience`].
    pub patience: Option<Duration>,
    /// Where compiled shaders are kept; as [`crate::OpenOptions::cache_dir`].
    pub cache_dir: Option<PathBuf>,
    /// What stands for kernels.
    pub stand_in: Option<StandIn>,
    /// Counts how often a timeline is read.
    pub questions: Arc<AtomicU64>,
}

impl std::fmt::Debug for NullOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a null device with faults {:?}", self.faults)
    }
}

/// Blocks by their address.
pub(super) type MappedBlocks = BTreeMap<u64, (MemoryClass, Mapped)>;

/// Memory of a null device that the host sees.
pub struct Words<'a>(&'a MappedBlocks);

impl Words<'_> {
    /// The class of the memory at an address, and the word there.
    pub fn load(&self, address: u64) -> Option<(MemoryClass, u32)> {
        let (class, place) = self.at(address)?;
        let mut word = [0; 4];
        place.read(&mut word);
        Some((class, u32::from_ne_bytes(word)))
    }

    /// Changes the word at an address.
    pub fn store(&self, address: u64, word: u32) {
        if let Some((_, place)) = self.at(address) {
            place.write(&word.to_ne_bytes());
        }
    }

    fn at(&self, address: u64) -> Option<(MemoryClass, Mapped)> {
        let (start, (class, mapped)) = self.0.range(..=address).next_back()?;
        let place = mapped.part(address - start, 4);
        place.holds(4).then_some((*class, place))
    }
}

impl Null {
    fn has(&self, wanted: impl Fn(Fault) -> bool) -> bool {
        self.options.faults.iter().any(|fault| wanted(*fault))
    }

    /// The device's own word of how it is.
    pub(super) fn tell(&self, state: &NullState) -> Result<(), Failure> {
        let submitted = state.submitted[Queue::Compute as usize];
        if self.has(|fault| matches!(fault, Fault::SilentFrom(list) if submitted >= list)) {
            Err(Failure::Lost)
        } else {
            Ok(())
        }
    }

    /// The queue's counter.
    pub(super) fn counter(&self, queue: Queue, state: &NullState) -> Result<u64, Failure> {
        self.options.questions.fetch_add(1, Ordering::Relaxed);
        let submitted = state.submitted[Queue::Compute as usize];
        if self.has(|fault| matches!(fault, Fault::CounterFailsFrom(list) if submitted >= list)) {
            return Err(Failure::Call("vkGetSemaphoreCounterValue", "ERROR_UNKNOWN".to_owned()));
        }
        if self.has(|fault| matches!(fault, Fault::JumpsAt(list) if submitted >= list)) {
            Ok(u64::MAX)
        } else {
            Ok(state.completed[queue as usize])
        }
    }

    /// Completes what the queue was given up to a value, as far as it can; whether that is all of it.
    pub(super) fn run(&self, queue: Queue, value: u64, state: &mut NullState) -> Result<bool, Failure> {
        let mut reached = state.stuck[queue as usize].map_or(value, |stuck| value.min(stuck - 1));
        if queue == Queue::Compute {
            if self.has(|fault| matches!(fault, Fault::LostAt(list) if value >= list)) {
                return Err(Failure::Lost);
            }
            for fault in &self.options.faults {
                if let Fault::StuckAt(list) = fault {
                    reached = reached.min(list - 1);
                }
            }
            self.stand_in(reached, state);
        }
        let completed = &mut state.completed[queue as usize];
        *completed = reached.max(*completed);
        Ok(reached == value)
    }

    /// Whether one of these is never reached.
    pub(super) fn is_stuck(&self, waits: &[(Queue, u64)]) -> bool {
        let never = |value: u64| self.has(|fault| matches!(fault, Fault::StuckAt(list) if value >= list));
        waits
            .iter()
            .any(|(queue, value)| *queue == Queue::Compute && never(*value))
    }

    fn stand_in(&self, reached: u64, state: &mut NullState) {
        while state.running.front().is_some_and(|(value, _)| *value <= reached) {
            let Some((value, commands)) = state.running.pop_front() else {
                return;
            };
            let silent = |fault| matches!(fault, Fault::SilentFrom(list) | Fault::JumpsAt(list) if value >= list);
            let Some(stand_in) = self.options.stand_in.as_ref().filter(|_| !self.has(silent)) else {
                continue;
            };
            for command in &commands {
                if let RecordedCommand::Dispatch { kernel, push, .. } = command {
                    stand_in(kernel, push, &Words(&state.mapped));
                }
            }
        }
    }

    pub(super) fn fail_to_submit(&self, queue: Queue, signal: u64, call: u64) -> Result<(), Failure> {
        // A list behind the one that was lost.
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
