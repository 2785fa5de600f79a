//! Fused products of tokens with the matrices of their experts: for few tokens norm, products, routing weights and
//! epilogue in one dispatch; for many, products and epilogue in a grouped GEMM on matrix cores.
//!
//! Each matrix of a section holds those of E experts as rows `[E·N, K]`, or N of every R rows. Each of T tokens has U
//! experts: `experts` `[T, U]` u32. Two forms exist:
//!
//! - Each expert yields its own result from the same x: `out[t·U + u, n] = epilogue(Σ_k x[t, k] · w_p[experts[t, u]·N +
//!   n, k] for each part p, extra inputs …)`.
//! - The experts' results are weighted and added; each has its own row of x: `out[t, n] = epilogue(Σ_u weight[t, u] ·
//!   Σ_k x[t·U + u, k] · w_p[experts[t, u]·N + n, k] …)`.
//!
//! An expert index out of range gives a sum of zero.
//!
//! Operands in order: x (0), `[T, K]` or `[T·U, K]`; the experts (1); the norm's weight `[K]`, if any; the routing
//! weights `[T, U]`, or the scores `[T, E]` that they are computed from; for each part its matrix or planes; the
//! epilogue's extra inputs, `[T·U, N]` or `[T, N]`; out, of the same shape.

use std::fmt;

use super::algorithms::{Algorithm, Gemv, Grouped, ProjectionCalls};
use super::problem::{ProjectionProblem, SectionPlan, StridedMatrix, extra, norm_weight};
use super::routing::{Routing, RoutingWeights};
use super::section::{OP, Section};
use super::sources::WeightRows;
use crate::kit::text::{address, require_dtype, require_float, require_shape};
use crate::rms_norm::Norm;
use crate::{
    DType, OperandSpec, Traits, Unsupported, Values, elementwise, expert_matmul, expert_sum, rms_norm, tuning,
};

/// Maximum number of experts per token.
const MAX_EXPERTS_PER_TOKEN: usize = 64;

/// Maximum number of tokens whose products are computed pair by pair. For more, pairs are sorted by expert, and each
/// expert's matrices are read once for a tile of its pairs.
pub const MAX_GEMV_TOKENS: usize = 8;

/// A fused expert product.
#[derive(Clone, PartialEq, Hash, Debug)]
pub struct ExpertProjection {
    /// Norm of x; only with [`Routed::PerExpert`].
    pub norm: Option<Norm>,
    /// The matrices and the epilogue.
    pub section: Section,
    /// How the results of a token's experts are combined.
    pub routed: Routed,
    /// Stride between the matrices of consecutive experts, in rows: at least N.
    pub between: usize,
}

/// How the results of a token's experts are combined.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Routed {
    /// Not at all: each expert yields a result.
    PerExpert,
    /// A sum with given weights.
    Weighted,
    /// A sum weighted by the softmax over the scores of the token's experts.
    Scored,
}

impl ExpertProjection {
    /// Number of operands, including the result.
    pub fn operands(&self) -> usize {
        let planes: usize = self.section.parts.iter().map(|w| w.planes()).sum();
        self.first_plane() + planes + self.section.extras() + 1
    }

    /// Operand number of the first plane of the first matrix.
    pub fn first_plane(&self) -> usize {
        let weighted = self.norm.is_some_and(|norm| norm.weighted);
        2 + usize::from(weighted) + usize::from(self.routed != Routed::PerExpert)
    }

    /// Checks the operands and returns T, U, N and K.
    fn extents(&self, operands: &[&OperandSpec]) -> Result<[usize; 4], Unsupported> {
        let size = |what: String| Err(Unsupported::Size { op: OP, what });
        if operands.len() != self.operands() {
            return size(format!(
                "expected {} operands, found {}",
                self.operands(),
                operands.len()
            ));
        }
        let last = operands.len() - 1;
        let (x, experts, out) = (operands[0], operands[1], operands[last]);
        require_float(OP, x)?;
        require_float(OP, out)?;
        require_dtype(OP, experts, DType::U32)?;
        let (&[x_rows, columns], &[tokens, used], &[repeats, rows]) =
            (&x.layout.shape[..], &experts.layout.shape[..], &out.layout.shape[..])
        else {
            return size(format!(
                "x {:?}, experts {:?} and the result {:?} must be matrices",
                x.layout.shape, experts.layout.shape, out.layout.shape
            ));
        };
        let per_expert = self.routed == Routed::PerExpert;
        let pairs = tokens * used;
        let (wanted_x, wanted_out) = if per_expert { (tokens, pairs) } else { (pairs, tokens) };
        let is_summed_norm = self.norm.is_some() && !per_expert;
        if x_rows != wanted_x || repeats != wanted_out || !(1..=MAX_EXPERTS_PER_TOKEN).contains(&used) || is_summed_norm
        {
            return size(format!(
                "{x_rows} rows of x for {used} experts of {tokens} tokens, {repeats} results"
            ));
        }
        let contiguous = if per_expert { last } else { 0 };
        for operand in [1, contiguous] {
            if !operands[operand].layout.is_contiguous() {
                return Err(Unsupported::NeedsContiguous { op: OP, operand });
            }
        }
        Ok([tokens, used, rows, columns])
    }

