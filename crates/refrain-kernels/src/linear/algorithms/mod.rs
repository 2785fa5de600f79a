//! The ways in which products are computed, and which of them is taken.

mod gathered;
mod gemv;
mod grouped;
mod matrix_cores;
mod parts;
mod tile;

pub(crate) use gathered::GatheredGemv;
pub(crate) use gemv::Gemv;
pub(crate) use grouped::Grouped;
pub(crate) use matrix_cores::MatrixCoreProduct;
pub(crate) use tile::{DenseTile, ProjectionTile};

use crate::tuning::Tuning;
use crate::{Call, CallOrder, OperandSpec, Traits, Unsupported};

/// The calls that compute a product, and what they need beside its operands.
#[derive(Clone, Debug)]
pub struct ProjectionCalls {
    /// In order.
    pub calls: Vec<Call>,
    /// What they wait for.
    pub order: CallOrder,
    /// Memory for the calls alone, the operand behind the others, whose contents do not matter.
    pub workspace: Option<OperandSpec>,
    /// Counters (u32) that are zero before and after the calls: the operand behind the workspace.
    pub tickets: usize,
}

impl ProjectionCalls {
    /// Calls that do not depend on each other.
    pub(crate) fn apart(calls: Vec<Call>) -> ProjectionCalls {
        ProjectionCalls {
            calls,
            order: CallOrder::Apart,
            workspace: None,
            tickets: 0,
        }
    }
}

/// How often a product waits for its weights, as far as choices need it: what the tuning table says of the numbers
/// of tokens at which algorithms break even.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ProductCost {
    pub passes: usize,
}

/// One way to compute a product that it holds.
pub(crate) trait Algorithm {
    /// What it costs; none where it cannot compute the product, or neither the device nor its row of the tuning
    /// table is for it.
    fn cost(&self, tuning: &Tuning, traits: &Traits) -> Option<ProductCost>;

    /// Fails as [`Algorithm::calls`] would, without building texts.
    fn check(&self, tuning: &Tuning, traits: &Traits) -> Result<(), Unsupported> {
        self.calls(tuning, traits).map(drop)
    }

    /// The calls.
    fn calls(&self, tuning: &Tuning, traits: &Traits) -> Result<ProjectionCalls, Unsupported>;
}

/// The algorithm that costs least; of equals the first.
pub(crate) fn cheapest<'a>(
    algorithms: &[&'a dyn Algorithm],
    tuning: &Tuning,
    traits: &Traits,
) -> Option<&'a dyn Algorithm> {
    let costs = algorithms.iter().filter_map(|a| Some((a.cost(tuning, traits)?, *a)));
    costs.min_by_key(|(cost, _)| *cost).map(|(_, algorithm)| algorithm)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning;

    struct Known(Option<usize>, u32);

    impl Algorithm for Known {
        fn cost(&self, _: &Tuning, _: &Traits) -> Option<ProductCost> {
            self.0.map(|passes| ProductCost { passes })
        }

        fn calls(&self, _: &Tuning, _: &Traits) -> Result<ProjectionCalls, Unsupported> {
            let workspace = OperandSpec::contiguous(crate::DType::U32, &[self.1 as usize]);
            Ok(ProjectionCalls {
                workspace: Some(workspace),
                ..ProjectionCalls::apart(Vec::new())
            })
        }
    }

    #[test]
    fn the_cheapest_algorithm_that_can_is_taken_and_of_equals_the_first() {
        let traits = Traits::minimal();
        let row = tuning::choose(&traits);
        let taken = |algorithms: &[&dyn Algorithm]| {
            let found = cheapest(algorithms, row, &traits)?;
            let made = found.calls(row, &traits).ok()?;
            made.workspace.map(|w| w.layout.count())
        };
        let (unable, dear) = (Known(None, 1), Known(Some(3), 2));
        let (cheap, as_cheap) = (Known(Some(1), 3), Known(Some(1), 4));
        assert_eq!(taken(&[&unable, &dear, &cheap, &as_cheap]), Some(3));
        assert_eq!(taken(&[&unable, &dear]), Some(2));
        assert_eq!(taken(&[&unable]), None);
    }
}
