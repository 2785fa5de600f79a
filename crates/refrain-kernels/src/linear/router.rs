//! A projection of few tokens that also finds the places of the largest results of one of its sections: a mixture's
//! router, with its choice of experts.
//!
//! Operands by number: those of the [`Projection`], its result the last of them; then the places, `[T, count]` u32 without
//! gaps, as [`crate::top_k`] finds them. One dispatch does both: the workgroup that finishes last chooses, so that devices
//! without [`Traits::tickets`] take two steps.

use std::fmt;

use super::algorithms::{Algorithm, Gemv, ProjectionCalls};
use super::choice::RowChoice;
use super::problem::ProjectionProblem;
use super::section::{OP, Projection};
use crate::kit::largest;
use crate::kit::text::{address, require_contiguous, require_dtype, require_shape};
use crate::tuning::{self, Tuning};
use crate::{DType, OperandSpec, Traits, Unsupported};

/// What is done in one go.
#[derive(Clone, PartialEq, Hash, Debug)]
pub struct RouterProjection {
    /// What is projected.
    pub projection: Projection,
    /// The section among whose results is chosen.
    pub section: usize,
    /// How many of the largest are.
    pub count: usize,
}

impl RouterProjection {
    /// Number of operands, both results among them.
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
        let Some((places, projected)) = operands.split_last() else {
            return size("no operands given".into());
        };
        let mut problem = ProjectionProblem::new(&self.projection, projected)?;
        let number = projected.len();
        let Some(section) = problem.sections.get(self.section) else {
            return size(format!("a choice among section {} of {self}", self.section));
        };
        let (rows, column) = (section.rows, section.column);
        if self.count == 0 || self.count > rows || rows > largest::MOST_ELEMENTS || !traits.tickets {
            return size(format!("the largest {} of {rows} results in one dispatch", self.count));
        }
        require_dtype(OP, places, DType::U32)?;
        require_shape(OP, "the places", places, &[problem.tokens, self.count])?;
        require_contiguous(OP, places, number)?;
        problem.choice = Some(RowChoice {
            count: self.count,
            places: address(OP, number, places)?,
            column,
            rows,
        });
        problem.operands += 1;
        match Gemv(&problem).cost(tuning, traits) {
            Some(_) => Ok(problem),
            None => size(format!("a choice for each of {} tokens", problem.tokens)),
        }
    }

    /// The calls that compute it: as [`crate::projection::calls`], of which one chooses too.
    ///
    /// # Errors
    /// Those of [`crate::projection::calls`]; more tokens than vectors are taken together, more results than a workgroup
    /// chooses among, and devices without [`Traits::tickets`].
    pub fn calls(&self, traits: &Traits, operands: &[&OperandSpec]) -> Result<ProjectionCalls, Unsupported> {
        self.calls_tuned(tuning::choose(traits), traits, operands)
    }

    /// [`RouterProjection::calls`] with a given row of the tuning table.
    ///
    /// # Errors
    /// As [`RouterProjection::calls`].
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
