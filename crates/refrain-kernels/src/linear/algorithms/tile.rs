//! Tiled products of any number of tokens: tiles of both sides go through shared memory, each invocation computes 4 × 4
//! elements.

mod projection;

pub(crate) use projection::ProjectionTile;

use super::parts::SumParts;
use super::{Algorithm, ProductCost, ProjectionCalls, gemv_tuning};
use crate::kit::iterations::{self, looped};
use crate::kit::text::{Text, address};
use crate::linear::matmul_problem::MatmulProblem;
use crate::linear::section::WeightStorage;
use crate::linear::sources::{QuantMatrix, quant_run};
use crate::tuning::{Tile, Tuning};
use crate::{Call, DType, KernelText, OperandSpec, Push, Traits, Unsupported};

const MATMUL: &str = "matmul";
const QUANTISED: &str = "quantised";

/// Floats times floats: a, b and the result.
pub(crate) struct DenseTile<'p> {
    pub problem: &'p MatmulProblem,
    pub operands: [&'p OperandSpec; 3],
}

/// Rows of floats times quantised rows.
pub(crate) struct QuantisedTile<'p> {
    pub weights: &'p QuantMatrix<'p>,
    pub x: &'p OperandSpec,
    pub out: &'p OperandSpec,
    pub tokens: usize,
    /// Elements of x between tokens, and within one.
    pub x_strides: [usize; 2],
    /// The same of the result.
    pub out_strides: [usize; 2],
}

/// It breaks even with GEMV at the most vectors that the tuning table gives that.
fn cost(tuning: &Tuning, weights: WeightStorage) -> ProductCost {
    let row = gemv_tuning(tuning, weights);
    ProductCost {
        passes: row.most_vectors.div_ceil(row.most_beside_matrix) as usize,
    }
}

impl Algorithm for DenseTile<'_> {
    fn cost(&self, tuning: &Tuning, _: &Traits) -> Option<ProductCost> {
        Some(cost(tuning, WeightStorage::Dense))
    }

    fn calls(&self, tuning: &Tuning, traits: &Traits) -> Result<ProjectionCalls, Unsupported> {
        let shared = sum_parts(tuning, traits, self.problem);
        let call = dense(tuning, traits, self.problem, self.operands, &shared)?;
        let words = shared.words();
        Ok(ProjectionCalls {
            workspace: (words > 0).then(|| OperandSpec::contiguous(DType::F32, &[words])),
            tickets: shared.tickets(),
            ..ProjectionCalls::apart(vec![call])
        })
    }
}

impl Algorithm for QuantisedTile<'_> {
    fn cost(&self, tuning: &Tuning, _: &Traits) -> Option<ProductCost> {
        Some(cost(tuning, WeightStorage::Quantised(self.weights.format)))
    }

    fn calls(&self, tuning: &Tuning, traits: &Traits) -> Result<ProjectionCalls, Unsupported> {
        let QuantisedTile {
            weights,
            x,
            out,
            tokens,
            ..
        } = *self;
        let [x_stride, x_within] = self.x_strides;
        let [out_stride, out_within] = self.out_strides;
        let out_number = 1 + weights.planes();
        if x_within != 1 && weights.columns > 0 {
            return Err(Unsupported::NeedsContiguous {
                op: QUANTISED,
                operand: 0,
            });
        }
        let text = Text::new(traits, "quantised.gemm")
            .flag("COUNTED", iterations::most(traits).is_some())
            .input("x", x.dtype)
            .output("c", out.dtype);
        let (kernel, groups) = quantised(tuning, traits, weights.declare(text), weights, tokens)?;
        let mut push = vec![address(QUANTISED, 0, x)?];
        push.extend(weights.addresses());
        push.push(address(QUANTISED, out_number, out)?);
        let sizes = [tokens, weights.rows, weights.columns, x_stride, out_stride, out_within];
        push.extend(sizes.map(|v| Push::U32(v as u32)));
        Ok(ProjectionCalls::apart(vec![Call { kernel, groups, push }]))
    }
}

