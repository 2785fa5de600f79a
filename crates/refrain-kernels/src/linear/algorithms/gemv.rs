//! Small-M GEMV: each subgroup multiplies rows of the weights with all tokens. x is in floats, or in fixed point for
//! quantised weights on devices with fast integer dot products.

mod iterations;

use self::iterations::iterations;
use super::{Algorithm, ProductCost, ProjectionCalls};
use crate::kit::largest;
use crate::kit::text::{SourceBuilder, grid};
use crate::kit::tickets;
use crate::linear::arguments::{self, InputSource::Unpacked};
use crate::linear::problem::{ProjectionProblem, SectionPlan};
use crate::linear::routing::Routing;
use crate::linear::section::{OP, WeightStorage};
use crate::linear::source;
use crate::tuning::{self, GemvTuning, Tuning};
use crate::{Call, DType, Traits, Unsupported};

/// A projection as small-M GEMV.
pub(crate) struct Gemv<'p>(pub &'p ProjectionProblem<'p>);

impl Gemv<'_> {
    /// The tuning of each matrix.
    fn tunings<'t>(&self, tuning: &'t Tuning) -> impl Iterator<Item = &'t GemvTuning> {
        let parts = self.0.sections.iter().flat_map(|s| &s.parts);
        parts.map(move |part| tuning.gemv_kind(part.planes.weights().format()))
    }

    /// Maximum number of tokens.
    fn max_tokens(&self, tuning: &Tuning) -> usize {
        let max = self.tunings(tuning).map(|row| row.max_vectors as usize).min();
        max.unwrap_or(usize::MAX)
    }

    /// Returns the call for a group of sections.
    fn call(&self, tuning: &Tuning, traits: &Traits, sections: &[&SectionPlan<'_>]) -> Result<Call, Unsupported> {
        let problem = self.0;
        let weights = sections[0].parts[0].planes.weights();
        let all_rows = sections.iter().map(|s| s.rows).sum();
        let tokens = problem
            .routing
            .as_ref()
            .map_or(problem.tokens, |routing| routing.tokens);
        let sizes = [problem.columns, all_rows, tokens];
        let gemv = tuning.gemv(weights.format(), sizes, problem.routing.is_some());
        let chunk = sections[0].parts[0].chunk();
        let mut division = GemvDivision::of((traits, gemv), tuning::lanes(traits), problem, sections);
        let (lanes, rows) = (division.lanes, division.rows);
        let arguments = arguments::arguments(traits, problem, sections, Unpacked)?;
        let may_be_fixed = tuning.fixed_point && traits.exchanges_lanes() && weights != WeightStorage::Dense;
        let is_fixed = may_be_fixed && !sections[0].parts[0].planes.keep_x();
        let tile = tile((traits, gemv), problem, (chunk, is_fixed), (lanes, rows))?;
        let count = |division: &GemvDivision| iterations(traits, gemv, problem, sections, division, tile as usize);
        while crate::kit::iterations::max_iterations(traits).is_some_and(|max| count(&division) > max)
            && division.reduce_iterations()
        {}
        let what = || format!("sums over {} products", problem.columns);
        crate::kit::iterations::check(OP, traits, count(&division), what)?;
        // Code that runs once costs its instruction fetch. Loops with one iteration are compiled without the loop.
        let (blocks, groups) = (
            division.blocks(sections),
            division.groups(gemv.max_groups.on(traits), problem, sections),
        );
        let is_one_block = blocks == groups;
        let has_one_pass =
            is_one_block && problem.depth().div_ceil(chunk) <= (lanes * division.loads).min(tile) as usize;
        let text = if is_fixed {
            SourceBuilder::with_shuffles(traits, OP).define("FIXED_POINT", 1)
        } else {
            SourceBuilder::new(traits, OP)
        };
        let text = text
            .define("LANE_VALUE", "float")
            .unrolled(gemv.unrolled)
            .flag("ONE_BLOCK", is_one_block)
            .flag("ONE_PASS", has_one_pass)
            .flag("ONE_VECTOR", is_fixed && problem.tokens == 1);
        let text = self.completed(
            text,
            sections,
            &source::generate(problem, sections, &arguments)?,
            is_fixed,
        );
        let top_k = problem.top_k_of(sections);
        let mut constants = vec![
            (0, lanes * rows),
            (3, lanes),
            (4, rows),
            (5, problem.tokens as u32),
            (6, division.loads),
            (7, division.each),
            (8, weights.group()),
            (9, tile),
        ];
        constants.extend(top_k.map(|(_, section)| (10, largest::fours(sections[section].rows))));
        let kernel = text.kernel(constants);
        let [x, y, _] = grid(OP, groups)?;
        Ok(Call {
            kernel,
            groups: [x, y, problem.repeats().clamp(1, 65_535) as u32],
            push: arguments.push(),
        })
    }

    /// Adds everything after the macros that describe the work division.
    fn completed<'t>(
        &self,
        text: SourceBuilder<'t>,
        sections: &[&SectionPlan<'_>],
        generated: &str,
        is_fixed: bool,
    ) -> SourceBuilder<'t> {
        let problem = self.0;
        let part = &sections[0].parts[0];
        let text = text
            .define("CHUNK", part.chunk())
            // With K = 0 there is no chunk to load.
            .flag("EMPTY", problem.columns == 0);
        let top_k = problem.top_k_of(sections);
        let text = source::declare(text, problem, sections)
            .body(include_str!("gemv/sizes.glsl"))
            .body(include_str!("../../kit/lanes.glsl"));
        let text = match top_k {
            Some((_, section)) => declare_top_k(text, section),
            None => text,
        };
        let text = text
            .body(generated)
            .body(match part.planes.weights() {
                WeightStorage::Dense => include_str!("gemv/dense.glsl"),
                WeightStorage::Quantised(_) => include_str!("gemv/quantised.glsl"),
            })
            .body(match problem.routing {
                Some(_) => include_str!("gemv/experts.glsl"),
                None => "",
            })
            .body(include_str!("load_x.glsl"))
            .body(include_str!("gemv/input.glsl"))
            .body(if is_fixed {
                include_str!("gemv/fixed.glsl")
            } else {
                include_str!("gemv/floats.glsl")
            });
        let text = if top_k.is_some() { top_k_functions(text) } else { text };
        text.body(include_str!("gemv/gemv.comp"))
    }
}

