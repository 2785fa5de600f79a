//! Sampling on the Vulkan device agrees with its reference, and draws what the softmax says.

#[path = "../common/mod.rs"]
mod common;

mod agreement;
mod distribution;
mod sequences;
mod support;
mod texts;
