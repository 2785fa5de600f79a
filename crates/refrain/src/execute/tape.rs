//! Tapes: functions without arguments that run repeatedly over the same memory.

use std::sync::Arc;

use super::executable::Executable;
use super::executor::{Executor, Prepared};
use super::run::Run;
use super::write::Write;
use crate::Error;
use crate::device::Flush;

/// A function without arguments, prepared to run repeatedly. All that it reads and updates are weights and states.
///
/// The host changes states only by [`Write`]s, which the device carries out between runs; the host waits for nothing.
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

    /// The executor that runs it.
    pub fn executor(&self) -> &'static dyn Executor {
        self.executor
    }

    /// Allocates what writes need ahead of the first write.
    ///
    /// # Errors
    /// Fails if memory runs out or the device fails.
    pub fn prepare_writes(&self) -> Result<(), Error> {
        self.prepared.prepare_writes()
    }

    /// Carries out `writes`, then runs the function `runs` times. Returns once this is submitted; on the CPU executor,
    /// once it is done. Replay does all of it by one submit. If a word is written several times, the last counts.
    ///
    /// # Errors
    /// Fails for more than [`super::MAX_INBOX_WORDS`] words, for words outside a state, or if the device fails.
    pub fn play(&self, writes: &[Write], runs: usize) -> Result<Vec<Run>, Error> {
        self.executable.device().count_flush(Flush::Requested);
        let played = self.prepared.play(writes, runs)?;
        self.executable.mark_run();
        Ok(played)
    }

    /// Blocks until a run is over.
    ///
    /// # Errors
    /// Fails if the device is lost.
    pub fn wait(&self, run: &Run) -> Result<(), Error> {
        if let (Some(submission), Some(device)) = (&run.submission, self.executable.device().as_vulkan()) {
            device.wait(submission)?;
        }
        Ok(())
    }

    /// Whether a run is over.
    ///
    /// # Errors
    /// Fails if the device is lost.
    pub fn is_done(&self, run: &Run) -> Result<bool, Error> {
        match (&run.submission, self.executable.device().as_vulkan()) {
            (Some(submission), Some(device)) => Ok(device.is_done(submission)?),
            _ => Ok(true),
        }
    }

    /// Whether a run was over when the device was last asked about any run. Asks nothing of the device.
    pub fn is_known_done(&self, run: &Run) -> bool {
        match (&run.submission, self.executable.device().as_vulkan()) {
            (Some(submission), Some(device)) => device.is_known_done(submission),
            _ => true,
        }
    }

    /// The time that a finished run took on the device, in microseconds. `None` if it was not timed: on devices that
    /// measure time, eager mode times every run and replay the first run of each submit. Returned only once.
    pub fn device_time(&self, run: &Run) -> Option<f64> {
        let device = self.executable.device().as_vulkan()?;
        let timings = device.timings(&run.submission?);
        (!timings.is_empty()).then(|| timings.iter().map(|(_, us)| us).sum())
    }
}
