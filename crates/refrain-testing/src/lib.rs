//! Helpers that the tests of several crates share: sampling of cases, waiting, and skipping.
//!
//! A test over many similar cases (fixtures, formats, random shapes) runs a random sample of them, drawn anew at each run:
//! it is quick, and covers all cases over days. Repetitions (tokens, seconds) are reduced likewise, and of the tests that
//! take long only some are drawn. Everything runs if `CI=true` or `REFRAIN_TESTS=all`.

mod continuation;
mod share;
mod wait;

use std::io::Write;

pub use continuation::continuation;
pub use share::{drawn, sample, share};
pub use wait::wait_until;

/// Whether the tests run in CI, where nothing may be skipped.
pub fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true")
}

/// Reports that a test, or a part of it, is skipped because of `reason`. The report is not captured by the test harness.
///
/// # Panics
///
/// Panics in CI, where nothing may be skipped.
#[track_caller]
pub fn skip(reason: &str) {
    assert!(!in_ci(), "must not be skipped in CI: {reason}");
    let thread = std::thread::current();
    report(&format!("skipped {}: {reason}", thread.name().unwrap_or("a test")));
}

/// Prints a line that the test harness does not capture, unlike that of `eprintln!`.
fn report(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
