//! Projections, with what stands before and behind them: one dispatch from the residual
//! stream to queries, keys and values, to a gated activation, or back to the residual stream.
//!
//! `x` `[T, K]` floats, normalised first where there is a norm (as [`crate::rms_norm`], in f32), meets
//! one or more matrices `[N, K]`, dense or quantised. A [`Section`] computes
//! `y[t, n] = epilogue(Σ_k x[t, k] · w_p[n, k] for each part p, further arrays at [t, n] …)`, and the
//! sections' results lie side by side in the rows of `out` `[T, Σ N]`. A sum is rounded to the dtype
//! that the epilogue's input has, and so is each of the epilogue's steps ([`crate::elementwise`]).
//!
//! Operands by number: x 0; the norm's weight `[K]`, if it has one; for each part of each section its
//! matrix `[N, K]`, or its planes (see [`crate::quantised`]); for each section the further inputs of its
//! epilogue `[T, N]`; out.
//!
//! Sums are in f32, in an order that depends on the device and the tuning row alone.

mod arguments;
mod ends;
mod experts;
mod iterations;
pub(crate) mod matrix;
mod problem;
mod reference;
mod routing;
pub(crate) mod source;

pub use experts::{ExpertInputs, ExpertProjection, Routed, expert_reference};
pub use reference::{ProjectionInputs, reference};

use arguments::InputSource::Given;
use iterations::iterations;
use problem::SectionPlan;
pub(crate) use problem::{BatchStrides, ProjectionProblem, StridedMatrix, WeightPlanes};
use routing::Routing;

use std::fmt;

use crate::elementwise::{Expression, ExpressionStep};
use crate::kit::text::{Text, grid, hash};
use crate::quantised::QuantFormat;
pub use crate::rms_norm::Norm;
use crate::tuning::{self, GemvTuning, Tuning};
use crate::{Call, DType, OperandSpec, Traits, Unsupported};

pub(crate) const OP: &str = "projection";

/// What is done in one go.
#[derive(Clone, PartialEq, Hash, Debug)]
pub struct Projection {
    /// What x goes through first.
    pub norm: Option<Norm>,
    /// What lies side by side in the result.
    pub sections: Vec<Section>,
}

/// Columns of the result: matrices of one shape, and what becomes of their sums.
#[derive(Clone, PartialEq, Hash, Debug)]
pub struct Section {
    /// How each matrix is stored.
    pub parts: Vec<WeightStorage>,
    /// From the parts' sums, then further arrays, to the result.
    pub epilogue: Expression,
}

/// How a matrix is stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WeightStorage {
    /// f32, f16 or bf16 elements, those of a row together.
    Dense,
    /// A few bits per element.
    Quantised(QuantFormat),
}

impl WeightStorage {
    /// Operands that the matrix takes.
    pub fn planes(self) -> usize {
        match self {
            WeightStorage::Dense => 1,
            WeightStorage::Quantised(format) => 2 + usize::from(format.has_biases()),
        }
    }
}

impl Section {
    /// One matrix whose sums are the result, stored as `dtype`.
    pub fn plain(weights: WeightStorage, dtype: DType) -> Section {
        Section {
            parts: vec![weights],
            epilogue: Expression {
                inputs: vec![dtype],
                steps: vec![ExpressionStep::Input(0)],
            },
        }
    }

    /// Whether the sums of the one matrix are the result.
    pub fn is_plain(&self) -> bool {
        self.parts.len() == 1 && self.extras() == 0 && self.epilogue.steps == [ExpressionStep::Input(0)]
    }

    /// Inputs of the epilogue beside the sums.
    pub fn extras(&self) -> usize {
        self.epilogue.inputs.len() - self.parts.len()
    }
}

impl Projection {
    /// Number of operands, the result among them.
    pub fn operands(&self) -> usize {
        let norm = usize::from(self.norm.is_some_and(|n| n.weighted));
        let planes = self.sections.iter().flat_map(|s| &s.parts).map(|w| w.planes());
        let extras = self.sections.iter().map(Section::extras);
        2 + norm + planes.chain(extras).sum::<usize>()
    }
}

impl fmt::Display for Projection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(norm) = &self.norm {
            write!(f, "of rms_norm eps {:e}: ", norm.eps)?;
        }
        let sections: Vec<String> = self.sections.iter().map(Section::to_string).collect();
        f.write_str(&sections.join(" | "))
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.parts.iter().map(WeightStorage::to_string).collect();
        f.write_str(&parts.join(", "))?;
        if self.is_plain() {
            Ok(())
        } else {
            write!(f, " {{{}}}", self.epilogue)
        }
    }
}

impl fmt::Display for WeightStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WeightStorage::Dense => f.write_str("dense"),
            WeightStorage::Quantised(format) => write!(f, "{format}"),
        }
    }
}

