//! Algorithms for products, and the choice among them.

mod gathered;
mod gemv;
mod grouped;
mod matrix_cores;
mod split_k;
mod tile;

pub(crate) use gathered::GatheredGemv;
pub(crate) use gemv::Gemv;
pub(crate) use grouped::Grouped;
pub(crate) use matrix_cores::MatrixCoreProduct;
pub(crate) use tile::{DenseTile, ProjectionTile};

use crate::tuning::Tuning;
use crate::{Call, CallOrder, OperandSpec, Traits, Unsupported};

/// The calls that compute a product, and their additional operands.
#[derive(Clone, Debug)]
pub struct ProjectionCalls {
    /// The calls, in order.
    pub calls: Vec<Call>,
    /// Dependencies among the calls.
    pub order: CallOrder,
    /// Scratch memory with arbitrary contents: the operand after the product's own.
    pub workspace: Option<OperandSpec>,
    /// Number of u32 counters that are zero before and after the calls: the operand after the workspace.
    pub tickets: usize,
}

impl ProjectionCalls {
    /// Independent calls without additional operands.
    pub(crate) fn independent(calls: Vec<Call>) -> ProjectionCalls {
        ProjectionCalls {
            calls,
            order: CallOrder::Independent,
            workspace: None,
            tickets: 0,
        }
    }
}

/// Relative cost of an algorithm. The tuning table gives the numbers of tokens at which algorithms break even.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ProductCost {
    /// Number of passes over the weights.
    pub passes: usize,
}

/// An algorithm together with the product to compute.
pub(crate) trait Algorithm {
    /// The cost; `None` if the algorithm, the device or the tuning row does not support the product.
    fn cost(&self, tuning: &Tuning, traits: &Traits) -> Option<ProductCost>;

    /// Fails as [`Algorithm::calls`] would, without generating source.
    fn check(&self, tuning: &Tuning, traits: &Traits) -> Result<(), Unsupported> {
        self.calls(tuning, traits).map(drop)
    }

    /// Returns the calls.
    fn calls(&self, tuning: &Tuning, traits: &Traits) -> Result<ProjectionCalls, Unsupported>;
}

/// Returns the cheapest algorithm; of equal costs the first.
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

    /// An algorithm with a fixed cost, identified by the size of its workspace.
    struct Stub(Option<usize>, u32);

    impl Algorithm for Stub {
        fn cost(&self, _: &Tuning, _: &Traits) -> Option<ProductCost> {
            self.0.map(|passes| ProductCost { passes })
        }

        fn calls(&self, _: &Tuning, _: &Traits) -> Result<ProjectionCalls, Unsupported> {
            let workspace = OperandSpec::contiguous(crate::DType::U32, &[self.1 as usize]);
            Ok(ProjectionCalls {
                workspace: Some(workspace),
                ..ProjectionCalls::independent(Vec::new())
            })
        }
    }

    #[test]
    fn cheapest_picks_the_first_supported_algorithm_of_lowest_cost() {
        let traits = Traits::minimal();
        let row = tuning::choose(&traits);
        let chosen = |algorithms: &[&dyn Algorithm]| {
            let found = cheapest(algorithms, row, &traits)?;
            let made = found.calls(row, &traits).ok()?;
            made.workspace.map(|w| w.layout.count())
        };
        let (unsupported, expensive) = (Stub(None, 1), Stub(Some(3), 2));
        let (cheap, equally_cheap) = (Stub(Some(1), 3), Stub(Some(1), 4));
        assert_eq!(chosen(&[&unsupported, &expensive, &cheap, &equally_cheap]), Some(3));
        assert_eq!(chosen(&[&unsupported, &expensive]), Some(2));
        assert_eq!(chosen(&[&unsupported]), None);
    }
}
