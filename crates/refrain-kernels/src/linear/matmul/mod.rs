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

mod problem;
mod reference;
mod rows;

pub(crate) use reference::multiply;
pub use reference::{reference, reference_nt};
pub use rows::{SliceRows, StoredRows, WeightRows};

use crate::kit::iterations::{self, looped};
use crate::kit::text::{Text, address, is_wide, require_float};
use crate::projection;
use crate::tuning::{self, Tile, Tuning};
use crate::{Call, KernelText, OperandSpec, Push, Traits, Unsupported};
use problem::MatmulProblem;

const OP: &str = "matmul";

/// Calls that compute `out = a · b`; operands 0, 1 and 2. None when `out` is empty.
///
/// # Errors
/// When an operand is no float, shapes do not fit, batch dimensions do not merge to two
/// ([`Unsupported::NeedsContiguous`] names the operand to copy), or a size is beyond 32-bit indices.
pub fn call(traits: &Traits, a: &OperandSpec, b: &OperandSpec, out: &OperandSpec) -> Result<Vec<Call>, Unsupported> {
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
) -> Result<Vec<Call>, Unsupported> {
    for operand in [a, b, out] {
        require_float(OP, operand)?;
    }
    let problem = MatmulProblem::new(a, b, out)?;
    if out.layout.count() == 0 {
        return Ok(Vec::new());
    }
    let is_gemv = |problem: &MatmulProblem| {
        let rows_lie_together = problem.b[0] == 1 || problem.k <= 1;
        problem.m <= tuning.dense.most_vectors as usize && rows_lie_together
    };
    if is_gemv(&problem) {
        return projection(&problem, [a, b, out])?.calls(tuning, traits);
    }
    let problem = problem.transposed();
    if is_gemv(&problem) {
        return projection(&problem, [b, a, out])?.calls(tuning, traits);
    }
    let problem = problem.transposed();
    Ok(vec![gemm(tuning, traits, &problem, [a, b, out])?])
}

/// Few rows of `a`, and `b` as rows of weights: each of its columns lies together.
fn projection<'a>(
    problem: &MatmulProblem,
    [a, b, out]: [&OperandSpec; 3],
) -> Result<projection::ProjectionProblem<'a>, Unsupported> {
    let numbers = if problem.swapped { [1, 0, 2] } else { [0, 1, 2] };
    let [x, y, z] = problem.batch_strides;
    let wide = problem.k.is_multiple_of(16 / b.dtype.size()) && is_wide(b, &y) && is_wide(b, &problem.b[1..]);
    let planes = projection::WeightPlanes::Dense {
        address: address(OP, numbers[1], b)?,
        dtype: b.dtype,
        stride: problem.b[1],
        wide,
    };
    let rows = projection::StridedMatrix::of(numbers[0], a, problem.a, &x)?;
    let results = projection::StridedMatrix::of(numbers[2], out, problem.c, &z)?;
    let mut product = projection::ProjectionProblem::product(problem.m, problem.k, rows, (planes, problem.n), results);
    let extents = problem.batch.map(|n| n as usize);
    if extents != [1, 1] {
        product.batch = Some(projection::BatchStrides {
            extents,
            strides: problem.batch_strides,
        });
    }
    Ok(product)
}

fn gemm(
    tuning: &Tuning,
    traits: &Traits,
    problem: &MatmulProblem,
    operands: [&OperandSpec; 3],
) -> Result<Call, Unsupported> {
    let [a, b, out] = operands;
    let tile = tuning.tile;
    let kernel = Text::new(traits, "matmul.gemm")
        .flag("COUNTED", iterations::most(traits).is_some())
        .input("a", a.dtype)
        .input("b", b.dtype)
        .output("c", out.dtype)
        .body(include_str!("product.glsl"))
        .body(include_str!("tile.glsl"))
        .body(include_str!("gemm.comp"))
        .kernel(vec![
            (0, tile.rows * tile.columns),
            (3, tile.rows),
            (4, tile.columns),
            (5, tile.depth),
            (6, u32::from(problem.a[1] <= problem.a[0])),
            (7, u32::from(problem.b[0] <= problem.b[1])),
        ]);
    let groups = tile_groups(OP, tuning, problem.m, problem.n)?;
    let batches = problem.batch.iter().product::<u32>().div_ceil(65_535) as usize;
    let elements = [tile.rows, tile.columns].map(|n| 4 * n * tile.depth);
    check_iterations(OP, traits, tuning.tile, [batches, problem.k], elements)?;
    product(kernel, groups, problem, operands)
}

/// Workgroups in x and y that cover `m` rows and `n` columns by tiles.
pub(crate) fn tile_groups(op: &'static str, tuning: &Tuning, m: usize, n: usize) -> Result<[u32; 3], Unsupported> {
    let groups = [
        n.div_ceil(4 * tuning.tile.columns as usize),
        m.div_ceil(4 * tuning.tile.rows as usize),
    ];
    if groups.iter().any(|&g| g > 65_535) {
        let what = format!("a result of {m} × {n} needs more tiles than a dispatch may have");
        return Err(Unsupported::Size { op, what });
    }
    Ok([groups[0] as u32, groups[1] as u32, 1])
}

/// Fails where the device's driver would end the loops of a tiled product of `batches` matrices over `k`,
/// which loads so many `elements` of each side of a tile one by one.
pub(crate) fn check_iterations(
    op: &'static str,
    traits: &Traits,
    tile: Tile,
    [batches, k]: [usize; 2],
    elements: [u32; 2],
) -> Result<(), Unsupported> {
    let load = |elements: u32| looped(elements.div_ceil(tile.rows * tile.columns) as usize, 0);
    let multiply = looped(tile.depth as usize / 4, 0);
    let step = elements.map(load).iter().sum::<usize>() + multiply;
    let iterations = looped(batches, looped(k.div_ceil(tile.depth as usize), step));
    iterations::check(op, traits, iterations, || format!("sums over {k} products"))
}

fn product(
    kernel: KernelText,
    [x, y, _]: [u32; 3],
    problem: &MatmulProblem,
    [a, b, out]: [&OperandSpec; 3],
) -> Result<Call, Unsupported> {
    let numbers = if problem.swapped { [1, 0, 2] } else { [0, 1, 2] };
    let [outer, inner] = problem.batch;
    let batches = outer * inner;
    let sizes = [problem.m, problem.n, problem.k];
    let strides = [problem.a, problem.b, problem.c];
    let mut push = vec![
        address(OP, numbers[0], a)?,
        address(OP, numbers[1], b)?,
        address(OP, numbers[2], out)?,
    ];
    let numbers = sizes
        .into_iter()
        .chain(strides.into_iter().flatten())
        .chain([batches as usize, inner as usize])
        .chain(problem.batch_strides.into_iter().flatten());
    push.extend(numbers.map(|v| Push::U32(v as u32)));
    Ok(Call {
        kernel,
        groups: [x, y, batches.min(65_535)],
        push,
    })
}