/// The calls that compute a projection, and what they need beside its operands.
#[derive(Clone, Debug)]
pub struct ProjectionCalls {
    /// In order.
    pub calls: Vec<Call>,
    /// Whether each call needs what the one before it wrote.
    pub chained: bool,
    /// Memory for the calls alone, the operand behind the others, whose contents do not matter.
    pub workspace: Option<OperandSpec>,
}

/// Whether a device may compute products of `tokens` rows with these weights here, rather than in tiles.
pub fn takes(traits: &Traits, weights: WeightStorage, tokens: usize) -> bool {
    matrix::takes(traits) || tokens <= gemv_tuning(tuning::choose(traits), weights).most_vectors as usize
}

/// Calls that compute the projection: of few tokens one for the sections that are stored alike and end alike,
/// which do not depend on each other; of many (see [`takes`]) several in a chain. None where the result is
/// empty.
///
/// # Errors
/// When dtypes or shapes do not fit, an operand must be copied first ([`Unsupported::NeedsContiguous`]),
/// arguments are too many, or a size is beyond 32-bit indices.
pub fn calls(
    traits: &Traits,
    projection: &Projection,
    operands: &[&OperandSpec],
) -> Result<ProjectionCalls, Unsupported> {
    calls_tuned(tuning::choose(traits), traits, projection, operands)
}

/// [`calls`] with a given row of the tuning table.
///
/// # Errors
/// As [`calls`].
pub fn calls_tuned(
    tuning: &Tuning,
    traits: &Traits,
    projection: &Projection,
    operands: &[&OperandSpec],
) -> Result<ProjectionCalls, Unsupported> {
    let problem = ProjectionProblem::new(projection, operands)?;
    if problem.for_matrix_cores(tuning, traits) {
        return problem.matrix_calls(tuning, traits);
    }
    problem.check_gemv(tuning)?;
    Ok(ProjectionCalls {
        calls: problem.calls(tuning, traits)?,
        chained: false,
        workspace: None,
    })
}

/// Fails as [`calls`] would, without building the calls.
///
/// # Errors
/// Those of [`calls`].
pub fn check(traits: &Traits, projection: &Projection, operands: &[&OperandSpec]) -> Result<(), Unsupported> {
    let problem = ProjectionProblem::new(projection, operands)?;
    let tuning = tuning::choose(traits);
    if problem.for_matrix_cores(tuning, traits) {
        return problem.check_matrix(tuning, traits);
    }
    problem.check_gemv(tuning)?;
    problem.check(traits)
}

/// As [`check`], where no device is asked: whether operands are those of a projection.
///
/// # Errors
/// Those of [`calls`] that do not depend on a device.
pub fn check_operands(projection: &Projection, operands: &[&OperandSpec]) -> Result<(), Unsupported> {
    ProjectionProblem::new(projection, operands)?.check(&Traits::minimal())
}

/// The part of a tuning row for a storage.
fn gemv_tuning(tuning: &Tuning, weights: WeightStorage) -> &GemvTuning {
    match weights {
        WeightStorage::Dense => &tuning.dense,
        WeightStorage::Quantised(format) if format.bits <= 4 => &tuning.four_bit,
        WeightStorage::Quantised(_) => &tuning.eight_bit,
    }
}

