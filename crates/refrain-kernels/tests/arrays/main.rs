//! Array kernels (elementwise, reductions, top-k and argmax, gathers) and the inbox on the Vulkan device.

#[path = "../common/mod.rs"]
mod common;

mod accuracy;
mod elementwise;
mod gathers;
mod inbox;
mod rows;
mod texts;
