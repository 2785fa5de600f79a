//! Helpers shared by the tests: devices, random operands, comparisons.

#![allow(dead_code, unused_imports, reason = "each test file uses a part of this")]

mod compare;
pub mod decoder;
mod device;
mod random;

pub use compare::{Contents, assert_agree, assert_equal, contents};
pub use device::{assert_silent, plain, vulkan};
pub use random::Random;
