//! Projections fused with a norm and epilogues. One dispatch leads from the residual stream to queries, keys and
//! values, to a gated activation, or back to the residual stream.
//!
//! `x` `[T, K]` floats is normalised in f32 if there is a norm ([`crate::rms_norm`]), then multiplied with one or more
//! matrices `[N, K]`, dense or quantised. A [`Section`] computes `y[t, n] = epilogue(Σ_k x[t, k] · w_p[n, k] for each
//! part p, extra inputs at [t, n] …)`. The sections' results are side by side in the rows of `out` `[T, Σ N]`. Each sum
//! is rounded to the dtype of the epilogue's input, and each step of the epilogue to its dtype
//! ([`crate::elementwise`]).
//!
//! Operands in order: x; the norm's weight `[K]`, if any; for each part of each section its matrix `[N, K]` or its
//! planes (see [`crate::quantised`]); for each section the extra inputs of its epilogue `[T, N]`; out.
//!
//! Accumulation is in f32, in an order that depends only on the device and the tuning row.

mod reference;

pub use super::algorithms::ProjectionCalls;
pub use super::expert_projection::{ExpertInputs, ExpertProjection, MAX_GEMV_TOKENS, Routed, expert_reference};
pub use super::router::RouterProjection;
pub use super::section::{Projection, Section, WeightStorage};
pub use crate::rms_norm::Norm;
pub use reference::{ProjectionInputs, reference};

use super::algorithms::{Algorithm, Gemv, MatrixCoreProduct, ProjectionTile, cheapest};
use super::problem::ProjectionProblem;
use crate::tuning::{self, Tuning};
use crate::{OperandSpec, Traits, Unsupported};

/// Returns the calls that compute the projection; none if the result is empty. Sections with the same storage share an
/// independent call. Many tokens on matrix cores take several dependent calls.
///
/// # Errors
/// Fails if dtypes or shapes do not match, if an operand must be copied first ([`Unsupported::NeedsContiguous`]), if
/// there are too many arguments, or if a size exceeds 32-bit indices.
pub fn calls(
    traits: &Traits,
    projection: &Projection,
    operands: &[&OperandSpec],
) -> Result<ProjectionCalls, Unsupported> {
    calls_tuned(tuning::choose(traits), traits, projection, operands)
}

/// As [`calls`], with a given row of the tuning table.
///
/// # Errors
/// Those of [`calls`].
pub fn calls_tuned(
    tuning: &Tuning,
    traits: &Traits,
    projection: &Projection,
    operands: &[&OperandSpec],
) -> Result<ProjectionCalls, Unsupported> {
    let problem = ProjectionProblem::new(projection, operands)?;
    with_cheapest(&problem, tuning, traits, |algorithm| algorithm.calls(tuning, traits))
}

/// Applies `act` to the cheapest algorithm.
fn with_cheapest<T>(
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
    with_cheapest(&problem, tuning, traits, |algorithm| algorithm.check(tuning, traits))
}

/// As [`check`], but without a device: checks only that the operands match the projection.
///
/// # Errors
/// Those of [`calls`] that do not depend on a device.
pub fn check_operands(projection: &Projection, operands: &[&OperandSpec]) -> Result<(), Unsupported> {
    let traits = Traits::minimal();
    let problem = ProjectionProblem::new(projection, operands)?;
    Gemv(&problem).check(tuning::choose(&traits), &traits)
}
