use super::f32x8::{F32x8, F32x32};

/// Register tile: products of `ROWS` rows of weights with `VECTORS` vectors of equal length. Returns sums per lane,
/// which the caller adds up. `ROWS` and `VECTORS` are chosen such that the sums stay in registers.
#[inline(always)]
pub(super) fn multiply<const ROWS: usize, const VECTORS: usize, const FUSED: bool>(
    rows: [&[F32x32]; ROWS],
    vectors: [&[F32x32]; VECTORS],
) -> [[F32x8; VECTORS]; ROWS] {
    let mut sums = [[F32x8::ZERO; VECTORS]; ROWS];
    let rows = rows.map(|row| row.as_flattened());
    let vectors = vectors.map(|vector| vector.as_flattened());
    let length = rows[0].len();
    let (rows, vectors) = (rows.map(|row| &row[..length]), vectors.map(|vector| &vector[..length]));
    for i in 0..length {
        let weights: [F32x8; ROWS] = std::array::from_fn(|r| rows[r][i]);
        for v in 0..VECTORS {
            let x = vectors[v][i];
            for r in 0..ROWS {
                sums[r][v] = x.mul_add::<FUSED>(weights[r], sums[r][v]);
            }
        }
    }
    sums
}
