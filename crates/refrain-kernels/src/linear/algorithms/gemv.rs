//! Matrix times some vectors: each subgroup takes rows of the weights and all tokens, as floats or, of quantised
//! weights on devices with fast dot products of bytes, in fixed point.

mod iterations;

use self::iterations::iterations;
use super::{Algorithm, ProductCost, ProjectionCalls};
use crate::kit::largest;
use crate::kit::text::{Text, grid};
use crate::kit::tickets;
use crate::linear::arguments::{self, InputSource::Given};
use crate::linear::problem::{ProjectionProblem, SectionPlan};
use crate::linear::routing::Routing;
use crate::linear::section::{OP, WeightStorage};
use crate::linear::source;
use crate::tuning::{self, GemvTuning, Tuning};
use crate::{Call, DType, Traits, Unsupported};

/// Such a product.
pub(crate) struct Gemv<'p>(pub &'p ProjectionProblem<'p>);

impl Gemv<'_> {
    /// The part of the tuning row for each matrix.
    fn tunings<'t>(&self, tuning: &'t Tuning) -> impl Iterator<Item = &'t GemvTuning> {
        let parts = self.0.sections.iter().flat_map(|s| &s.parts);
        parts.map(move |part| tuning.gemv_kind(part.planes.weights().format()))
    }

    /// The most tokens.
    fn most_tokens(&self, tuning: &Tuning) -> usize {
        let most = self.tunings(tuning).map(|row| row.most_vectors as usize).min();
        most.unwrap_or(usize::MAX)
    }

    /// The call for sections that are alike.
    fn call(&self, tuning: &Tuning, traits: &Traits, sections: &[&SectionPlan<'_>]) -> Result<Call, Unsupported> {
        let problem = self.0;
        let weights = sections[0].parts[0].planes.weights();
        let all_rows = sections.iter().map(|s| s.rows).sum();
        let sizes = [problem.columns, all_rows, problem.tokens];
        let gemv = tuning.gemv(weights.format(), sizes, problem.routing.is_some());
        let chunk = sections[0].parts[0].chunk();
        let mut division = GemvDivision::of((traits, gemv), tuning::lanes(traits), problem, sections);
        let (lanes, rows) = (division.lanes, division.rows);
        let arguments = arguments::arguments(traits, problem, sections, Given)?;
        let is_fixed = tuning.fixed_point && traits.exchanges_lanes() && weights != WeightStorage::Dense;
        let tile = tile((traits, gemv), problem, (chunk, is_fixed), (lanes, rows))?;
        let count = |division: &GemvDivision| iterations(traits, gemv, problem, sections, division, tile as usize);
        while crate::kit::iterations::most(traits).is_some_and(|most| count(&division) > most)
            && division.goes_round_less()
        {}
        let what = || format!("sums over {} products", problem.columns);
        crate::kit::iterations::check(OP, traits, count(&division), what)?;
        // What is run once costs what fetching its text does: of loops that go round once nothing else is left.
        let has_one_block = division.blocks(sections) <= gemv.most_groups.on(traits);
        let has_one_pass =
            has_one_block && problem.depth().div_ceil(chunk) <= (lanes * division.loads).min(tile) as usize;
        let text = if is_fixed {
            Text::with_shuffles(traits, OP).define("FIXED_POINT", 1)
        } else {
            Text::new(traits, OP)
        };
        let text = text
            .define("LANE_VALUE", "float")
            .unrolled(gemv.unrolled)
            .flag("ONE_BLOCK", has_one_block)
            .flag("ONE_PASS", has_one_pass);
        let text = self.completed(
            text,
            sections,
            &source::generated(problem, sections, &arguments)?,
            is_fixed,
        );
        let choice = problem.choice_of(sections);
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
        constants.extend(choice.map(|(_, section)| (10, largest::fours(sections[section].rows))));
        let kernel = text.kernel(constants);
        let [x, y, _] = grid(OP, division.blocks(sections).min(gemv.most_groups.on(traits)))?;
        Ok(Call {
            kernel,
            groups: [x, y, problem.repeats().clamp(1, 65_535) as u32],
            push: arguments.push(),
        })
    }

    /// The text behind what says how the product is divided.
    fn completed<'t>(
        &self,
        text: Text<'t>,
        sections: &[&SectionPlan<'_>],
        generated: &str,
        is_fixed: bool,
    ) -> Text<'t> {
        let problem = self.0;
        let part = &sections[0].parts[0];
        let text = text
            .define("CHUNK", part.chunk())
            // Sums of nothing: there is not even a chunk to load.
            .flag("EMPTY", problem.columns == 0);
        let choice = problem.choice_of(sections);
        let text = source::declared(text, problem, sections)
            .body(include_str!("gemv/sizes.glsl"))
            .body(include_str!("../../kit/lanes.glsl"));
        let text = match choice {
            Some((_, section)) => declared_choice(text, section),
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
            .body(include_str!("fours.glsl"))
            .body(include_str!("gemv/input.glsl"))
            .body(if is_fixed {
                include_str!("gemv/fixed.glsl")
            } else {
                include_str!("gemv/floats.glsl")
            });
        let text = if choice.is_some() { found_choice(text) } else { text };
        text.body(include_str!("gemv/gemv.comp"))
    }
}

