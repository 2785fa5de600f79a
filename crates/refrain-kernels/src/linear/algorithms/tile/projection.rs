//! Tiled GEMM for projections of many tokens, on devices whose matrix cores cannot compute them.

use super::{check_iterations, constants, cost, is_counted, tile_groups};
use crate::kit::arguments::PushArguments;
use crate::kit::iterations::looped;
use crate::kit::text::SourceBuilder;
use crate::linear::algorithms::split_k::SplitK;
use crate::linear::algorithms::{Algorithm, ProductCost, ProjectionCalls};
use crate::linear::arguments::{InputSource, arguments};
use crate::linear::problem::{ProjectionProblem, SectionPlan, WeightPlanes};
use crate::linear::section::OP;
use crate::linear::source::{declare_input, declare_sections, generate};
use crate::tuning::{TileSize, Tuning};
use crate::{Call, CallOrder, DType, OperandSpec, Traits, Unsupported};

/// Minimum number of k steps per split. With fewer, the traffic of partial sums exceeds that of the operands.
const MIN_STEPS_PER_SPLIT: usize = 16;

/// A projection as tiled GEMM.
pub(crate) struct ProjectionTile<'p>(pub &'p ProjectionProblem<'p>);

impl Algorithm for ProjectionTile<'_> {
    fn cost(&self, tuning: &Tuning, _: &Traits) -> Option<ProductCost> {
        let parts = self.0.sections.iter().flat_map(|section| &section.parts);
        parts.map(|part| cost(tuning, part.planes.weights())).max()
    }

    fn check(&self, tuning: &Tuning, traits: &Traits) -> Result<(), Unsupported> {
        for sections in self.0.fusible_sections() {
            let division = self.division(tuning, traits, &sections)?;
            self.arguments(traits, &sections, &division.split_k)?;
        }
        Ok(())
    }

    /// One call per group of sections.
    fn calls(&self, tuning: &Tuning, traits: &Traits) -> Result<ProjectionCalls, Unsupported> {
        let mut made = ProjectionCalls::independent(Vec::new());
        let mut words = 0;
        let mut split_calls = 0;
        for sections in self.0.fusible_sections() {
            let division = self.division(tuning, traits, &sections)?;
            made.calls.push(self.call(traits, &sections, &division)?);
            words = words.max(division.split_k.words());
            made.tickets = made.tickets.max(division.split_k.tickets());
            split_calls += usize::from(division.split_k.tickets() > 0);
        }
        if split_calls > 1 {
            // They use the same workspace for partial sums.
            made.order = CallOrder::Sequential;
        }
        made.workspace = (words > 0).then(|| OperandSpec::contiguous(DType::F32, &[words]));
        Ok(made)
    }
}

/// Work division of the product of a group of sections.
struct Division {
    size: TileSize,
    /// Workgroups: in x for the tiles (and splits) of all sections, in y for tokens.
    groups: [u32; 3],
    split_k: SplitK,
}

impl ProjectionTile<'_> {
    fn arguments(
        &self,
        traits: &Traits,
        sections: &[&SectionPlan<'_>],
        split_k: &SplitK,
    ) -> Result<PushArguments, Unsupported> {
        let problem = self.0;
        let add = |arguments: &mut PushArguments| {
            arguments.address("x_ref x", problem.x.address.clone());
            if let Some((_, Some(norm_weight))) = &problem.norm {
                arguments.address("norm_weight_ref norm_weight", norm_weight.address.clone());
            }
            split_k.arguments(problem.operands, 0, arguments);
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
        let tiles = |size: &TileSize| blocks(size).iter().product();
        let splits = |size: &TileSize, wanted| {
            SplitK::clamp_splits(
                traits,
                wanted,
                self.0.columns / (MIN_STEPS_PER_SPLIT * size.depth as usize),
            )
        };
        let check_loops = |size: &TileSize| {
            // Dense chunks are loaded value by value.
            let chunks = (size.tile_columns() * size.depth as usize / chunk).div_ceil(size.threads() as usize);
            let stage = chunks * (looped(chunk, 0) + looped(chunk / 4, 0));
            check_iterations(OP, traits, size, [1, self.0.columns], stage)
        };
        let completes = |size: &TileSize| check_loops(size).is_ok();
        let (size, splits) = (tuning.tile).size(traits, [self.0.tokens, parts, chunk], tiles, splits, completes);
        check_loops(&size)?;
        let rows = sections.iter().map(|s| s.rows).sum();
        let [x, y, z] = tile_groups(OP, blocks(&size), [self.0.tokens, rows])?;
        // The sum of squares of each row of x, in a vec4 of an invocation.
        let squares = match self.0.norm {
            Some(_) => 4 * size.tile_rows().next_multiple_of(size.threads() as usize),
            None => 0,
        };
        let mut split_k = SplitK {
            splits,
            sums: size.tile_rows() * size.tile_columns() + squares,
            tiles: tiles(&size),
        };
        if splits > 1 && self.arguments(traits, sections, &split_k).is_err() {
            // The push constants have no room for the workspace's addresses.
            split_k.splits = 1;
        }
        Ok(Division {
            size,
            groups: [x * split_k.splits as u32, y, z],
            split_k,
        })
    }

    fn call(
        &self,
        traits: &Traits,
        sections: &[&SectionPlan<'_>],
        Division { size, groups, split_k }: &Division,
    ) -> Result<Call, Unsupported> {
        let problem = self.0;
        let arguments = self.arguments(traits, sections, split_k)?;
        let planes = &sections[0].parts[0].planes;
        let chunk = chunk(planes);
        let text = SourceBuilder::new(traits, "projection.gemm")
            .ahead()
            .unrolled(!is_counted(traits))
            .define("CHUNK", chunk);
        let text = declare_sections(declare_input(text, problem, 4), problem, sections, chunk);
        let text = split_k
            .define(text)
            .body(include_str!("tile.glsl"))
            .body("const uint ROWS = TILE_COLUMNS / PARTS, EACH = 1u;\n")
            .body(&generate(problem, sections, &arguments)?)
            .body(match planes {
                WeightPlanes::Dense { .. } => include_str!("../gemv/dense.glsl"),
                WeightPlanes::Quantised(_) => include_str!("../gemv/quantised.glsl"),
            })
            .body(include_str!("../load_x.glsl"));
        let kernel = split_k
            .functions(text)
            .body(include_str!("split_k.glsl"))
            .body(include_str!("projection/gemm.comp"))
            .kernel(constants(size, &[(8, planes.weights().group())]));
        Ok(Call {
            kernel,
            groups: *groups,
            push: arguments.push(),
        })
    }
}

/// Consecutive values of a row that an invocation loads at once: the minimum, at least eight, that fills words.
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
