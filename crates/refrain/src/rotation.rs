//! Executables of programs that are evaluated again and again. They run again in the same memory, so that their commands
//! stay recorded.
//!
//! A loop that reads the last result to make the next one, as decoding does, has a few sets of memory in turn. From the
//! second turn on, each run finds its leaves where they were.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::execute::{Executable, IdleExecutable};
use crate::program::Program;
use crate::storage::Bindings;
use crate::{Device, Error};

/// Number of sets of memory for one program: a loop holds the results of the last two runs while the next one runs.
const MAX_SETS: usize = 4;

/// Number of sets of memory for all programs of a device.
const MAX_ALL_SETS: usize = 8;

/// Memory in bytes that a set may have on any device. Prompts need more, and take long enough to record their commands.
const SET_BYTES: u64 = 64 << 20;

/// A set may also have one part in this many of the device's memory: tokens of a model with large recurrent states have
/// more than [`SET_BYTES`], and the cards that hold such models are large.
const SET_SHARE: u64 = 256;

/// Maximum memory in bytes of leaves that a set may keep although nothing refers to them: a cache that has grown since,
/// say.
const MAX_DEAD_BYTES: u64 = 16 << 20;

/// A device's idle executables, the one that ran longest ago first.
#[derive(Default)]
pub(crate) struct Rotation(Mutex<Vec<Idle>>);

struct Idle {
    program: Arc<Program>,
    executable: IdleExecutable,
}

impl Rotation {
    /// An executable of a program with these leaves, and whether it ran with them before. Nothing refers to its results.
    ///
    /// # Errors
    /// Fails if memory runs out.
    pub fn executable(
        &self,
        device: &Device,
        program: &Arc<Program>,
        bindings: Bindings,
    ) -> Result<(Executable, bool), Error> {
        let compiled = program.compiled.clone();
        let executable = match self.take(program, &bindings) {
            Some((idle, true)) => return Ok((idle.into_executable(device, compiled), true)),
            Some((idle, false)) => idle.rebound(device, compiled, bindings),
            None => Executable::new(device, compiled.clone(), bindings.clone()).or_else(|error| {
                // What is kept may be what is missing.
                if self.clear() {
                    Executable::new(device, compiled, bindings)
                } else {
                    Err(error)
                }
            }),
        };
        Ok((executable?, false))
    }

    /// Takes out the executable with these leaves, else the one of the program that ran longest ago. Returns it, and
    /// whether it has these leaves.
    fn take(&self, program: &Arc<Program>, bindings: &Bindings) -> Option<(IdleExecutable, bool)> {
        let mut all = self.lock();
        let is_own = |idle: &Idle| Arc::ptr_eq(&idle.program, program);
        let is_free = |idle: &Idle| is_own(idle) && idle.executable.is_free();
        let is_bound = |idle: &Idle| is_free(idle) && idle.executable.is_bound_to(&bindings.0);
        let bound = all.iter().position(is_bound);
        let sets = all.iter().filter(|idle| is_own(idle)).count();
        // A first turn is needed before leaves are where they were.
        let number = bound.or_else(|| all.iter().position(is_free).filter(|_| sets >= MAX_SETS - 1))?;
        Some((all.remove(number).executable, bound.is_some()))
    }

    /// Keeps an executable after its run.
    pub fn keep(&self, device: &Device, program: &Arc<Program>, executable: Arc<Executable>) {
        let plan = program.plan();
        if plan.scratch_bytes + plan.output_bytes.iter().sum::<u64>() > max_set_bytes(device) {
            return;
        }
        let Some(executable) = IdleExecutable::of(executable) else {
            return;
        };
        let mut all = self.lock();
        let sets = all.iter().filter(|idle| Arc::ptr_eq(&idle.program, program)).count();
        if sets >= MAX_SETS {
            return;
        }
        all.push(Idle {
            program: program.clone(),
            executable,
        });
        // The results of one set are the leaves of the next: a recurrent state, say.
        let outputs = all.iter().flat_map(|idle| idle.executable.output_keys()).collect();
        let is_dead = |idle: &&mut Idle| idle.executable.dead_bytes(&outputs) > MAX_DEAD_BYTES;
        let dead = all.iter_mut().filter(is_dead);
        let leaves: Vec<_> = dead.map(|idle| idle.executable.take_leaves()).collect();
        let dropped = (all.len() > MAX_ALL_SETS).then(|| all.remove(0));
        // Device resources are freed after the lock is released.
        drop(all);
        drop((leaves, dropped));
    }

    /// Frees all idle executables. Returns whether there were any.
    pub fn clear(&self) -> bool {
        let all = std::mem::take(&mut *self.lock());
        !all.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn max_set_bytes(device: &Device) -> u64 {
    let memory = device.as_vulkan().map_or(0, |device| device.info().device_memory());
    SET_BYTES.max(memory / SET_SHARE)
}
