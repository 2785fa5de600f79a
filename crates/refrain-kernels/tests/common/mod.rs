//! Helpers shared by kernel tests: the Vulkan device, random operands, comparison, checks of shaders.

#![allow(dead_code, unused_imports, reason = "each test file uses a part of this")]

mod compare;
mod device;
mod driver;
mod random;
mod texts;

pub use compare::{assert_close, tolerance};
pub use device::{Arena, device, rows, run, values, variants};
pub use random::{Random, bytes_of, index_values, operand};
pub use texts::{all_features, both_traits, check_texts};
