//! Atomic writing of files and checkpoints.
//!
//! Everything is written under a temporary name, which no reader takes for a checkpoint, in the target's folder. It
//! is renamed to the target once it is complete and synced to disk.

mod atomic;
pub(crate) mod contents;
mod partial;
mod target;

pub use atomic::AtomicFile;
pub use contents::CONFIG;
pub use partial::PartialDirectory;
pub use target::{Target, TargetKind, WriteProgress};