    /// Returns the section and the number of experts.
    fn planned<'a>(
        &self,
        operands: &[&'a OperandSpec],
        [rows, columns]: [usize; 2],
    ) -> Result<(SectionPlan<'a>, usize), Unsupported> {
        let size = |what: String| Unsupported::Size { op: OP, what };
        let numbers: Vec<usize> = (self.section.parts.iter())
            .scan(self.first_plane(), |next, weights| {
                *next += weights.planes();
                Some(*next - weights.planes())
            })
            .collect();
        let mut plan = SectionPlan::new(&self.section, &numbers, operands, columns)?;
        let whole = self.routed == Routed::PerExpert || columns.is_multiple_of(plan.parts[0].chunk());
        let count = plan.rows.div_ceil(self.between.max(1));
        let last_row = count.saturating_sub(1) * self.between + rows;
        if rows == 0 || count == 0 || self.between < rows || last_row != plan.rows || !whole {
            let (all, between) = (plan.rows, self.between);
            return Err(size(format!(
                "expert matrices of {rows} × {columns} with a stride of {between} rows do not fit {all} rows"
            )));
        }
        plan.rows = rows;
        let last = operands.len() - 1;
        let (results, first) = (operands[last].layout.shape[0], last - self.section.extras());
        plan.extras = (first..last)
            .map(|number| extra(number, operands, [results, rows]))
            .collect::<Result<_, _>>()?;
        let (dtypes, wanted) = (plan.epilogue.dtypes(), operands[last].dtype);
        let dtypes = dtypes.map_err(|e| size(e.to_string()))?;
        if dtypes.last() != Some(&wanted) {
            return Err(size(format!("the epilogue gives {dtypes:?}, the result is {wanted}")));
        }
        Ok((plan, count))
    }

    fn problem<'a>(&self, operands: &[&'a OperandSpec]) -> Result<ProjectionProblem<'a>, Unsupported> {
        let [tokens, used, rows, columns] = self.extents(operands)?;
        let (plan, count) = self.planned(operands, [rows, columns])?;
        let mut number = 2;
        let mut norm = None;
        if let Some(wanted) = &self.norm {
            let weight = if wanted.weighted {
                Some(norm_weight(number, operands, columns)?)
            } else {
                None
            };
            number += usize::from(wanted.weighted);
            norm = Some((wanted.eps, weight));
        }
        let weights = match self.routed {
            Routed::PerExpert => None,
            _ => Some(self.weights(number, operands, [tokens, used, count])?),
        };
        let last = operands.len() - 1;
        let x_strides = [operands[0].layout.strides[0], operands[0].layout.strides[1]];
        Ok(ProjectionProblem {
            tokens: 1,
            columns,
            x: StridedMatrix::of(0, operands[0], x_strides, &[])?,
            norm,
            sections: vec![plan],
            out: StridedMatrix::new(last, operands[last])?,
            batch: None,
            top_k: None,
            routing: Some(Routing {
                experts: address(OP, 1, operands[1])?,
                count,
                between: self.between,
                used,
                tokens,
                weights,
            }),
            operands: operands.len(),
        })
    }

    fn weights(
        &self,
        number: usize,
        operands: &[&OperandSpec],
        [tokens, used, count]: [usize; 3],
    ) -> Result<RoutingWeights, Unsupported> {
        let operand = operands[number];
        let are_scores = self.routed == Routed::Scored;
        require_float(OP, operand)?;
        require_shape(
            OP,
            "the experts' weights",
            operand,
            &[tokens, if are_scores { count } else { used }],
        )?;
        if operand.layout.strides[1] != 1 && operand.layout.shape[1] > 1 {
            return Err(Unsupported::NeedsContiguous {
                op: OP,
                operand: number,
            });
        }
        Ok(RoutingWeights {
            address: address(OP, number, operand)?,
            dtype: operand.dtype,
            stride: operand.layout.strides[0],
            are_scores,
        })
    }

    /// Returns the calls; none if the result is empty.
    ///
    /// # Errors
    /// Fails if dtypes or shapes do not match, if an operand must be copied first ([`Unsupported::NeedsContiguous`]),
    /// if there are too many arguments, or if a size exceeds 32-bit indices. For more than [`MAX_GEMV_TOKENS`] tokens it
    /// also fails without matrix cores, with few tokens an expert, with a norm, and if results are added up.
    pub fn calls(&self, traits: &Traits, operands: &[&OperandSpec]) -> Result<ProjectionCalls, Unsupported> {
        let problem = self.problem(operands)?;
        if problem.repeats() == 0 {
            return Ok(ProjectionCalls::independent(Vec::new()));
        }
        with_algorithm(problem, |algorithm| algorithm.calls(tuning::choose(traits), traits))
    }

    /// Fails as [`ExpertProjection::calls`] would, without building the calls.
    ///
    /// # Errors
    /// Those of [`ExpertProjection::calls`].
    pub fn check(&self, traits: &Traits, operands: &[&OperandSpec]) -> Result<(), Unsupported> {
        let problem = self.problem(operands)?;
        with_algorithm(problem, |algorithm| algorithm.check(tuning::choose(traits), traits))
    }
}

