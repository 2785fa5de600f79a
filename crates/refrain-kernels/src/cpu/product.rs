use std::ops::Range;

use multiversion::multiversion;
use multiversion::target::target_cfg_f;
use rayon::prelude::*;

use super::blocks::{BlockRows, Vectors};
use super::f32x8::{F32x8, F32x32};
use super::tile;
use crate::kit::threads::min_items;

/// Rows and vectors per register tile. The sums and their factors fill the vector registers.
const TILE_ROWS: usize = 3;
const TILE_VECTORS: usize = 4;
/// Maximum number of vectors that are faster one by one than with unpacked rows.
const MAX_DIRECT_VECTORS: usize = 3;
/// Shares of rows are multiples of this: whole tiles, and whole groups of four rows for one vector.
const SHARE_ROWS: usize = 4 * TILE_ROWS;
/// Bytes of unpacked rows that stay in a core's private cache while all vectors are multiplied with them.
const UNPACKED_BYTES: usize = 256 << 10;

/// Computes `out[i, j] = Σ_k x[i, k] · w[rows.start + j, k]` for row-major `x` `[m, k]` and `out` `[m, rows]`.
pub(super) fn multiply<B: BlockRows>(w: &B, columns: usize, x: &[f32], rows: Range<usize>, out: &mut [f32]) {
    let m = x.len() / columns;
    if m <= MAX_DIRECT_VECTORS {
        let vectors: Vec<B::Vector> = x.chunks_exact(columns).map(B::vector).collect();
        for_each_share(rows, [m, columns], out, &|rows, out| {
            for (x, out) in vectors.iter().zip(out.chunks_exact_mut(rows.len())) {
                w.multiply_one(rows.clone(), x, out);
            }
        });
    } else {
        let vectors = Vectors::new(x, columns, B::INTERLEAVED);
        for_each_share(rows, [m, columns], out, &|rows, out| {
            multiply_many(w, rows, &vectors, out)
        });
    }
}

/// Splits the rows among all threads; `compute` writes the products of its rows, `[m, rows]`. It is a trait object,
/// since a generic parameter would compile all parallel loops again for each kind of rows.
fn for_each_share(
    rows: Range<usize>,
    [m, columns]: [usize; 2],
    out: &mut [f32],
    compute: &(dyn Fn(Range<usize>, &mut [f32]) + Sync),
) {
    let n = rows.len();
    // A share is small enough for several shares per thread, and large enough to be worth scheduling.
    let share = n.div_ceil(4 * rayon::current_num_threads()).clamp(1, 256);
    let share = share.max(min_items(m * columns)).next_multiple_of(SHARE_ROWS);
    let part = |number: usize| rows.start + number * share..rows.end.min(rows.start + (number + 1) * share);
    if m == 1 {
        // Threads take the next share when they are done.
        let parts = out.par_chunks_mut(share).enumerate().with_max_len(1);
        return parts.for_each(|(number, out)| compute(part(number), out));
    }
    // A share's results are not contiguous in `out`.
    let parts = (0..n.div_ceil(share)).into_par_iter();
    let results: Vec<Vec<f32>> = parts
        .map(|number| {
            let rows = part(number);
            let mut results = vec![0.0; m * rows.len()];
            compute(rows, &mut results);
            results
        })
        .collect();
    let min_len = min_items(n);
    out.par_chunks_mut(n)
        .with_min_len(min_len)
        .enumerate()
        .for_each(|(i, out)| {
            for (out, results) in out.chunks_mut(share).zip(&results) {
                out.copy_from_slice(&results[i * out.len()..][..out.len()]);
            }
        });
}

/// Dot products of some rows with all vectors, `[m, rows]`. Each row is unpacked once.
fn multiply_many<B: BlockRows>(w: &B, rows: Range<usize>, vectors: &Vectors, out: &mut [f32]) {
    let length = vectors.length;
    let fitting = UNPACKED_BYTES / (length * size_of::<F32x32>()).max(1);
    let fitting = (fitting / TILE_ROWS).max(2) * TILE_ROWS;
    let mut unpacked = vec![[F32x8::ZERO; 4]; fitting.min(rows.len()) * length];
    for first in rows.clone().step_by(fitting) {
        let some = first..rows.end.min(first + fitting);
        let unpacked = &mut unpacked[..some.len() * length];
        let offset = OutputOffset {
            first: first - rows.start,
            stride: rows.len(),
        };
        w.unpack(some, length, unpacked);
        multiply_tiles(unpacked, vectors, offset, out);
    }
}

/// Position of the results of unpacked rows: the offset in each vector's results, and the stride between vectors.
#[derive(Clone, Copy)]
struct OutputOffset {
    first: usize,
    stride: usize,
}

/// Multiplies all unpacked rows with all vectors.
#[multiversion(targets("x86_64+avx2+fma"))]
fn multiply_tiles(unpacked: &[F32x32], vectors: &Vectors, offset: OutputOffset, out: &mut [f32]) {
    const FUSED: bool = target_cfg_f!(any(target_feature = "fma", target_arch = "aarch64"));
    let whole = vectors.count() / TILE_VECTORS * TILE_VECTORS;
    for v in (0..whole).step_by(TILE_VECTORS) {
        multiply_vectors::<TILE_VECTORS, FUSED>(unpacked, vectors, v, offset, out);
    }
    for v in whole..vectors.count() {
        multiply_vectors::<1, FUSED>(unpacked, vectors, v, offset, out);
    }
}

/// Multiplies all unpacked rows with `VECTORS` vectors from `v` on.
#[inline(always)]
fn multiply_vectors<const VECTORS: usize, const FUSED: bool>(
    unpacked: &[F32x32],
    vectors: &Vectors,
    v: usize,
    offset: OutputOffset,
    out: &mut [f32],
) {
    let x: [&[F32x32]; VECTORS] = std::array::from_fn(|i| vectors.get(v + i));
    let mut column = offset.first;
    let mut store = |sums: &[[F32x8; VECTORS]]| {
        for sums in sums {
            for (i, sum) in sums.iter().enumerate() {
                out[(v + i) * offset.stride + column] = sum.sum();
            }
            column += 1;
        }
    };
    let length = vectors.length;
    let tiles = unpacked.chunks_exact(TILE_ROWS * length);
    let rest = tiles.remainder();
    for rows in tiles {
        let rows: [&[F32x32]; TILE_ROWS] = std::array::from_fn(|r| &rows[r * length..][..length]);
        store(&tile::multiply::<TILE_ROWS, VECTORS, FUSED>(rows, x));
    }
    for row in rest.chunks_exact(length) {
        store(&tile::multiply::<1, VECTORS, FUSED>([row], x));
    }
}
