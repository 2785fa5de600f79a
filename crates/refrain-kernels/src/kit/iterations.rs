//! Loop iterations of an invocation.
//!
//! Mesa's software drivers silently stop an invocation's loops after 65,535 iterations in total. The counts here are
//! upper bounds of what those drivers count: the final evaluation of a loop condition is an iteration, and so is each
//! loop in a branch that is not taken.

use crate::tuning;
use crate::{Traits, Unsupported};

/// Maximum number of iterations that a kernel may plan on such drivers.
const MAX_ITERATIONS: usize = 60_000;

/// Maximum number of iterations of all loops of an invocation; `None` if the driver has no limit, as on all GPUs.
pub(crate) fn max_iterations(traits: &Traits) -> Option<usize> {
    (traits.vendor == tuning::MESA_SOFTWARE).then_some(MAX_ITERATIONS)
}

/// Iterations of a loop with `turns` turns and `inner` iterations within each turn.
pub(crate) fn looped(turns: usize, inner: usize) -> usize {
    turns.saturating_mul(1 + inner).saturating_add(2)
}

/// As [`looped`], or only the inner iterations if the loop is unrolled.
pub(crate) fn loop_or_unrolled(unrolled: bool, turns: usize, inner: usize) -> usize {
    if unrolled {
        turns.saturating_mul(inner)
    } else {
        looped(turns, inner)
    }
}

/// Iterations of the reduction over a row's lanes (`lanes.glsl`), for rows of at most a subgroup.
pub(crate) fn lane_reduction(traits: &Traits) -> usize {
    if traits.subgroup_arithmetic {
        3
    } else {
        looped(tuning::lanes(traits).ilog2() as usize, 0)
    }
}

/// Fails if the device's driver would stop loops of `iterations` iterations; `what` names the computation.
pub(crate) fn check(
    op: &'static str,
    traits: &Traits,
    iterations: usize,
    what: impl FnOnce() -> String,
) -> Result<(), Unsupported> {
    match max_iterations(traits) {
        Some(max) if iterations > max => Err(too_many(op, &what())),
        _ => Ok(()),
    }
}

/// The error for too many iterations.
pub(crate) fn too_many(op: &'static str, what: &str) -> Unsupported {
    let what = format!("{what} take more loop iterations than this software driver completes; use the CPU instead");
    Unsupported::Size { op, what }
}
