//! Writes checkpoints.
//!
//! - [`convert`]: converts a checkpoint to another format.
//! - [`synthetic`]: writes checkpoints of random weights.
//! - [`files`]: streams GGUF files and safetensors directories to disk.

pub mod convert;
pub mod files;
mod quantise;
pub mod synthetic;
