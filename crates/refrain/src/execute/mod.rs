//! Executors: they run a plan on the CPU, or as commands of a Vulkan device.
//!
//! [`Compiled`] is a plan with its kernels, [`Executable`] adds the memory, and an [`Executor`] runs it. [`Tape`]s are
//! run repeatedly. All executors run the same plan.

mod bound;
mod commands;
mod compare;
mod eager;
mod executable;
mod executor;
mod host;
mod in_flight;
mod inbox;
mod memory;
mod parts;
mod reference;
mod registry;
mod replay;
mod run;
mod stepper;
mod tape;
mod write;

pub use compare::Difference;
pub(crate) use compare::first_difference;
pub use eager::Eager;
pub(crate) use executable::layout_in_storage;
pub use executable::{Compiled, Executable};
pub use executor::{Executor, Prepared};
pub(crate) use host::dense;
pub use host::{HostInputs, HostMatrix, HostStep};
pub(crate) use memory::ArgumentMemory;
pub use memory::SharedScratch;
pub(crate) use parts::IdleExecutable;
pub use run::Run;

pub use commands::StepCommand;
pub use reference::Reference;
pub use replay::Replay;
pub use stepper::Stepper;
pub use tape::Tape;
pub use write::{MAX_INBOX_WORDS, Write};
