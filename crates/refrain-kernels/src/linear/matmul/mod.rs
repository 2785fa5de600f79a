//! Matrix products of float operands.
//!
//! `a` `[.., M, K]` · `b` `[.., K, N]` → `out` `[.., M, N]`, each f32, f16 or bf16 with any strides;
//! sums over K in f32, rounded once when stored. Batch dimensions are broadcast by the caller (stride
//! 0) and merge to at most two; an operand that keeps more apart must be made contiguous. K = 0 gives
//! zeros. NaN and infinities spread as multiplication and addition spread them.
//!
//! Where `a` (or, the product transposed, `b`) has few rows and K is the dimension along which the
//! other's elements lie together, that other is what [`crate::projection`] reads; otherwise the product
//! is tiled in shared memory.

mod reference;

pub(crate) use super::sources::multiply;
pub use super::sources::{SliceRows, StoredRows, WeightRows};
pub use reference::{reference, reference_nt};

use super::algorithms::{Algorithm, DenseTile, Gemv, ProjectionCalls, cheapest};
use super::matmul_problem::MatmulProblem;
use super::problem::{BatchStrides, ProjectionProblem, StridedMatrix, WeightPlanes};
use crate::kit::text::{address, is_wide, require_float};
use crate::tuning::{self, Tuning};
use crate::{OperandSpec, Traits, Unsupported};

const OP: &str = "matmul";

/// Calls that compute `out = a · b`; operands 0, 1 and 2, the workspace 3 and its tickets 4. None when `out` is empty.
///
/// # Errors
/// When an operand is no float, shapes do not fit, batch dimensions do not merge to two
/// ([`Unsupported::NeedsContiguous`] names the operand to copy), or a size is beyond 32-bit indices.
pub fn call(
    traits: &Traits,
    a: &OperandSpec,
    b: &OperandSpec,
    out: &OperandSpec,
) -> Result<ProjectionCalls, Unsupported> {
    call_tuned(tuning::choose(traits), traits, a, b, out)
}

/// [`call`] with a given row of the tuning table.
///
/// # Errors
/// As [`call`].
pub fn call_tuned(
    tuning: &Tuning,
    traits: &Traits,
    a: &OperandSpec,
    b: &OperandSpec,
    out: &OperandSpec,
) -> Result<ProjectionCalls, Unsupported> {
    for operand in [a, b, out] {
        require_float(OP, operand)?;
    }
    let problem = MatmulProblem::new(a, b, out)?;
    if out.layout.count() == 0 {
        return Ok(ProjectionCalls::apart(Vec::new()));
    }
    let rows_lie_together = |problem: &MatmulProblem| problem.b[0] == 1 || problem.k <= 1;
    let swapped = problem.clone().transposed();
    let most = tuning.dense.most_vectors as usize;
    let is_gemv = |problem: &MatmulProblem| problem.m <= most && rows_lie_together(problem);
    let gemv = if is_gemv(&problem) {
        Some(projection(&problem, [a, b, out])?)
    } else if is_gemv(&swapped) {
        Some(projection(&swapped, [b, a, out])?)
    } else {
        None
    };
    let gemv = gemv.as_ref().map(Gemv);
    let tile = DenseTile {
        problem: &problem,
        operands: [a, b, out],
    };
    let mut algorithms: Vec<&dyn Algorithm> = gemv.iter().map(|gemv| gemv as &dyn Algorithm).collect();
    algorithms.push(&tile);
    let algorithm = cheapest(&algorithms, tuning, traits).unwrap_or(&tile);
    algorithm.calls(tuning, traits)
}

/// Few rows of `a`, and `b` as rows of weights: each of its columns lies together.
fn projection<'a>(
    problem: &MatmulProblem,
    [a, b, out]: [&OperandSpec; 3],
) -> Result<ProjectionProblem<'a>, Unsupported> {
    let numbers = if problem.swapped { [1, 0, 2] } else { [0, 1, 2] };
    let [x, y, z] = problem.batch_strides;
    let wide = problem.k.is_multiple_of(16 / b.dtype.size()) && is_wide(b, &y) && is_wide(b, &problem.b[1..]);
    let planes = WeightPlanes::Dense {
        address: address(OP, numbers[1], b)?,
        dtype: b.dtype,
        stride: problem.b[1],
        wide,
    };
    let rows = StridedMatrix::of(numbers[0], a, problem.a, &x)?;
    let results = StridedMatrix::of(numbers[2], out, problem.c, &z)?;
    let mut product = ProjectionProblem::product(problem.m, problem.k, rows, (planes, problem.n), results);
    let extents = problem.batch.map(|n| n as usize);
    if extents != [1, 1] {
        product.batch = Some(BatchStrides {
            extents,
            strides: problem.batch_strides,
        });
    }
    Ok(product)
}
