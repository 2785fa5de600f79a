//! Files and checkpoints that come to be whole or not at all.
//!
//! Everything is written under a name that no reader takes for a checkpoint, in the folder that it is
//! for, and gets its own name when it is whole and on the disk.

pub(crate) mod contents;
mod target;
mod unfinished;
mod whole;

pub use contents::CONFIG;
pub use target::{Shape, Target, WriteProgress};
pub use unfinished::UnfinishedDirectory;
pub use whole::WholeFile;