impl Algorithm for Gemv<'_> {
    /// Compared with matrix cores, up to `max_vectors_beside_matrix` vectors are one pass, and all are if there are few
    /// weights.
    fn cost(&self, tuning: &Tuning, _: &Traits) -> Option<ProductCost> {
        let work = self.0.weights().saturating_mul(self.0.tokens.saturating_sub(1));
        let passes = |row: &GemvTuning| {
            let few = work <= row.max_weights_beside_matrix;
            let vectors = if few {
                row.max_vectors
            } else {
                row.max_vectors_beside_matrix
            };
            self.0.tokens.div_ceil(vectors as usize)
        };
        let passes = self.tunings(tuning).map(passes).max().unwrap_or(0);
        (self.0.tokens <= self.max_tokens(tuning)).then_some(ProductCost { passes })
    }

    fn check(&self, _: &Tuning, traits: &Traits) -> Result<(), Unsupported> {
        // Each operand takes at most one address, a top-k three more, and all numbers together one.
        let top_k = if self.0.top_k.is_some() { 3 } else { 0 };
        if 8 * (self.0.operands + top_k + 1) <= traits.push_bytes as usize {
            return Ok(());
        }
        for sections in self.0.fusible_sections() {
            arguments::arguments(traits, self.0, &sections, Unpacked)?;
        }
        Ok(())
    }

    /// One call per group of sections.
    fn calls(&self, tuning: &Tuning, traits: &Traits) -> Result<ProjectionCalls, Unsupported> {
        if self.0.tokens == 0 || self.0.sections.iter().all(|s| s.rows == 0) {
            return Ok(ProjectionCalls::independent(Vec::new()));
        }
        let kinds = self.0.fusible_sections().into_iter();
        let calls = kinds.map(|sections| self.call(tuning, traits, &sections));
        let made = ProjectionCalls::independent(calls.collect::<Result<_, _>>()?);
        Ok(ProjectionCalls {
            workspace: self.0.top_k.as_ref().map(|top_k| top_k.keys(self.0.tokens)),
            tickets: usize::from(self.0.top_k.is_some()),
            ..made
        })
    }
}

