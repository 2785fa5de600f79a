//! Programs that run again and again over the same memory.

use std::sync::Arc;

use super::executor::{Executor, Prepared, Run};
use super::{Executable, Write};
use crate::Error;
use crate::device::Flush;

/// A traced function without arguments, ready to run again and again: all that it reads and changes are
/// weights and states. The host changes states only by [`Write`]s, which the device carries out between
/// runs; nothing waits for that.
pub struct Tape {
    executable: Arc<Executable>,
    executor: &'static dyn Executor,
    prepared: Box<dyn Prepared>,
}

impl Tape {
    pub(crate) fn new(executable: Arc<Executable>, executor: &'static dyn Executor) -> Result<Tape, Error> {
        if let Some(input) = executable.plan().inputs.first() {
            return Err(Error::UnboundInput {
                name: input.name.clone(),
            });
        }
        let prepared = executor.prepare(&executable)?;
        Ok(Tape {
            executable,
            executor,
            prepared,
        })
    }

    /// What runs it.
    pub fn executor(&self) -> &'static dyn Executor {
        self.executor
    }

    /// Makes what writes need, so that the first does not wait for it.
    ///
    /// # Errors
    /// Too little memory, a failing device.
    pub fn prepare_writes(&self) -> Result<(), Error> {
        self.prepared.prepare_writes()
    }

    /// Carries out `writes`, then runs the function `runs` times; returns once that is submitted (on the
    /// CPU executor: done). In replay all of it is one submit. Of several writes to one word the last
    /// counts.
    ///
    /// # Errors
    /// More than [`super::MOST_WORDS`] words, words outside of a state, a failing device.
    pub fn play(&self, writes: &[Write], runs: usize) -> Result<Vec<Run>, Error> {
        self.play_after(None, writes, runs)
    }

    /// [`Tape::play`] behind one run of another tape, by the same submit if both replay.
    ///
    /// # Errors
    /// As [`Tape::play`].
    pub fn play_after(&self, before: Option<&Tape>, writes: &[Write], runs: usize) -> Result<Vec<Run>, Error> {
        self.executable.device().count_flush(Flush::Requested);
        let before_it = before.map(|tape| &*tape.prepared);
        let played = self.prepared.play(before_it, writes, runs)?;
        for tape in before.into_iter().chain([self]) {
            tape.executable.mark_run();
        }
        Ok(played)
    }

    /// Blocks until a run is over.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn wait(&self, run: &Run) -> Result<(), Error> {
        if let (Some(submission), Some(device)) = (&run.submission, self.executable.device().as_vulkan()) {
            device.wait(submission)?;
        }
        Ok(())
    }

    /// Whether a run is over.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn is_done(&self, run: &Run) -> Result<bool, Error> {
        match (&run.submission, self.executable.device().as_vulkan()) {
            (Some(submission), Some(device)) => Ok(device.is_done(submission)?),
            _ => Ok(true),
        }
    }

    /// Whether a run is over as far as was seen the last time that the device was asked, for any run.
    pub fn is_known_done(&self, run: &Run) -> bool {
        match (&run.submission, self.executable.device().as_vulkan()) {
            (Some(submission), Some(device)) => device.is_known_done(submission),
            _ => true,
        }
    }

    /// Microseconds that a run took on the device, once it is over and if it was timed: where the device
    /// measures time, every run in eager mode, the first of each submit in replay. Given once.
    pub fn device_time(&self, run: &Run) -> Option<f64> {
        let device = self.executable.device().as_vulkan()?;
        let timings = device.timings(&run.submission?);
        (!timings.is_empty()).then(|| timings.iter().map(|(_, us)| us).sum())
    }
}
