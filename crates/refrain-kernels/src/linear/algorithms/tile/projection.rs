//! Projections of many tokens in tiles, for devices whose matrix cores cannot take them.

use super::{check_iterations, cost, tile_groups};
use crate::kit::arguments::PushArguments;
use crate::kit::iterations;
use crate::kit::text::Text;
use crate::linear::algorithms::{Algorithm, ProductCost, ProjectionCalls};
use crate::linear::arguments::{InputSource, arguments};
use crate::linear::problem::{ProjectionProblem, SectionPlan, WeightPlanes};
use crate::linear::section::OP;
use crate::linear::source::{declared_input, declared_sections, generated};
use crate::tuning::Tuning;
use crate::{Call, Traits, Unsupported};

/// Such a product.
pub(crate) struct ProjectionTile<'p>(pub &'p ProjectionProblem<'p>);

impl Algorithm for ProjectionTile<'_> {
    fn cost(&self, tuning: &Tuning, _: &Traits) -> Option<ProductCost> {
        let parts = self.0.sections.iter().flat_map(|section| &section.parts);
        parts.map(|part| cost(tuning, part.planes.weights())).max()
    }

    fn check(&self, tuning: &Tuning, traits: &Traits) -> Result<(), Unsupported> {
        for sections in self.0.alike() {
            self.arguments(traits, &sections)?;
            self.groups(tuning, traits, &sections)?;
        }
        Ok(())
    }

    /// One call for each kind of section.
    fn calls(&self, tuning: &Tuning, traits: &Traits) -> Result<ProjectionCalls, Unsupported> {
        let kinds = self.0.alike().into_iter();
        let calls = kinds.map(|sections| self.call(tuning, traits, &sections));
        Ok(ProjectionCalls::apart(calls.collect::<Result<_, _>>()?))
    }
}

impl ProjectionTile<'_> {
    fn arguments(&self, traits: &Traits, sections: &[&SectionPlan<'_>]) -> Result<PushArguments, Unsupported> {
        let problem = self.0;
        let add = |arguments: &mut PushArguments| {
            arguments.address("x_ref x", problem.x.address.clone());
            if let Some((_, Some(norm_weight))) = &problem.norm {
                arguments.address("norm_weight_ref norm_weight", norm_weight.address.clone());
            }
            arguments.number("TOKENS", problem.tokens);
        };
        arguments(traits, problem, sections, InputSource::Packed(&add))
    }

    /// Workgroups in x, for the tiles of all sections, and in y.
    fn groups(&self, tuning: &Tuning, traits: &Traits, sections: &[&SectionPlan<'_>]) -> Result<[u32; 3], Unsupported> {
        let (tile, part) = (tuning.tile, &sections[0].parts[0]);
        let [height, width] = [4 * tile.rows, 4 * tile.columns];
        let blocks: usize = sections.iter().map(|s| s.rows.div_ceil(width as usize)).sum();
        let groups = tile_groups(OP, tuning, self.0.tokens, blocks * width as usize)?;
        // The tile of x once and of each matrix; the squares of x take no more than another.
        let parts = sections[0].parts.len() as u32;
        let elements = [
            height * tile.depth,
            parts * width * tile.depth / 4 + part.chunk() as u32,
        ];
        check_iterations(
            OP,
            traits,
            tile,
            [parts as usize, self.0.columns + 4 * tile.depth as usize],
            elements,
        )?;
        Ok(groups)
    }

    fn call(&self, tuning: &Tuning, traits: &Traits, sections: &[&SectionPlan<'_>]) -> Result<Call, Unsupported> {
        let (problem, tile) = (self.0, tuning.tile);
        let arguments = self.arguments(traits, sections)?;
        let groups = self.groups(tuning, traits, sections)?;
        let is_counted = iterations::most(traits).is_some();
        let planes = &sections[0].parts[0].planes;
        let text = Text::new(traits, "projection.gemm")
            .define("UNROLLED", u32::from(!is_counted))
            .define("CHUNK", sections[0].parts[0].chunk())
            .flag("COUNTED", is_counted);
        let text = declared_sections(
            declared_input(text, problem, 4),
            problem,
            sections,
            sections[0].parts[0].chunk(),
        );
        let kernel = text
            .body(include_str!("../../../kit/unroll.glsl"))
            .body(include_str!("tile.glsl"))
            .body("const uint ROWS = TILE_COLUMNS, EACH = 1u;\n")
            .body(&generated(problem, sections, &arguments)?)
            .body(match planes {
                WeightPlanes::Dense { .. } => include_str!("../gemv/dense.glsl"),
                WeightPlanes::Quantised(_) => include_str!("../gemv/quantised.glsl"),
            })
            .body(include_str!("projection/gemm.comp"))
            .kernel(vec![
                (0, tile.rows * tile.columns),
                (3, tile.rows),
                (4, tile.columns),
                (5, tile.depth),
                (8, planes.weights().group()),
            ]);
        Ok(Call {
            kernel,
            groups,
            push: arguments.push(),
        })
    }
}
