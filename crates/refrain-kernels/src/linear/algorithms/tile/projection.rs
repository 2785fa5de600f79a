//! Projections of many tokens in tiles, for devices whose matrix cores cannot take them.

use super::{check_iterations, constants, cost, is_counted, tile_groups};
use crate::kit::arguments::PushArguments;
use crate::kit::iterations::looped;
use crate::kit::text::Text;
use crate::linear::algorithms::parts::SumParts;
use crate::linear::algorithms::{Algorithm, ProductCost, ProjectionCalls};
use crate::linear::arguments::{InputSource, arguments};
use crate::linear::problem::{ProjectionProblem, SectionPlan, WeightPlanes};
use crate::linear::section::OP;
use crate::linear::source::{declared_input, declared_sections, generated};
use crate::tuning::{TileSize, Tuning};
use crate::{Call, CallOrder, DType, OperandSpec, Traits, Unsupported};

/// Steps of a tile that each of several workgroups takes at least: of fewer, the sums that they leave are more than what they
/// read.
const LEAST_STEPS: usize = 16;

/// Such a product.
pub(crate) struct ProjectionTile<'p>(pub &'p ProjectionProblem<'p>);

impl Algorithm for ProjectionTile<'_> {
    fn cost(&self, tuning: &Tuning, _: &Traits) -> Option<ProductCost> {
        let parts = self.0.sections.iter().flat_map(|section| &section.parts);
        parts.map(|part| cost(tuning, part.planes.weights())).max()
    }

    fn check(&self, tuning: &Tuning, traits: &Traits) -> Result<(), Unsupported> {
        for sections in self.0.alike() {
            let division = self.division(tuning, traits, &sections)?;
            self.arguments(traits, &sections, &division.shared)?;
        }
        Ok(())
    }

    /// One call for each kind of section.
    fn calls(&self, tuning: &Tuning, traits: &Traits) -> Result<ProjectionCalls, Unsupported> {
        let mut made = ProjectionCalls::apart(Vec::new());
        let mut words = 0;
        let mut sharing = 0;
        for sections in self.0.alike() {
            let division = self.division(tuning, traits, &sections)?;
            made.calls.push(self.call(traits, &sections, &division)?);
            words = words.max(division.shared.words());
            made.tickets = made.tickets.max(division.shared.tickets());
            sharing += usize::from(division.shared.tickets() > 0);
        }
        if sharing > 1 {
            // Each leaves sums in the same place.
            made.order = CallOrder::InTurn;
        }
        made.workspace = (words > 0).then(|| OperandSpec::contiguous(DType::F32, &[words]));
        Ok(made)
    }
}

/// How the product of sections that are alike is divided.
struct Division {
    size: TileSize,
    /// In x, for the tiles of all sections, and in y.
    groups: [u32; 3],
    shared: SumParts,
}

impl ProjectionTile<'_> {
    fn arguments(
        &self,
        traits: &Traits,
        sections: &[&SectionPlan<'_>],
        shared: &SumParts,
    ) -> Result<PushArguments, Unsupported> {
        let problem = self.0;
        let add = |arguments: &mut PushArguments| {
            arguments.address("x_ref x", problem.x.address.clone());
            if let Some((_, Some(norm_weight))) = &problem.norm {
                arguments.address("norm_weight_ref norm_weight", norm_weight.address.clone());
            }
            shared.arguments(problem.operands, 0, arguments);
            arguments.number("TOKENS", problem.tokens);
        };
        arguments(traits, problem, sections, InputSource::Packed(&add))
    }

    fn division(
        &self,
        tuning: &Tuning,
        traits: &Traits,
        sections: &[&SectionPlan<'_>],
    ) -> Result<Division, Unsupported> {
        let parts = sections[0].parts.len();
        let chunk = chunk(&sections[0].parts[0].planes);
        let blocks = |size: &TileSize| {
            let blocks = sections.iter().map(|s| s.rows.div_ceil(size.tile_columns() / parts));
            [blocks.sum(), self.0.tokens.div_ceil(size.tile_rows())]
        };
        let results = |size: &TileSize| blocks(size).iter().product();
        let shared = |size: &TileSize, wanted| {
            SumParts::most(traits, wanted, self.0.columns / (LEAST_STEPS * size.depth as usize))
        };
        let check_loops = |size: &TileSize| {
            // Chunks of what is no more than numbers are loaded one by one.
            let chunks = (size.tile_columns() * size.depth as usize / chunk).div_ceil(size.threads() as usize);
            let stage = chunks * (looped(chunk, 0) + looped(chunk / 4, 0));
            check_iterations(OP, traits, size, [1, self.0.columns], stage)
        };
        let completes = |size: &TileSize| check_loops(size).is_ok();
        let (size, count) = (tuning.tile).size(traits, [self.0.tokens, parts, chunk], results, shared, completes);
        check_loops(&size)?;
        let rows = sections.iter().map(|s| s.rows).sum();
        let [x, y, z] = tile_groups(OP, blocks(&size), [self.0.tokens, rows])?;
        // Of each row of x its squares, a four of an invocation's.
        let squares = match self.0.norm {
            Some(_) => 4 * size.tile_rows().next_multiple_of(size.threads() as usize),
            None => 0,
        };
        let mut shared = SumParts {
            count,
            sums: size.tile_rows() * size.tile_columns() + squares,
            results: results(&size),
        };
        if count > 1 && self.arguments(traits, sections, &shared).is_err() {
            // No room for where sums are left.
            shared.count = 1;
        }
        Ok(Division {
            size,
            groups: [x * shared.count as u32, y, z],
            shared,
        })
    }

    fn call(
        &self,
        traits: &Traits,
        sections: &[&SectionPlan<'_>],
        Division { size, groups, shared }: &Division,
    ) -> Result<Call, Unsupported> {
        let problem = self.0;
        let arguments = self.arguments(traits, sections, shared)?;
        let planes = &sections[0].parts[0].planes;
        let chunk = chunk(planes);
        let text = Text::new(traits, "projection.gemm")
            .ahead()
            .unrolled(!is_counted(traits))
            .define("CHUNK", chunk);
        let text = declared_sections(declared_input(text, problem, 4), problem, sections, chunk);
        let text = shared
            .define(text)
            .body(include_str!("tile.glsl"))
            .body("const uint ROWS = TILE_COLUMNS / PARTS, EACH = 1u;\n")
            .body(&generated(problem, sections, &arguments)?)
            .body(match planes {
                WeightPlanes::Dense { .. } => include_str!("../gemv/dense.glsl"),
                WeightPlanes::Quantised(_) => include_str!("../gemv/quantised.glsl"),
            })
            .body(include_str!("../fours.glsl"));
        let kernel = shared
            .joined(text)
            .body(include_str!("shared.glsl"))
            .body(include_str!("projection/gemm.comp"))
            .kernel(constants(size, &[(8, planes.weights().group())]));
        Ok(Call {
            kernel,
            groups: *groups,
            push: arguments.push(),
        })
    }
}

/// Neighbouring values of a row that an invocation takes at once: the fewest, but eight, that fill words.
fn chunk(planes: &WeightPlanes<'_>) -> usize {
    match planes {
        WeightPlanes::Dense { dtype, .. } => 16 / dtype.size(),
        WeightPlanes::Quantised(weights) => match weights.format.bits {
            4 | 8 => 8,
            bits if bits % 2 == 0 => 16,
            _ => 32,
        },
    }
}
