use super::octet::{Octet, Quartet};

/// Products of `ROWS` rows of weights with `VECTORS` vectors, all of one length: for each row its sums, each
/// in lanes yet to be added up. As many of both as leave their sums in registers.
#[inline(always)]
pub(super) fn multiply<const ROWS: usize, const VECTORS: usize, const FUSED: bool>(
    rows: [&[Quartet]; ROWS],
    vectors: [&[Quartet]; VECTORS],
) -> [[Octet; VECTORS]; ROWS] {
    let mut sums = [[Octet::ZERO; VECTORS]; ROWS];
    let rows = rows.map(|row| row.as_flattened());
    let vectors = vectors.map(|vector| vector.as_flattened());
    let length = rows[0].len();
    let (rows, vectors) = (rows.map(|row| &row[..length]), vectors.map(|vector| &vector[..length]));
    for i in 0..length {
        let weights: [Octet; ROWS] = std::array::from_fn(|r| rows[r][i]);
        for v in 0..VECTORS {
            let x = vectors[v][i];
            for r in 0..ROWS {
                sums[r][v] = x.times_plus::<FUSED>(weights[r], sums[r][v]);
            }
        }
    }
    sums
}
