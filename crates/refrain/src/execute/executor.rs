//! The [`Executor`] trait.

use std::fmt;
use std::sync::Arc;

use super::executable::Executable;
use super::run::Run;
use super::write::Write;
use crate::Error;

/// A way to run programs. [`crate::Device::executors`] lists those of a device; any other can be passed to
/// [`crate::Function::tape`].
pub trait Executor: Send + Sync {
    /// A unique name for users, such as `replay`.
    fn name(&self) -> &'static str;

    /// Whether one submit carries several runs.
    fn batches_runs(&self) -> bool {
        false
    }

    /// Prepares a program to run over its memory.
    ///
    /// # Errors
    /// Fails if the executor does not support the program or the device, if memory runs out, or if the device fails.
    fn prepare(&self, program: &Arc<Executable>) -> Result<Box<dyn Prepared>, Error>;
}

/// A program prepared by one executor.
pub trait Prepared: Send + Sync {
    /// Allocates what writes need ahead of the first write.
    ///
    /// # Errors
    /// Fails if memory runs out or the device fails.
    fn prepare_writes(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Carries out `writes`, then runs the program `runs` times. Returns once this is submitted; on the CPU executor, once
    /// it is done.
    ///
    /// # Errors
    /// As [`Executable::deliver`].
    fn play(&self, writes: &[Write], runs: usize) -> Result<Vec<Run>, Error>;
}

impl PartialEq for dyn Executor + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for dyn Executor + '_ {}

impl fmt::Debug for dyn Executor + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
