//! How often an invocation's loops go round.
//!
//! Mesa's software drivers end an invocation's loops, without a word, once they went round 65,535 times
//! in all. Counts here are bounds from above of what those drivers count: a loop's last look at its
//! condition is a round too, and loops within branches that are not taken go round once.

use crate::tuning;
use crate::{Traits, Unsupported};

/// The most iterations that a kernel may plan for on such drivers.
const MOST_ITERATIONS: usize = 60_000;

/// The most iterations that all loops of an invocation may have together, where the device's driver ends
/// them beyond; no real card's does.
pub(crate) fn most(traits: &Traits) -> Option<usize> {
    (traits.vendor == tuning::MESA_SOFTWARE).then_some(MOST_ITERATIONS)
}

/// Iterations of a loop that goes round `turns` times, `inner` of them within each turn.
pub(crate) fn looped(turns: usize, inner: usize) -> usize {
    turns.saturating_mul(1 + inner).saturating_add(2)
}

/// The same of a loop that may be unrolled: then it is none.
pub(crate) fn rounds(unrolled: bool, turns: usize, inner: usize) -> usize {
    if unrolled {
        turns.saturating_mul(inner)
    } else {
        looped(turns, inner)
    }
}

/// Iterations of what joins a row's lanes (`lanes.glsl`), where a row is no more than a subgroup.
pub(crate) fn joined_lanes(traits: &Traits) -> usize {
    if traits.subgroup_arithmetic {
        3
    } else {
        looped(tuning::lanes(traits).ilog2() as usize, 0)
    }
}

/// Fails where the device's driver would end loops that go round `iterations` times; `what` says of what.
pub(crate) fn check(
    op: &'static str,
    traits: &Traits,
    iterations: usize,
    what: impl FnOnce() -> String,
) -> Result<(), Unsupported> {
    match most(traits) {
        Some(most) if iterations > most => Err(too_many(op, &what())),
        _ => Ok(()),
    }
}

/// The error where loops would be ended.
pub(crate) fn too_many(op: &'static str, what: &str) -> Unsupported {
    let what = format!("{what} take more rounds of loops than this software driver completes; use the CPU instead");
    Unsupported::Size { op, what }
}