/// Declares the operands and constants of the top-k over section `section`.
fn declare_top_k(text: SourceBuilder<'_>, section: usize) -> SourceBuilder<'_> {
    text.define("CHOICE", format!("{section}u"))
        .define("CHOICE_ROWS", format!("ROWS_{section}"))
        .output("places", DType::U32)
        .body(
            "layout(constant_id = 10) const uint FOURS = 64;\n\
             layout(buffer_reference, scalar, buffer_reference_align = 16) coherent buffer left_ref { uint at[]; };\n\
             layout(buffer_reference, scalar, buffer_reference_align = 16) coherent buffer left_fours_ref { uvec4 at[]; };\n",
        )
        .body(tickets::COUNTERS)
}

/// Adds the top-k functions. They must follow the arguments and other declarations of shared memory.
fn top_k_functions(text: SourceBuilder<'_>) -> SourceBuilder<'_> {
    text.body(include_str!("../../kit/order.glsl"))
        .body("#ifndef FULL_SUBGROUPS\n")
        .body(largest::TEXT)
        .body("#endif\n")
        .body(tickets::TEXT)
        .body(include_str!("gemv/choice.glsl"))
}

/// Work division of a workgroup.
struct GemvDivision {
    /// Invocations per row of invocations: a subgroup.
    lanes: u32,
    /// Rows of invocations per workgroup.
    rows: u32,
    /// Rows of each matrix per row of invocations.
    each: u32,
    /// Chunks in flight.
    loads: u32,
}

impl GemvDivision {
    /// The tuning's division, reduced if there would be too few workgroups or if a row has fewer chunks.
    fn of(
        (traits, gemv): (&Traits, &GemvTuning),
        lanes: u32,
        problem: &ProjectionProblem<'_>,
        sections: &[&SectionPlan<'_>],
    ) -> GemvDivision {
        let chunks = problem.depth().div_ceil(sections[0].parts[0].chunk());
        let parts = sections[0].parts.len() as u32;
        let mut division = GemvDivision {
            lanes,
            rows: gemv.threads / lanes,
            each: (gemv.rows / parts).max(1),
            loads: 1,
        };
        let target = gemv.target_groups.on(traits).div_ceil(routed_repeats(problem));
        while division.each > 1 && division.blocks(sections) < target {
            division.each /= 2;
        }
        while division.rows > 1 && division.blocks(sections) < target {
            division.rows = division.rows.div_ceil(2);
        }
        // Keeps the tuning's number of chunks in flight, however many rows they are of.
        let loads = if problem.tokens > 1 {
            gemv.batched_loads
        } else {
            gemv.loads
        };
        let in_flight = (gemv.rows * loads / (division.each * parts)).max(1);
        division.loads = in_flight.min(chunks.div_ceil(lanes as usize).max(1) as u32);
        division
    }

    /// Reduces the iterations of a long sum. Returns false if there is nothing left to reduce.
    fn reduce_iterations(&mut self) -> bool {
        const MAX_LOADS: u32 = 8;
        match (self.each, self.loads) {
            (1, MAX_LOADS..) => return false,
            (1, _) => self.loads *= 2,
            _ => self.each /= 2,
        }
        true
    }

    /// Number of workgroups of each repetition, such that there are about `max` of all of them. Each takes equally many
    /// blocks, but for the last.
    fn groups(&self, max: usize, problem: &ProjectionProblem<'_>, sections: &[&SectionPlan<'_>]) -> usize {
        let (blocks, repeats) = (self.blocks(sections), routed_repeats(problem));
        if repeats == 1 {
            return blocks.min(max);
        }
        let each = blocks.div_ceil((max / repeats).max(1));
        blocks.div_ceil(each)
    }

    /// Number of blocks of rows: the workgroups if each computes one block.
    fn blocks(&self, sections: &[&SectionPlan<'_>]) -> usize {
        let per_block = (self.rows * self.each) as usize;
        sections.iter().map(|s| s.rows.div_ceil(per_block)).sum()
    }
}

/// Number of products that differ only in their experts; at least 1.
fn routed_repeats(problem: &ProjectionProblem<'_>) -> usize {
    problem.routing.as_ref().map_or(1, Routing::repeats).max(1)
}

/// Returns the chunks of x per tile in shared memory: the minimum number of equal tiles that fit.
fn tile(
    (traits, gemv): (&Traits, &GemvTuning),
    problem: &ProjectionProblem<'_>,
    (chunk, is_fixed): (usize, bool),
    (lanes, rows): (u32, u32),
) -> Result<u32, Unsupported> {
    /// Maximum number of values that an invocation holds while it stages them in fixed point.
    const MAX_STAGED_VALUES: usize = 32;
    // Shared memory also holds the sums of lanes and rows, the top-k, and what drivers reserve.
    let top_k = problem
        .top_k
        .as_ref()
        .map_or(0, |top_k| largest::shared_bytes(top_k.rows));
    let reserved = 4 * (lanes * rows + rows * problem.tokens as u32) as usize + top_k + 1024;
    let room = (traits.shared_bytes as usize)
        .saturating_sub(reserved)
        .min(gemv.staged_bytes);
    let (chunk_bytes, held) = if is_fixed {
        (2 * chunk + 12, MAX_STAGED_VALUES * (lanes * rows) as usize / chunk)
    } else {
        (4 * chunk, usize::MAX)
    };
    // A row of shared memory is one chunk longer than an even tile.
    let max = (room / (chunk_bytes * problem.tokens)).saturating_sub(1).min(held);
    if max == 0 {
        let what = format!(
            "{} tokens do not fit {} bytes of shared memory",
            problem.tokens, traits.shared_bytes
        );
        return Err(Unsupported::Size { op: OP, what });
    }
    let chunks = problem.depth().div_ceil(chunk).max(1);
    let even = chunks.div_ceil(chunks.div_ceil(max));
    // Multiples keep the number of different sizes, and so of pipelines, small.
    Ok(even.next_multiple_of(lanes as usize).min(max) as u32)
}
