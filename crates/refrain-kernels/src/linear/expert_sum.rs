//! Weighted sum over a token's experts: `out[t, n] = Σ_u weights[t, u] · x[t, u, n]`.
//!
//! All operands are f32: `x` `[T, U, N]`, dense, with N a multiple of four; `weights` `[T, U]`; `out` `[T, N]`, dense.

use rayon::prelude::*;

use crate::kit::iterations;
use crate::kit::text::{SourceBuilder, address, grid, is_wide, require_contiguous, require_dtype, require_shape};
use crate::{Call, DType, OperandSpec, Push, Traits, Unsupported};

const OP: &str = "expert_sum";

/// Returns the call. Operands: x 0, weights 1, out 2.
///
/// # Errors
/// Fails if dtypes or shapes do not match, or if an operand must be copied first ([`Unsupported::NeedsContiguous`]).
pub fn call(traits: &Traits, [x, weights, out]: [&OperandSpec; 3]) -> Result<Call, Unsupported> {
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
    require_shape(OP, "the weights", weights, &[tokens, used])?;
    require_shape(OP, "the result", out, &[tokens, columns])?;
    require_contiguous(OP, x, 0)?;
    require_contiguous(OP, out, 2)?;
    iterations::check(OP, traits, iterations::looped(used, 0), || {
        format!("{used} experts per token")
    })?;
    let mut push = Vec::new();
    for (number, operand) in [x, weights, out].into_iter().enumerate() {
        push.push(address(OP, number, operand)?);
    }
    let strides = [weights.layout.strides[0], weights.layout.strides[1]];
    let numbers = [tokens, used, columns / 4].into_iter().chain(strides);
    push.extend(numbers.map(|number| Push::U32(number as u32)));
    let workgroup = traits.workgroup(256);
    let kernel = SourceBuilder::new(traits, OP)
        .input("x", x.dtype)
        .runs("x", x.dtype, 4, is_wide(x, &[]))
        .input("weights", weights.dtype)
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
