//! Matrix products of float operands.
//!
//! `a` `[.., M, K]` · `b` `[.., K, N]` → `out` `[.., M, N]`, each f32, f16 or bf16 with any strides. Accumulation is in
//! f32, rounded once when stored. The caller broadcasts batch dimensions (stride 0). They must merge to at most two;
//! otherwise the operand must be made contiguous. K = 0 gives zeros. NaN and infinities propagate as in IEEE
//! arithmetic.
//!
//! If `a` has few rows and `b` is contiguous along K, small-M GEMV reads `b` as weights (also transposed, with `a` and
//! `b` swapped). Otherwise the product is a tiled GEMM in shared memory.

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

/// Returns the calls that compute `out = a · b`; none if `out` is empty. Operands: a 0, b 1, out 2, the workspace 3 and
/// its tickets 4.
///
/// # Errors
/// Fails if an operand is not a float, if shapes do not match, if batch dimensions do not merge to two
/// ([`Unsupported::NeedsContiguous`] names the operand to copy), or if a size exceeds 32-bit indices.
pub fn call(
    traits: &Traits,
    a: &OperandSpec,
    b: &OperandSpec,
    out: &OperandSpec,
) -> Result<ProjectionCalls, Unsupported> {
    call_tuned(tuning::choose(traits), traits, a, b, out)
}

/// As [`call`], with a given row of the tuning table.
///
/// # Errors
/// Those of [`call`].
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
        return Ok(ProjectionCalls::independent(Vec::new()));
    }
    let contiguous_along_k = |problem: &MatmulProblem| problem.b[0] == 1 || problem.k <= 1;
    let swapped = problem.clone().transposed();
    let max_vectors = tuning.dense.max_vectors as usize;
    let is_gemv = |problem: &MatmulProblem| problem.m <= max_vectors && contiguous_along_k(problem);
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

/// The product as a projection of the rows of `a`, with the columns of `b` as rows of weights.
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