/// How workgroups share the sums of a product of two matrices whose tiles are too few.
fn sum_parts(tuning: &Tuning, traits: &Traits, problem: &MatmulProblem) -> SumParts {
    let Tile {
        rows,
        columns,
        depth,
        most_parts,
        enough_groups,
    } = tuning.tile;
    let results = problem.m.div_ceil(4 * rows as usize) * problem.n.div_ceil(4 * columns as usize);
    let wanted = (enough_groups.on(traits) / results.max(1)).min(most_parts as usize);
    let alone = problem.batch.iter().product::<u32>() > 1;
    let wanted = if alone { 1 } else { wanted as u32 };
    SumParts {
        count: SumParts::most(traits, wanted, problem.k.div_ceil((4 * depth) as usize)),
        sums: (16 * rows * columns) as usize,
        results,
    }
}

fn dense(
    tuning: &Tuning,
    traits: &Traits,
    problem: &MatmulProblem,
    operands: [&OperandSpec; 3],
    shared: &SumParts,
) -> Result<Call, Unsupported> {
    let [a, b, out] = operands;
    let tile = tuning.tile;
    let text = Text::new(traits, "matmul.gemm");
    let text = shared
        .define(text)
        .flag("COUNTED", iterations::most(traits).is_some())
        .input("a", a.dtype)
        .input("b", b.dtype)
        .output("c", out.dtype)
        .body(include_str!("tile/dense/product.glsl"))
        .body(include_str!("tile/tile.glsl"));
    let kernel = shared
        .joined(text)
        .body(include_str!("tile/dense/gemm.comp"))
        .kernel(vec![
            (0, tile.rows * tile.columns),
            (3, tile.rows),
            (4, tile.columns),
            (5, tile.depth),
            (6, u32::from(problem.a[1] <= problem.a[0])),
            (7, u32::from(problem.b[0] <= problem.b[1])),
        ]);
    let [x, y, z] = tile_groups(MATMUL, tuning, problem.m, problem.n)?;
    let groups = [x * shared.count as u32, y, z];
    let batches = problem.batch.iter().product::<u32>().div_ceil(65_535) as usize;
    let elements = [tile.rows, tile.columns].map(|n| 4 * n * tile.depth);
    check_iterations(MATMUL, traits, tuning.tile, [batches, problem.k], elements)?;
    product(kernel, groups, problem, operands, shared)
}

/// Workgroups in x and y that cover `m` rows and `n` columns by tiles.
fn tile_groups(op: &'static str, tuning: &Tuning, m: usize, n: usize) -> Result<[u32; 3], Unsupported> {
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
fn check_iterations(
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
    shared: &SumParts,
) -> Result<Call, Unsupported> {
    let numbers = if problem.swapped { [1, 0, 2] } else { [0, 1, 2] };
    let [outer, inner] = problem.batch;
    let batches = outer * inner;
    let sizes = [problem.m, problem.n, problem.k];
    let strides = [problem.a, problem.b, problem.c];
    let mut push = vec![
        address(MATMUL, numbers[0], a)?,
        address(MATMUL, numbers[1], b)?,
        address(MATMUL, numbers[2], out)?,
    ];
    push.extend(shared.addresses(3, 0));
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

fn quantised(
    tuning: &Tuning,
    traits: &Traits,
    text: Text<'_>,
    weights: &QuantMatrix<'_>,
    tokens: usize,
) -> Result<(KernelText, [u32; 3]), Unsupported> {
    let tile = tuning.tile;
    let kernel = text
        .body(include_str!("tile/quantised/product.glsl"))
        .body(include_str!("tile/tile.glsl"))
        .body(include_str!("tile/quantised/gemm.comp"))
        .kernel(vec![
            (0, tile.rows * tile.columns),
            (3, tile.rows),
            (4, tile.columns),
            (5, tile.depth),
            (8, weights.format.group),
        ]);
    let groups = tile_groups(QUANTISED, tuning, tokens, weights.rows)?;
    let elements = [
        4 * tile.rows * tile.depth,
        4 * tile.columns * tile.depth / quant_run(weights.format) as u32,
    ];
    check_iterations(QUANTISED, traits, tile, [1, weights.columns], elements)?;
    Ok((kernel, groups))
}
