//! The array families (elementwise, reductions, choices, gathers) on the Vulkan device.

#[path = "../common/mod.rs"]
mod common;

mod accuracy;
mod elementwise;
mod gathers;
mod rows;
mod texts;
