use std::ops::Range;

use multiversion::multiversion;
use multiversion::target::target_cfg_f;
use rayon::prelude::*;

use super::blocks::{BlockRows, Vectors};
use super::octet::{Octet, Quartet};
use super::tile;
use crate::kit::threads::least_items;

/// Rows of a tile, and vectors: as many sums as there are registers, less those of their factors.
const TILE_ROWS: usize = 3;
const TILE_VECTORS: usize = 4;
/// Vectors of which each by itself meets rows as fast as all meet unpacked rows.
const FEW: usize = 3;
/// Shares of rows are multiples of this: whole tiles, and whole fours for one vector.
const SHARE_ROWS: usize = 4 * TILE_ROWS;
/// Bytes of unpacked rows that stay in a core's own cache while all vectors meet them.
const UNPACKED: usize = 256 << 10;

/// `out[i, j] = Σ_k x[i, k] · w[rows.start + j, k]` for `x` `[m, k]` and `out` `[m, rows]`, row-major.
pub(super) fn multiply<B: BlockRows>(w: &B, columns: usize, x: &[f32], rows: Range<usize>, out: &mut [f32]) {
    let m = x.len() / columns;
    if m <= FEW {
        let vectors: Vec<B::Vector> = x.chunks_exact(columns).map(B::vector).collect();
        in_shares(rows, [m, columns], out, &|rows, out| {
            for (x, out) in vectors.iter().zip(out.chunks_exact_mut(rows.len())) {
                w.one(rows.clone(), x, out);
            }
        });
    } else {
        let vectors = Vectors::new(x, columns, B::INTERLEAVED);
        in_shares(rows, [m, columns], out, &|rows, out| several(w, rows, &vectors, out));
    }
}

/// Lets all threads take shares of the rows; `compute` writes the products of its rows, `[m, rows]`. It is not a type
/// of its own, for that would build all parallel loops again for each kind of rows.
fn in_shares(
    rows: Range<usize>,
    [m, columns]: [usize; 2],
    out: &mut [f32],
    compute: &(dyn Fn(Range<usize>, &mut [f32]) + Sync),
) {
    let n = rows.len();
    // So many rows to a share that there are several shares for each thread, and each is worth handing over.
    let share = n.div_ceil(4 * rayon::current_num_threads()).clamp(1, 256);
    let share = share.max(least_items(m * columns)).next_multiple_of(SHARE_ROWS);
    let part = |number: usize| rows.start + number * share..rows.end.min(rows.start + (number + 1) * share);
    if m == 1 {
        // Whoever is done takes the next share.
        let parts = out.par_chunks_mut(share).enumerate().with_max_len(1);
        return parts.for_each(|(number, out)| compute(part(number), out));
    }
    // A share's results lie apart in `out`.
    let parts = (0..n.div_ceil(share)).into_par_iter();
    let results: Vec<Vec<f32>> = parts
        .map(|number| {
            let rows = part(number);
            let mut results = vec![0.0; m * rows.len()];
            compute(rows, &mut results);
            results
        })
        .collect();
    let least = least_items(n);
    out.par_chunks_mut(n)
        .with_min_len(least)
        .enumerate()
        .for_each(|(i, out)| {
            for (out, results) in out.chunks_mut(share).zip(&results) {
                out.copy_from_slice(&results[i * out.len()..][..out.len()]);
            }
        });
}

/// Products of some rows with all vectors, `[m, rows]`. Each row is unpacked once.
fn several<B: BlockRows>(w: &B, rows: Range<usize>, vectors: &Vectors, out: &mut [f32]) {
    let length = vectors.length;
    let fitting = UNPACKED / (length * size_of::<Quartet>()).max(1);
    let fitting = (fitting / TILE_ROWS).max(2) * TILE_ROWS;
    let mut unpacked = vec![[Octet::ZERO; 4]; fitting.min(rows.len()) * length];
    for first in rows.clone().step_by(fitting) {
        let some = first..rows.end.min(first + fitting);
        let unpacked = &mut unpacked[..some.len() * length];
        let place = ResultPlace {
            first: first - rows.start,
            stride: rows.len(),
        };
        w.unpack(some, length, unpacked);
        by_vectors(unpacked, vectors, place, out);
    }
}

/// Where the results of unpacked rows go: the first of them in each vector's results, and how many those are.
#[derive(Clone, Copy)]
struct ResultPlace {
    first: usize,
    stride: usize,
}

/// All unpacked rows by all vectors.
#[multiversion(targets("x86_64+avx2+fma"))]
fn by_vectors(unpacked: &[Quartet], vectors: &Vectors, place: ResultPlace, out: &mut [f32]) {
    const FUSED: bool = target_cfg_f!(any(target_feature = "fma", target_arch = "aarch64"));
    let whole = vectors.count() / TILE_VECTORS * TILE_VECTORS;
    for v in (0..whole).step_by(TILE_VECTORS) {
        by_some::<TILE_VECTORS, FUSED>(unpacked, vectors, v, place, out);
    }
    for v in whole..vectors.count() {
        by_some::<1, FUSED>(unpacked, vectors, v, place, out);
    }
}

/// All unpacked rows by the vectors from `v` on.
#[inline(always)]
fn by_some<const VECTORS: usize, const FUSED: bool>(
    unpacked: &[Quartet],
    vectors: &Vectors,
    v: usize,
    place: ResultPlace,
    out: &mut [f32],
) {
    let x: [&[Quartet]; VECTORS] = std::array::from_fn(|i| vectors.get(v + i));
    let mut column = place.first;
    let mut store = |sums: &[[Octet; VECTORS]]| {
        for sums in sums {
            for (i, sum) in sums.iter().enumerate() {
                out[(v + i) * place.stride + column] = sum.sum();
            }
            column += 1;
        }
    };
    let length = vectors.length;
    let tiles = unpacked.chunks_exact(TILE_ROWS * length);
    let rest = tiles.remainder();
    for rows in tiles {
        let rows: [&[Quartet]; TILE_ROWS] = std::array::from_fn(|r| &rows[r * length..][..length]);
        store(&tile::multiply::<TILE_ROWS, VECTORS, FUSED>(rows, x));
    }
    for row in rest.chunks_exact(length) {
        store(&tile::multiply::<1, VECTORS, FUSED>([row], x));
    }
}
