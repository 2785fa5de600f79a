//! What runs programs: the interface of executors, and the lists of those that there are.

use std::fmt;
use std::sync::Arc;

use refrain_vulkan::{Recording, Submission};

use super::eager::Eager;
use super::reference::Reference;
use super::replay::Replay;
use super::{Executable, Write};
use crate::device::Backend;
use crate::{Device, Error};

/// A way to run programs. A device has some ([`Device::executors`]); others come from anywhere, and are given to
/// [`crate::Function::tape`].
pub trait Executor: Send + Sync {
    /// What people call it, such as `replay`. No two have the same.
    fn name(&self) -> &'static str;

    /// Whether several runs reach the device by one submit, so that it pays to ask for many at once.
    fn submits_many(&self) -> bool {
        false
    }

    /// Makes a program ready to run over its memory.
    ///
    /// # Errors
    /// A program or a device that it cannot serve; too little memory, a failing device.
    fn prepare(&self, program: &Arc<Executable>) -> Result<Box<dyn Prepared>, Error>;
}

/// A program over its memory, as one executor runs it.
pub trait Prepared: Send + Sync {
    /// Makes what writes need, so that the first does not wait for it.
    ///
    /// # Errors
    /// Too little memory, a failing device.
    fn prepare_writes(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Behind one run of `before` carries out `writes`, then runs the program `runs` times. Returns once that is
    /// submitted, on the CPU executor done.
    ///
    /// # Errors
    /// As [`Executable::deliver`].
    fn play(&self, before: Option<&dyn Prepared>, writes: &[Write], runs: usize) -> Result<Vec<Run>, Error>;

    /// The commands of one run, where they are recorded: another program's executor may put them into a submit of
    /// its own.
    fn recording(&self) -> Option<&Recording> {
        None
    }
}

/// One run of a program, to be waited for.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub(super) submission: Option<Submission>,
    pub(super) is_timed: bool,
}

impl Run {
    /// Whether [`super::Tape::device_time`] will tell how long it took.
    pub fn is_timed(&self) -> bool {
        self.is_timed
    }

    pub(super) fn untimed(submission: Option<Submission>) -> Run {
        Run {
            submission,
            is_timed: false,
        }
    }
}

static ON_CPU: &[&dyn Executor] = &[&Reference];
/// The one that most stay with comes first.
static ON_VULKAN: &[&dyn Executor] = &[&Replay, &Eager];

impl Device {
    /// The executors that run programs on this device again and again, the usual one first.
    pub fn executors(&self) -> &'static [&'static dyn Executor] {
        match self.backend() {
            Backend::Cpu => ON_CPU,
            Backend::Vulkan { .. } => ON_VULKAN,
        }
    }

    /// The executor of this name, if it runs programs on this device.
    pub fn executor(&self, name: &str) -> Option<&'static dyn Executor> {
        self.executors()
            .iter()
            .find(|executor| executor.name() == name)
            .copied()
    }

    /// The executor that evaluates arrays and calls functions: each runs once with what is there at the time.
    pub fn evaluator(&self) -> &'static dyn Executor {
        match self.backend() {
            Backend::Cpu => &Reference,
            Backend::Vulkan { .. } => &Eager,
        }
    }
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
