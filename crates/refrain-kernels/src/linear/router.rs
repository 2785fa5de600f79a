//! A projection of a few tokens fused with top-k over one of its sections: a mixture-of-experts router.
//!
//! Operands: those of the [`Projection`], its result last; then the indices, `[T, count]` u32, dense, in the order of
//! [`crate::top_k`]. One dispatch does both: the last workgroup to finish selects. Devices without [`Traits::tickets`]
//! need two steps instead.

use std::fmt;

use super::algorithms::{Algorithm, Gemv, ProjectionCalls};
use super::problem::ProjectionProblem;
use super::router_top_k::RouterTopK;
use super::section::{OP, Projection};
use crate::kit::largest;
use crate::kit::text::{address, require_contiguous, require_dtype, require_shape};
use crate::tuning::{self, Tuning};
use crate::{DType, OperandSpec, Traits, Unsupported};

/// A projection with top-k.
#[derive(Clone, PartialEq, Hash, Debug)]
pub struct RouterProjection {
    /// The projection.
    pub projection: Projection,
    /// Index of the section whose results are selected from.
    pub section: usize,
    /// k: the number of results to select.
    pub count: usize,
}

impl RouterProjection {
    /// Number of operands, including both results.
    pub fn operands(&self) -> usize {
        self.projection.operands() + 1
    }

    fn problem<'a>(
        &self,
        tuning: &Tuning,
        traits: &Traits,
        operands: &[&'a OperandSpec],
    ) -> Result<ProjectionProblem<'a>, Unsupported> {
        let size = |what: String| Err(Unsupported::Size { op: OP, what });
        let Some((indices, projected)) = operands.split_last() else {
            return size("no operands".into());
        };
        let mut problem = ProjectionProblem::new(&self.projection, projected)?;
        let number = projected.len();
        let Some(section) = problem.sections.get(self.section) else {
            return size(format!("no section {} in {self}", self.section));
        };
        let (rows, column) = (section.rows, section.column);
        if self.count == 0 || self.count > rows || rows > largest::MAX_ELEMENTS || !traits.tickets {
            return size(format!("no top {} of {rows} results in one dispatch", self.count));
        }
        require_dtype(OP, indices, DType::U32)?;
        require_shape(OP, "the indices", indices, &[problem.tokens, self.count])?;
        require_contiguous(OP, indices, number)?;
        problem.top_k = Some(RouterTopK {
            count: self.count,
            indices: address(OP, number, indices)?,
            column,
            rows,
        });
        problem.operands += 1;
        match Gemv(&problem).cost(tuning, traits) {
            Some(_) => Ok(problem),
            None => size(format!("no fused top-k for {} tokens", problem.tokens)),
        }
    }

    /// Returns the calls: those of [`crate::projection::calls`], one of which also selects.
    ///
    /// # Errors
    /// Those of [`crate::projection::calls`]. Also fails for more tokens than small-M GEMV supports, for more results
    /// than a workgroup can select from, and on devices without [`Traits::tickets`].
    pub fn calls(&self, traits: &Traits, operands: &[&OperandSpec]) -> Result<ProjectionCalls, Unsupported> {
        self.calls_tuned(tuning::choose(traits), traits, operands)
    }

    /// As [`RouterProjection::calls`], with a given row of the tuning table.
    ///
    /// # Errors
    /// Those of [`RouterProjection::calls`].
    pub fn calls_tuned(
        &self,
        tuning: &Tuning,
        traits: &Traits,
        operands: &[&OperandSpec],
    ) -> Result<ProjectionCalls, Unsupported> {
        let problem = self.problem(tuning, traits, operands)?;
        Gemv(&problem).calls(tuning, traits)
    }

    /// Fails as [`RouterProjection::calls`] would, without building the calls.
    ///
    /// # Errors
    /// Those of [`RouterProjection::calls`].
    pub fn check(&self, traits: &Traits, operands: &[&OperandSpec]) -> Result<(), Unsupported> {
        let tuning = tuning::choose(traits);
        let problem = self.problem(tuning, traits, operands)?;
        Gemv(&problem).check(tuning, traits)
    }
}

impl fmt::Display for RouterProjection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, the largest {}", self.projection, self.count)?;
        match self.section {
            0 => Ok(()),
            section => write!(f, " of section {section}"),
        }
    }
}
