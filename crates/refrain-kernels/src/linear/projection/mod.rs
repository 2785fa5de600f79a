//! Projections, with what stands before and behind them: one dispatch from the residual
//! stream to queries, keys and values, to a gated activation, or back to the residual stream.
//!
//! `x` `[T, K]` floats, normalised first where there is a norm (as [`crate::rms_norm`], in f32), meets
//! one or more matrices `[N, K]`, dense or quantised. A [`Section`] computes
//! `y[t, n] = epilogue(Σ_k x[t, k] · w_p[n, k] for each part p, further arrays at [t, n] …)`, and the
//! sections' results lie side by side in the rows of `out` `[T, Σ N]`. A sum is rounded to the dtype
//! that the epilogue's input has, and so is each of the epilogue's steps ([`crate::elementwise`]).
//!
//! Operands by number: x 0; the norm's weight `[K]`, if it has one; for each part of each section its
//! matrix `[N, K]`, or its planes (see [`crate::quantised`]); for each section the further inputs of its
//! epilogue `[T, N]`; out.
//!
//! Sums are in f32, in an order that depends on the device and the tuning row alone.

mod reference;

pub use super::algorithms::ProjectionCalls;
pub use super::expert_projection::{ExpertInputs, ExpertProjection, Routed, expert_reference};
pub use super::router::RouterProjection;
pub use super::section::{Projection, Section, WeightStorage};
pub use crate::rms_norm::Norm;
pub use reference::{ProjectionInputs, reference};

use super::algorithms::{Algorithm, Gemv, MatrixCoreProduct, ProjectionTile, cheapest};
use super::problem::ProjectionProblem;
use crate::tuning::{self, Tuning};
use crate::{OperandSpec, Traits, Unsupported};

/// Calls that compute the projection: one for the sections that are stored alike and end alike, which do not depend on
/// each other, or, of many tokens on matrix cores, several in a chain. None where the result is empty.
///
/// # Errors
/// When dtypes or shapes do not fit, an operand must be copied first ([`Unsupported::NeedsContiguous`]),
/// arguments are too many, or a size is beyond 32-bit indices.
pub fn calls(
    traits: &Traits,
    projection: &Projection,
    operands: &[&OperandSpec],
) -> Result<ProjectionCalls, Unsupported> {
    calls_tuned(tuning::choose(traits), traits, projection, operands)
}

/// [`calls`] with a given row of the tuning table.
///
/// # Errors
/// As [`calls`].
pub fn calls_tuned(
    tuning: &Tuning,
    traits: &Traits,
    projection: &Projection,
    operands: &[&OperandSpec],
) -> Result<ProjectionCalls, Unsupported> {
    let problem = ProjectionProblem::new(projection, operands)?;
    taken(&problem, tuning, traits, |algorithm| algorithm.calls(tuning, traits))
}

/// What `act` makes of the algorithm that costs least.
fn taken<T>(
    problem: &ProjectionProblem<'_>,
    tuning: &Tuning,
    traits: &Traits,
    act: impl FnOnce(&dyn Algorithm) -> Result<T, Unsupported>,
) -> Result<T, Unsupported> {
    let (gemv, matrix, tile) = (Gemv(problem), MatrixCoreProduct(problem), ProjectionTile(problem));
    act(cheapest(&[&gemv, &matrix, &tile], tuning, traits).unwrap_or(&tile))
}

/// Fails as [`calls`] would, without building the calls.
///
/// # Errors
/// Those of [`calls`].
pub fn check(traits: &Traits, projection: &Projection, operands: &[&OperandSpec]) -> Result<(), Unsupported> {
    let problem = ProjectionProblem::new(projection, operands)?;
    let tuning = tuning::choose(traits);
    taken(&problem, tuning, traits, |algorithm| algorithm.check(tuning, traits))
}

/// As [`check`], where no device is asked: whether operands are those of a projection.
///
/// # Errors
/// Those of [`calls`] that do not depend on a device.
pub fn check_operands(projection: &Projection, operands: &[&OperandSpec]) -> Result<(), Unsupported> {
    let traits = Traits::minimal();
    let problem = ProjectionProblem::new(projection, operands)?;
    Gemv(&problem).check(tuning::choose(&traits), &traits)
}
