//! Sampling on the Vulkan device matches the reference and the softmax distribution.

#[path = "../common/mod.rs"]
mod common;

mod agreement;
mod distribution;
mod sequences;
mod support;
mod texts;