/// Applies `act` to the algorithm for a problem's number of tokens.
fn with_algorithm<T>(
    problem: ProjectionProblem<'_>,
    act: impl FnOnce(&dyn Algorithm) -> Result<T, Unsupported>,
) -> Result<T, Unsupported> {
    let tokens = problem.routing.as_ref().map_or(1, |routing| routing.tokens);
    if tokens <= MAX_GEMV_TOKENS {
        act(&Gemv(&problem))
    } else {
        act(&Grouped::new(problem, None)?)
    }
}

impl fmt::Display for ExpertProjection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(norm) = &self.norm {
            write!(f, "of rms_norm eps {:e}: ", norm.eps)?;
        }
        match self.routed {
            Routed::PerExpert => f.write_str("each ")?,
            Routed::Weighted => f.write_str("weighted ")?,
            Routed::Scored => f.write_str("weighted by scores ")?,
        }
        write!(f, "{}", self.section)
    }
}

/// Dense inputs of [`expert_reference`].
pub struct ExpertInputs<'a> {
    /// `[T, K]` or `[T·U, K]`.
    pub x: &'a [f32],
    /// `[T, U]`.
    pub experts: &'a [u32],
    /// U.
    pub used: usize,
    /// The norm's weight `[K]`.
    pub norm_weight: Option<&'a [f32]>,
    /// The routing weights `[T, U]` or the scores `[T, E]`.
    pub routing: Option<&'a [f32]>,
    /// The matrices `[E·N, K]`.
    pub parts: Vec<&'a dyn WeightRows>,
    /// N.
    pub rows: usize,
    /// The epilogue's extra inputs.
    pub extras: Vec<Values>,
}

/// CPU reference.
///
/// # Panics
/// Panics if lengths contradict each other or if the epilogue is not a valid expression.
pub fn expert_reference(projection: &ExpertProjection, inputs: &ExpertInputs<'_>) -> Values {
    let columns = inputs.parts[0].columns();
    let normed = (projection.norm).map(|norm| rms_norm::reference(inputs.x, inputs.norm_weight, norm.eps, columns));
    let mut x = normed.unwrap_or_else(|| inputs.x.to_vec());
    let weights = routing_weights(projection.routed, inputs);
    if weights.is_none() {
        x = x.chunks(columns).flat_map(|row| row.repeat(inputs.used)).collect();
    }
    let sums = projection
        .section
        .epilogue
        .inputs
        .iter()
        .zip(&inputs.parts)
        .map(|(&dtype, part)| {
            let each = expert_matmul::reference(&x, inputs.experts, *part, [inputs.rows, projection.between]);
            let sums = match &weights {
                Some(weights) => weighted(&each, weights, inputs),
                None => each,
            };
            Values::F32(sums).rounded(dtype)
        });
    let mut values: Vec<Values> = sums.collect();
    let count = values[0].len();
    values.extend(inputs.extras.iter().cloned());
    elementwise::reference(&projection.section.epilogue, &values, count)
}

/// Returns the weight of each (token, expert) pair; `None` if experts are not added up.
fn routing_weights(routed: Routed, inputs: &ExpertInputs<'_>) -> Option<Vec<f32>> {
    let given = inputs.routing?;
    if routed != Routed::Scored {
        return Some(given.to_vec());
    }
    let tokens = inputs.experts.len() / inputs.used;
    let count = given.len() / tokens.max(1);
    Some(expert_sum::reference_weights(given, inputs.experts, inputs.used, count))
}

fn weighted(each: &[f32], weights: &[f32], inputs: &ExpertInputs<'_>) -> Vec<f32> {
    let tokens = each.chunks(inputs.used * inputs.rows).zip(weights.chunks(inputs.used));
    tokens
        .flat_map(|(each, weights)| {
            (0..inputs.rows).map(move |n| {
                let parts = weights.iter().enumerate().map(|(u, w)| w * each[u * inputs.rows + n]);
                parts.sum::<f32>()
            })
        })
        .collect()
}
