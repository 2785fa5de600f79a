use rayon::prelude::*;

use crate::kit::threads::min_items;
use crate::linear::sources::{WeightRows, multiply};

/// CPU reference: `out[b, i, j] = Σ_k x[b, i, k] · y[b, k, j]` for row-major `x` `[batch, m, k]` and `y` `[batch, k,
/// n]`. `k = 0` gives zeros.
///
/// # Panics
/// Panics if a slice is shorter than its shape.
pub fn reference(x: &[f32], y: &[f32], batch: usize, m: usize, k: usize, n: usize) -> Vec<f32> {
    let mut out = vec![0.0; batch * m * n];
    if out.is_empty() {
        return out;
    }
    let rows = out.par_chunks_mut(n).with_min_len(min_items(k * n)).enumerate();
    rows.for_each(|(row, out)| {
        let x = &x[row * k..][..k];
        let y = &y[row / m * k * n..][..k * n];
        for (&x, y) in x.iter().zip(y.chunks_exact(n)) {
            for (out, &y) in out.iter_mut().zip(y) {
                *out += x * y;
            }
        }
    });
    out
}

/// CPU reference for a transposed right operand: `out[i, j] = Σ_k x[i, k] · w[j, k]` for row-major `x` `[m, k]`, `w`
/// `[n, k]` and `out` `[m, n]`. Each row of `w` is read once.
///
/// # Panics
/// Panics if `x` and `out` do not have the same number of rows.
pub fn reference_nt(x: &[f32], w: &dyn WeightRows, out: &mut [f32]) {
    multiply(w, x, 0..w.count(), out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::matmul::{SliceRows, StoredRows};

    fn numbers(count: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * 37 + 11) % 23) as f32 - 11.0).collect()
    }

    #[test]
    fn batched_product_matches_the_definition() {
        let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        let y = [1.0, 0.0, 2.0, 0.0, 1.0, 3.0, 2.0, 0.0, 1.0, 1.0, 1.0, 0.0];
        let expected = [1.0, 2.0, 8.0, 3.0, 4.0, 18.0, 16.0, 6.0, 5.0, 22.0, 8.0, 7.0];
        assert_eq!(reference(&x, &y, 2, 2, 2, 3), expected);
    }

    #[test]
    fn empty_sums_are_zero() {
        assert_eq!(reference(&[], &[], 1, 2, 0, 3), [0.0; 6]);
        let mut out = [1.0; 6];
        reference_nt(&[], &Empty(3), &mut out);
        assert_eq!(out, [0.0; 6]);
    }

    struct Empty(usize);

    impl WeightRows for Empty {
        fn count(&self) -> usize {
            self.0
        }
        fn columns(&self) -> usize {
            0
        }
        fn read(&self, _row: usize, _out: &mut [f32]) {}
    }

    #[test]
    fn reference_nt_matches_the_product_with_the_transpose() {
        // Small integers are exact in any order of summation.
        for (m, k, n) in [(1, 5, 3), (3, 67, 11), (2, 64, 1000), (1, 1, 1)] {
            let (x, w) = (numbers(m * k), numbers(n * k));
            let mut transposed = vec![0.0; k * n];
            for j in 0..n {
                (0..k).for_each(|i| transposed[i * n + j] = w[j * k + i]);
            }
            let mut out = vec![0.0; m * n];
            reference_nt(&x, &SliceRows::new(&w, k), &mut out);
            assert_eq!(out, reference(&x, &transposed, 1, m, k, n), "{m} {k} {n}");
        }
    }

    #[test]
    fn stored_rows_decode_and_reject_short_buffers() {
        let values = [1.5f32, -2.0, 0.25, 4.0];
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|&v| half::bf16::from_f32(v).to_le_bytes())
            .collect();
        let rows = StoredRows::new(DType::BF16, 2, 2, &bytes).expect("long enough");
        let mut row = [0.0; 2];
        rows.read(1, &mut row);
        assert_eq!(row, [0.25, 4.0]);
        assert!(StoredRows::new(DType::F32, 2, 2, &bytes).is_err());
        assert!(StoredRows::new(DType::U8, 2, 2, &bytes).is_err());
    }
}
