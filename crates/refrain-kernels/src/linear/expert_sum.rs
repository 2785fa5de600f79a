//! Weighted sum over a token's experts: `out[t, n] = Σ_u weights[t, u] · x[t, u, n]`.
//!
//! `x` `[T, U, N]`, dense, with N a multiple of four; `weights` `[T, U]`, or the scores `[T, E]` of all experts and the
//! token's `experts` `[T, U]` u32, dense, whose softmax over the token's experts is the weights; `out` `[T, N]`, dense. All
//! but the experts are f32. Scores of experts out of range are those of the last.

use rayon::prelude::*;

use crate::kit::iterations;
use crate::kit::text::{SourceBuilder, address, grid, is_wide, require_contiguous, require_dtype, require_shape};
use crate::{Call, DType, OperandSpec, Push, Traits, Unsupported};

const OP: &str = "expert_sum";

/// Returns the call. Operands: x 0, weights or scores 1, the experts if there are scores, and out last.
///
/// # Errors
/// Fails if dtypes or shapes do not match, or if an operand must be copied first ([`Unsupported::NeedsContiguous`]).
pub fn call(
    traits: &Traits,
    [x, weights, out]: [&OperandSpec; 3],
    experts: Option<&OperandSpec>,
) -> Result<Call, Unsupported> {
    let &[tokens, used, columns] = &x.layout.shape[..] else {
        let what = format!("x has shape {:?}, expected [T, U, N]", x.layout.shape);
        return Err(Unsupported::Size { op: OP, what });
    };
    if !columns.is_multiple_of(4) {
        let what = format!("{columns} columns are not a multiple of four");
        return Err(Unsupported::Size { op: OP, what });
    }
    [x, weights, out]
        .into_iter()
        .try_for_each(|operand| require_dtype(OP, operand, DType::F32))?;
    let scored = weights.layout.shape.get(1).copied().unwrap_or(0);
    let width = if experts.is_some() { scored.max(1) } else { used };
    require_shape(OP, "the weights", weights, &[tokens, width])?;
    if let Some(experts) = experts {
        require_dtype(OP, experts, DType::U32)?;
        require_shape(OP, "the experts", experts, &[tokens, used])?;
        require_contiguous(OP, experts, 2)?;
    }
    require_shape(OP, "the result", out, &[tokens, columns])?;
    require_contiguous(OP, x, 0)?;
    require_contiguous(OP, out, 2 + usize::from(experts.is_some()))?;
    iterations::check(OP, traits, iterations::looped(used, 0), || {
        format!("{used} experts per token")
    })?;
    let mut push = Vec::new();
    for (number, operand) in [x, weights].into_iter().chain(experts).chain([out]).enumerate() {
        push.push(address(OP, number, operand)?);
    }
    let strides = [weights.layout.strides[0], weights.layout.strides[1]];
    let numbers = [tokens, used, columns / 4, width].into_iter().chain(strides);
    push.extend(numbers.map(|number| Push::U32(number as u32)));
    let workgroup = traits.workgroup(256);
    let text = SourceBuilder::new(traits, OP)
        .input("x", x.dtype)
        .runs("x", x.dtype, 4, is_wide(x, &[]))
        .input("weights", weights.dtype);
    let text = match experts {
        Some(experts) => text.input("experts", experts.dtype).flag("SCORES", true),
        None => text,
    };
    let kernel = text
        .output("y", out.dtype)
        .store_vec4("y", out.dtype, is_wide(out, &[]))
        .body(include_str!("expert_sum.comp"))
        .kernel(vec![(0, workgroup)]);
    Ok(Call {
        kernel,
        groups: grid(OP, (tokens * (columns / 4)).div_ceil(workgroup as usize))?,
        push,
    })
}

/// The weights `[T, U]` of each token's `used` experts: the softmax of their scores, of which there are `count` a token.
pub fn reference_weights(scores: &[f32], experts: &[u32], used: usize, count: usize) -> Vec<f32> {
    let of_token = |(experts, scores): (&[u32], &[f32])| {
        let scores: Vec<f32> = experts.iter().map(|&e| scores[(e as usize).min(count - 1)]).collect();
        let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let powers: Vec<f32> = scores.iter().map(|s| (s - max).exp()).collect();
        let total: f32 = powers.iter().sum();
        powers.into_iter().map(move |p| p / total).collect::<Vec<f32>>()
    };
    let tokens = experts.chunks(used.max(1)).zip(scores.chunks(count.max(1)));
    tokens.flat_map(of_token).collect()
}

/// CPU reference for `used` experts per token.
///
/// # Panics
/// Panics if the length of x does not match the weights and columns.
pub fn reference(x: &[f32], weights: &[f32], used: usize, columns: usize) -> Vec<f32> {
    let mut out = vec![0.0; weights.len() / used.max(1) * columns];
    let tokens = out
        .par_chunks_mut(columns.max(1))
        .zip(x.par_chunks((used * columns).max(1)));
    tokens
        .zip(weights.par_chunks(used.max(1)))
        .for_each(|((out, x), weights)| {
            for (given, weight) in x.chunks(columns).zip(weights) {
                out.iter_mut().zip(given).for_each(|(sum, x)| *sum += weight * x);
            }
        });
    out
}