impl Algorithm for Gemv<'_> {
    /// Beside matrix cores vectors cost nothing up to a number.
    fn cost(&self, tuning: &Tuning, _: &Traits) -> Option<ProductCost> {
        let passes = |row: &GemvTuning| self.0.tokens.div_ceil(row.most_beside_matrix as usize);
        let passes = self.tunings(tuning).map(passes).max().unwrap_or(0);
        (self.0.tokens <= self.most_tokens(tuning)).then_some(ProductCost { passes })
    }

    fn check(&self, _: &Tuning, traits: &Traits) -> Result<(), Unsupported> {
        // Each operand takes one address at most, as does each part of a choice, and all numbers together another.
        let chosen = if self.0.choice.is_some() { 3 } else { 0 };
        if 8 * (self.0.operands + chosen + 1) <= traits.push_bytes as usize {
            return Ok(());
        }
        for sections in self.0.alike() {
            arguments::arguments(traits, self.0, &sections, Given)?;
        }
        Ok(())
    }

    /// One call for each kind of section.
    fn calls(&self, tuning: &Tuning, traits: &Traits) -> Result<ProjectionCalls, Unsupported> {
        if self.0.tokens == 0 || self.0.sections.iter().all(|s| s.rows == 0) {
            return Ok(ProjectionCalls::apart(Vec::new()));
        }
        let kinds = self.0.alike().into_iter();
        let calls = kinds.map(|sections| self.call(tuning, traits, &sections));
        let made = ProjectionCalls::apart(calls.collect::<Result<_, _>>()?);
        Ok(ProjectionCalls {
            workspace: self.0.choice.as_ref().map(|choice| choice.keys(self.0.tokens)),
            tickets: usize::from(self.0.choice.is_some()),
            ..made
        })
    }
}

/// The accessors of what finds the largest results of section `section`.
fn declared_choice(text: Text<'_>, section: usize) -> Text<'_> {
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

/// What finds them, behind the arguments and what else lies in shared memory.
fn found_choice(text: Text<'_>) -> Text<'_> {
    text.body(include_str!("../../kit/order.glsl"))
        .body("#ifndef FULL_SUBGROUPS\n")
        .body(largest::TEXT)
        .body("#endif\n")
        .body(tickets::TEXT)
        .body(include_str!("gemv/choice.glsl"))
}

/// How a workgroup is divided.
struct GemvDivision {
    /// Invocations that share rows.
    lanes: u32,
    /// How many such rows of invocations there are.
    rows: u32,
    /// Rows of each matrix that such a row takes together.
    each: u32,
    /// Chunks under way.
    loads: u32,
}

impl GemvDivision {
    /// What the tuning asks for, less where workgroups would be too few or a row has fewer chunks.
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
        let repeats = problem.routing.as_ref().map_or(1, Routing::repeats);
        let enough = gemv.enough_groups.on(traits).div_ceil(repeats.max(1));
        while division.each > 1 && division.blocks(sections) < enough {
            division.each /= 2;
        }
        while division.rows > 1 && division.blocks(sections) < enough {
            division.rows = division.rows.div_ceil(2);
        }
        // As many chunks under way as the tuning asks for, of however many rows.
        let loads = if problem.tokens > 1 {
            gemv.loads_of_several
        } else {
            gemv.loads
        };
        let in_flight = (gemv.rows * loads / (division.each * parts)).max(1);
        division.loads = in_flight.min(chunks.div_ceil(lanes as usize).max(1) as u32);
        division
    }

    /// Changes into what takes fewer iterations for a longer sum, if there is such.
    fn goes_round_less(&mut self) -> bool {
        const MOST_LOADS: u32 = 8;
        match (self.each, self.loads) {
            (1, MOST_LOADS..) => return false,
            (1, _) => self.loads *= 2,
            _ => self.each /= 2,
        }
        true
    }

    /// Workgroups, if each takes rows once.
    fn blocks(&self, sections: &[&SectionPlan<'_>]) -> usize {
        let per_block = (self.rows * self.each) as usize;
        sections.iter().map(|s| s.rows.div_ceil(per_block)).sum()
    }
}

/// Chunks of x that lie in shared memory together: in equal tiles, as few as fit.
fn tile(
    (traits, gemv): (&Traits, &GemvTuning),
    problem: &ProjectionProblem<'_>,
    (chunk, is_fixed): (usize, bool),
    (lanes, rows): (u32, u32),
) -> Result<u32, Unsupported> {
    /// Values that an invocation holds while it stages them in fixed point.
    const MOST_HELD: usize = 32;
    // Beside x lie the sums of lanes and of rows, and what drivers take.
    let choice = problem
        .choice
        .as_ref()
        .map_or(0, |choice| largest::shared_bytes(choice.rows));
    let taken = 4 * (lanes * rows + rows * problem.tokens as u32) as usize + choice + 1024;
    let room = (traits.shared_bytes as usize)
        .saturating_sub(taken)
        .min(gemv.staged_bytes);
    let (chunk_bytes, held) = if is_fixed {
        (2 * chunk + 12, MOST_HELD * (lanes * rows) as usize / chunk)
    } else {
        (4 * chunk, usize::MAX)
    };
    // A line is one chunk longer than the tile where that is even.
    let most = (room / (chunk_bytes * problem.tokens)).saturating_sub(1).min(held);
    if most == 0 {
        let what = format!(
            "{} tokens do not fit into {} bytes of shared memory",
            problem.tokens, traits.shared_bytes
        );
        return Err(Unsupported::Size { op: OP, what });
    }
    let chunks = problem.depth().div_ceil(chunk).max(1);
    let even = chunks.div_ceil(chunks.div_ceil(most));
    // Few different sizes, so that few pipelines are needed.
    Ok(even.next_multiple_of(lanes as usize).min(most) as u32)
}