impl ProjectionProblem<'_> {
    /// Whether matrix cores take the product, rather than subgroups rows of the weights and all tokens.
    fn for_matrix_cores(&self, tuning: &Tuning, traits: &Traits) -> bool {
        let parts = self.sections.iter().flat_map(|s| &s.parts);
        let mut rows = parts.map(|part| gemv_tuning(tuning, part.planes.weights()));
        if !matrix::takes(traits) || matrix::check(self).is_err() {
            return false;
        }
        rows.any(|row| self.tokens > row.most_beside_matrix as usize)
    }

    /// Fails where tokens are more than subgroups take together.
    fn check_gemv(&self, tuning: &Tuning) -> Result<(), Unsupported> {
        let parts = self.sections.iter().flat_map(|s| &s.parts);
        let most = parts
            .map(|part| gemv_tuning(tuning, part.planes.weights()).most_vectors)
            .min();
        match most {
            Some(most) if self.tokens > most as usize => Err(Unsupported::Size {
                op: OP,
                what: format!("{} tokens; the most is {most}", self.tokens),
            }),
            _ => Ok(()),
        }
    }

    /// Fails where arguments are too many.
    fn check(&self, traits: &Traits) -> Result<(), Unsupported> {
        // Each operand takes one address at most, and all numbers together another.
        if 8 * (self.operands + 1) <= traits.push_bytes as usize {
            return Ok(());
        }
        for sections in self.alike() {
            arguments::arguments(traits, self, &sections, Given)?;
        }
        Ok(())
    }

    /// One call for each kind of section.
    pub(crate) fn calls(&self, tuning: &Tuning, traits: &Traits) -> Result<Vec<Call>, Unsupported> {
        if self.tokens == 0 || self.sections.iter().all(|s| s.rows == 0) {
            return Ok(Vec::new());
        }
        let kinds = self.alike().into_iter();
        kinds.map(|sections| self.call(tuning, traits, &sections)).collect()
    }

    /// The call for sections that are alike.
    fn call(&self, tuning: &Tuning, traits: &Traits, sections: &[&SectionPlan<'_>]) -> Result<Call, Unsupported> {
        let weights = sections[0].parts[0].planes.weights();
        let gemv = match (weights, &self.routing) {
            (WeightStorage::Quantised(format), None) => {
                tuning.gemv(Some(format), self.columns, sections.iter().map(|s| s.rows).sum())
            }
            _ => gemv_tuning(tuning, weights),
        };
        let chunk = sections[0].parts[0].chunk();
        let mut division = GemvDivision::of(gemv, tuning::lanes(traits), self, sections);
        let (lanes, rows) = (division.lanes, division.rows);
        let arguments = arguments::arguments(traits, self, sections, Given)?;
        let is_fixed = tuning.fixed_point && weights != WeightStorage::Dense;
        let tile = tile((traits, gemv), self, (chunk, is_fixed), (lanes, rows))?;
        let count = |division: &GemvDivision| iterations(traits, gemv, self, sections, division, tile as usize);
        while crate::kit::iterations::most(traits).is_some_and(|most| count(&division) > most)
            && division.goes_round_less()
        {}
        let what = || format!("sums over {} products", self.columns);
        crate::kit::iterations::check(OP, traits, count(&division), what)?;
        let generated = source::generated(self, sections, &arguments)?;
        let text = Text::new(traits, &format!("{OP}.{:016x}", hash(&generated)))
            .define("LANE_VALUE", "float")
            .define("UNROLLED", u32::from(gemv.unrolled))
            .define("CHUNK", chunk)
            .flag("FIXED_POINT", is_fixed)
            // Sums of nothing: there is not even a chunk to load.
            .flag("EMPTY", self.columns == 0);
        let kernel = source::declared(text, self, sections)
            .body(include_str!("../../kit/unroll.glsl"))
            .body(include_str!("sizes.glsl"))
            .body(include_str!("../../kit/lanes.glsl"))
            .body(&generated)
            .body(match weights {
                WeightStorage::Dense => include_str!("dense.glsl"),
                WeightStorage::Quantised(_) => include_str!("quantised.glsl"),
            })
            .body(match self.routing {
                Some(_) => include_str!("experts.glsl"),
                None => "",
            })
            .body(include_str!("input.glsl"))
            .body(match is_fixed {
                true => include_str!("fixed.glsl"),
                false => include_str!("floats.glsl"),
            })
            .body(include_str!("projection.comp"))
            .kernel(vec![
                (0, lanes * rows),
                (3, lanes),
                (4, rows),
                (5, self.tokens as u32),
                (6, division.loads),
                (7, division.each),
                (8, weights.group()),
                (9, tile),
            ]);
        let [x, y, _] = grid(OP, division.blocks(sections).min(gemv.most_groups as usize))?;
        Ok(Call {
            kernel,
            groups: [x, y, self.repeats().clamp(1, 65_535) as u32],
            push: arguments.push(),
        })
    }
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
        gemv: &GemvTuning,
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
        let enough = (gemv.enough_groups as usize).div_ceil(repeats.max(1));
        while division.each > 1 && division.blocks(sections) < enough {
            division.each /= 2;
        }
        while division.rows > 1 && division.blocks(sections) < enough {
            division.rows = division.rows.div_ceil(2);
        }
        // As many chunks under way as the tuning asks for, of however many rows.
        let in_flight = (gemv.rows * gemv.loads / (division.each * parts)).max(1);
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

impl WeightStorage {
    /// Values that share a scale: what shaders are specialised with.
    pub(crate) fn group(self) -> u32 {
        match self {
            WeightStorage::Dense => 0,
            WeightStorage::Quantised(format) => format.group,
        }
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
    let taken = 4 * (lanes * rows + rows * problem.tokens as u32) as usize + 1024;
    let room = (traits.shared_bytes as usize)
        .saturating_sub(taken)
        .min(gemv.staged_bytes);
    let (chunk_bytes, held) = match is_fixed {
        true => (3 * chunk + 12, MOST_HELD * (lanes * rows) as usize / chunk),
        false => (4 * chunk, usize::MAX),
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
