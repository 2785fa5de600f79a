//! What tests of several crates share: how many of many like cases run, and how long a test waits.
//!
//! A test that goes through many like cases (fixtures, formats, random shapes) takes a share of them, drawn anew at each
//! run, so that it is quick and meets all of them over days; what it does many times (tokens, seconds) it does less often. All of them run where `CI=true`, or `REFRAIN_TESTS=all`.

mod share;
mod wait;

pub use share::{sample, share};
pub use wait::wait_until;

/// Whether what a test needs must be here: elsewhere it may be left out.
pub fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true")
}
