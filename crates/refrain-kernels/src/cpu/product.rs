use std::ops::Range;

use multiversion::multiversion;
use multiversion::target::target_cfg_f;
use rayon::prelude::*;

use super::blocks::{BlockRows, Vectors};
use super::octet::{Octet, Quartet};
use super::tile;
use crate::threads::least_items;

/// Rows of a matrix that a single vector meets together: their sums hide each other's latency.
const TOGETHER: usize = 4;
/// Rows of a tile, and vectors: as many sums as there are registers, less those of their factors.
const TILE_ROWS: usize = 3;
const TILE_VECTORS: usize = 4;
/// Bytes of unpacked rows that stay in a core's own cache while all vectors meet them.
const UNPACKED: usize = 256 << 10;

/// `out[i, j] = Σ_k x[i, k] · w[rows.start + j, k]` for `x` `[m, k]` and `out` `[m, rows]`, row-major.
pub(super) fn multiply<B: BlockRows>(w: &B, columns: usize, x: &[f32], rows: Range<usize>, out: &mut [f32]) {
    let vectors = Vectors::new(x, columns, B::INTERLEAVED);
    let (m, n) = (vectors.count(), rows.len());
    // So many rows to a share that there are several shares for each thread, and each is worth handing over.
    let share = n.div_ceil(4 * rayon::current_num_threads()).clamp(1, 256);
    let share = share
        .max(least_items(m * columns))
        .next_multiple_of(TOGETHER * TILE_ROWS);
    let part = |number: usize| rows.start + number * share..rows.end.min(rows.start + (number + 1) * share);
    if m == 1 {
        let parts = out.par_chunks_mut(share).enumerate();
        return parts.for_each(|(number, out)| one(w, part(number), &vectors, out));
    }
    // A share's results lie apart in `out`.
    let parts = (0..n.div_ceil(share)).into_par_iter();
    let results: Vec<Vec<f32>> = parts
        .map(|number| {
            let rows = part(number);
            let mut results = vec![0.0; m * rows.len()];
            several(w, rows, &vectors, &mut results);
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

/// Products of some rows with one vector, `[rows]`; rows are unpacked in registers.
#[multiversion(targets("x86_64+avx2+fma"))]
fn one<B: BlockRows>(w: &B, rows: Range<usize>, vectors: &Vectors, out: &mut [f32]) {
    const FUSED: bool = target_cfg_f!(any(target_feature = "fma", target_arch = "aarch64"));
    let x = vectors.get(0);
    let mut memory = [const { Vec::new() }; TOGETHER];
    // Each of the rows that meet x together is the next of its own quarter: so many streams of memory, each
    // read from end to end, are what processors fetch ahead. Each row and sum has a name of its own, for
    // compilers keep arrays of them in memory.
    let quarter = rows.len().div_ceil(TOGETHER);
    for number in 0..quarter {
        let place = |r: usize| (r * quarter + number).min(rows.len() - 1);
        let row = |r: usize| rows.start + place(r);
        let [a, b, c, d] = &mut memory;
        let (a, b, c, d) = (
            w.row(row(0), x.len(), a),
            w.row(row(1), x.len(), b),
            w.row(row(2), x.len(), c),
            w.row(row(3), x.len(), d),
        );
        let [mut for_a, mut for_b, mut for_c, mut for_d] = [Octet::ZERO; TOGETHER];
        for (i, x) in x.iter().enumerate() {
            for_a = meet::<B, FUSED>(B::stored(a, i), x, for_a);
            for_b = meet::<B, FUSED>(B::stored(b, i), x, for_b);
            for_c = meet::<B, FUSED>(B::stored(c, i), x, for_c);
            for_d = meet::<B, FUSED>(B::stored(d, i), x, for_d);
        }
        for (r, sum) in [for_a, for_b, for_c, for_d].into_iter().enumerate() {
            out[place(r)] = sum.sum();
        }
    }
}

/// Adds the products of two blocks to a sum.
#[inline(always)]
fn meet<B: BlockRows, const FUSED: bool>(stored: B::Stored, x: &Quartet, sum: Octet) -> Octet {
    let sum = B::part::<FUSED>(stored, 0).times_plus::<FUSED>(x[0], sum);
    let sum = B::part::<FUSED>(stored, 1).times_plus::<FUSED>(x[1], sum);
    let sum = B::part::<FUSED>(stored, 2).times_plus::<FUSED>(x[2], sum);
    B::part::<FUSED>(stored, 3).times_plus::<FUSED>(x[3], sum)
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
        unpack(w, some, length, unpacked);
        by_vectors(unpacked, vectors, place, out);
    }
}

/// Rows of `length` blocks, one after another.
#[multiversion(targets("x86_64+avx2+fma"))]
fn unpack<B: BlockRows>(w: &B, rows: Range<usize>, length: usize, unpacked: &mut [Quartet]) {
    const FUSED: bool = target_cfg_f!(any(target_feature = "fma", target_arch = "aarch64"));
    let mut memory = Vec::new();
    for (number, unpacked) in rows.zip(unpacked.chunks_exact_mut(length)) {
        let row = w.row(number, length, &mut memory);
        for (b, block) in unpacked.iter_mut().enumerate() {
            let stored = B::stored(row, b);
            for (j, part) in block.iter_mut().enumerate() {
                *part = B::part::<FUSED>(stored, j);
            }
        }
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
