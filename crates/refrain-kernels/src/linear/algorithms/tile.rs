//! Tiled GEMM without matrix cores: tiles of both operands go through shared memory, and each invocation computes a
//! register tile.

mod projection;

pub(crate) use projection::ProjectionTile;

use super::split_k::SplitK;
use super::{Algorithm, ProductCost, ProjectionCalls};
use crate::kit::iterations::{self, looped};
use crate::kit::text::{SourceBuilder, address};
use crate::linear::matmul_problem::MatmulProblem;
use crate::linear::section::WeightStorage;
use crate::tuning::{TileSize, Tuning};
use crate::{Call, DType, KernelSource, OperandSpec, Push, Traits, Unsupported};

const MATMUL: &str = "matmul";

/// Tiled product of float operands: a, b and the result.
pub(crate) struct DenseTile<'p> {
    pub problem: &'p MatmulProblem,
    pub operands: [&'p OperandSpec; 3],
}

/// The cost at which the tiled GEMM breaks even with small-M GEMV at the tuning table's maximum number of vectors.
fn cost(tuning: &Tuning, weights: WeightStorage) -> ProductCost {
    let row = tuning.gemv_kind(weights.format());
    ProductCost {
        passes: row.max_vectors.div_ceil(row.max_vectors_beside_matrix) as usize,
    }
}

impl Algorithm for DenseTile<'_> {
    fn cost(&self, tuning: &Tuning, _: &Traits) -> Option<ProductCost> {
        Some(cost(tuning, WeightStorage::Dense))
    }

    fn calls(&self, tuning: &Tuning, traits: &Traits) -> Result<ProjectionCalls, Unsupported> {
        let (size, split_k) = division(tuning, traits, self.problem);
        let call = dense(traits, &size, self.problem, self.operands, &split_k)?;
        let words = split_k.words();
        Ok(ProjectionCalls {
            workspace: (words > 0).then(|| OperandSpec::contiguous(DType::F32, &[words])),
            tickets: split_k.tickets(),
            ..ProjectionCalls::independent(vec![call])
        })
    }
}

/// Returns the tile size and the splits of K.
fn division(tuning: &Tuning, traits: &Traits, problem: &MatmulProblem) -> (TileSize, SplitK) {
    let batches = problem.batch.iter().product::<u32>() as usize;
    let tile_count = |size: &TileSize| batches * tiles(problem, size).iter().product::<usize>();
    let splits = |size: &TileSize, wanted| match batches {
        1 => SplitK::clamp_splits(traits, wanted, problem.k.div_ceil((4 * size.depth) as usize)),
        _ => 1,
    };
    let completes = |size: &TileSize| check_loops(traits, problem, size).is_ok();
    let (size, splits) = tuning
        .tile
        .size(traits, [problem.m, 1, 1], tile_count, splits, completes);
    let split_k = SplitK {
        splits,
        sums: size.tile_rows() * size.tile_columns(),
        tiles: tile_count(&size),
    };
    (size, split_k)
}

/// [`check_iterations`] for a product of two matrices.
fn check_loops(traits: &Traits, problem: &MatmulProblem, size: &TileSize) -> Result<(), Unsupported> {
    let batches = problem.batch.iter().product::<u32>().div_ceil(65_535) as usize;
    let loads = [size.tile_rows(), size.tile_columns()]
        .map(|side| looped((side * size.depth as usize).div_ceil(size.threads() as usize), 0));
    check_iterations(MATMUL, traits, size, [batches, problem.k], loads.iter().sum())
}

/// Number of tiles along the result's columns and rows.
fn tiles(problem: &MatmulProblem, size: &TileSize) -> [usize; 2] {
    [
        problem.n.div_ceil(size.tile_columns()),
        problem.m.div_ceil(size.tile_rows()),
    ]
}

fn dense(
    traits: &Traits,
    size: &TileSize,
    problem: &MatmulProblem,
    operands: [&OperandSpec; 3],
    split_k: &SplitK,
) -> Result<Call, Unsupported> {
    let [a, b, out] = operands;
    let text = SourceBuilder::new(traits, "matmul.gemm").unrolled(!is_counted(traits));
    let text = split_k
        .define(text)
        .input("a", a.dtype)
        .input("b", b.dtype)
        .output("c", out.dtype)
        .body(include_str!("tile/dense/product.glsl"))
        .body(include_str!("tile/tile.glsl"));
    let kernel = split_k
        .functions(text)
        .body(include_str!("tile/split_k.glsl"))
        .body(include_str!("tile/dense/gemm.comp"))
        .kernel(constants(
            size,
            &[
                (10, u32::from(problem.a[1] <= problem.a[0])),
                (11, u32::from(problem.b[0] <= problem.b[1])),
            ],
        ));
    let [x, y, z] = tile_groups(MATMUL, tiles(problem, size), [problem.m, problem.n])?;
    let groups = [x * split_k.splits as u32, y, z];
    check_loops(traits, problem, size)?;
    product(kernel, groups, problem, operands, split_k)
}

/// Whether the device's driver limits loop iterations. Such software drivers also take long to unroll loops.
fn is_counted(traits: &Traits) -> bool {
    iterations::max_iterations(traits).is_some()
}

/// Specialisation constants of a tile, and `others`.
fn constants(size: &TileSize, others: &[(u32, u32)]) -> Vec<(u32, u32)> {
    let [row_quads, column_quads] = size.register_tile;
    let own = [
        (0, size.threads()),
        (3, size.rows),
        (4, size.columns),
        (5, size.depth),
        (6, row_quads),
        (7, column_quads),
        (9, size.slices),
    ];
    let mut constants = [&own[..], others].concat();
    constants.sort_unstable();
    constants
}

/// Returns the workgroups of a dispatch with `tiles` tiles in x and y, which cover `m` rows and `n` columns.
fn tile_groups(op: &'static str, tiles: [usize; 2], [m, n]: [usize; 2]) -> Result<[u32; 3], Unsupported> {
    if tiles.iter().any(|&g| g > 65_535) {
        let what = format!("a result of {m} × {n} needs more tiles than a dispatch allows");
        return Err(Unsupported::Size { op, what });
    }
    Ok([tiles[0] as u32, tiles[1] as u32, 1])
}

/// Fails if the device's driver would cut off the loops of a tiled product of `batches` matrices over `k`. Loading a
/// tile of both operands takes `loads` iterations.
fn check_iterations(
    op: &'static str,
    traits: &Traits,
    size: &TileSize,
    [batches, k]: [usize; 2],
    loads: usize,
) -> Result<(), Unsupported> {
    let depth = size.depth as usize;
    let multiply = looped(depth / (4 * size.slices as usize), 0);
    let store = looped((4 * size.register_tile[0]) as usize, 0);
    let iterations = looped(batches, store + looped(k.div_ceil(depth), loads + multiply));
    iterations::check(op, traits, iterations, || format!("sums over {k} products"))
}

fn product(
    kernel: KernelSource,
    [x, y, _]: [u32; 3],
    problem: &MatmulProblem,
    [a, b, out]: [&OperandSpec; 3],
    split_k: &SplitK,
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
    push.extend(split_k.addresses(3, 0));
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
