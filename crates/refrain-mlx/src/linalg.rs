//! `mlx.core.linalg`: factorisations of small matrices, computed on the host in double precision.
//!
//! MLX computes them on its CPU too. They are computed at the call: the result is not lazy.

use crate::{DType, Error, Result, Value};

/// Square or rectangular matrices, one after another.
struct Batch {
    leading: Vec<usize>,
    rows: usize,
    columns: usize,
    elements: Vec<f64>,
}

impl Batch {
    fn of(op: &str, a: &Value) -> Result<Batch> {
        let [leading @ .., rows, columns] = a.shape() else {
            let message = format!(
                "[linalg::{op}] Arrays must have >= 2 dimensions. Received array with {} dimensions.",
                a.ndim()
            );
            return Err(Error::value(message));
        };
        if a.dtype() != DType::F32 {
            let message = format!(
                "[linalg::{op}] Arrays must have type float32 or float64. Received array with type {}.",
                a.dtype()
            );
            return Err(Error::value(message));
        }
        let elements = a.to_vec::<f32>()?.into_iter().map(f64::from).collect();
        Ok(Batch {
            leading: leading.to_vec(),
            rows: *rows,
            columns: *columns,
            elements,
        })
    }

    fn square(op: &str, a: &Value) -> Result<Batch> {
        let batch = Batch::of(op, a)?;
        if batch.rows != batch.columns {
            return Err(Error::value(format!("[linalg::{op}] Inputs must be square matrices.")));
        }
        Ok(batch)
    }

    fn matrices(&self) -> impl Iterator<Item = &[f64]> {
        self.elements.chunks_exact((self.rows * self.columns).max(1))
    }

    /// The value of elements with these last axes.
    fn value(&self, elements: &[f64], last: &[usize]) -> Result<Value> {
        let single: Vec<f32> = elements.iter().map(|&x| x as f32).collect();
        Value::from_slice(&single, &[&self.leading, last].concat())
    }
}

fn transposed(a: &[f64], n: usize) -> Vec<f64> {
    (0..n * n).map(|at| a[at % n * n + at / n]).collect()
}

/// The lower triangle `l` of a = l · lᵀ.
fn lower_cholesky(a: &[f64], n: usize) -> Result<Vec<f64>> {
    let mut l = vec![0.0; n * n];
    for i in 0..n {
        for j in 0..=i {
            let rest = a[i * n + j] - (0..j).map(|k| l[i * n + k] * l[j * n + k]).sum::<f64>();
            if i != j {
                l[i * n + j] = rest / l[j * n + j];
            } else if rest > 0.0 {
                l[i * n + i] = rest.sqrt();
            } else {
                return Err(Error::value("[linalg::cholesky] The matrix is not positive definite."));
            }
        }
    }
    Ok(l)
}

/// The inverse of a lower triangle.
fn lower_inverse(l: &[f64], n: usize) -> Vec<f64> {
    let mut inverse = vec![0.0; n * n];
    for column in 0..n {
        for i in column..n {
            let one = f64::from(u8::from(i == column));
            let rest = one - (column..i).map(|k| l[i * n + k] * inverse[k * n + column]).sum::<f64>();
            inverse[i * n + column] = rest / l[i * n + i];
        }
    }
    inverse
}

/// The Cholesky factor of positive definite matrices: lower, or upper.
///
/// # Errors
/// Fails unless the matrices are square, float32 and positive definite.
pub fn cholesky(a: &Value, upper: bool) -> Result<Value> {
    let batch = Batch::square("cholesky", a)?;
    let n = batch.rows;
    let mut elements = Vec::with_capacity(batch.elements.len());
    for matrix in batch.matrices() {
        let lower = lower_cholesky(matrix, n)?;
        elements.extend(if upper { transposed(&lower, n) } else { lower });
    }
    batch.value(&elements, &[n, n])
}

/// The inverses of triangular matrices: lower, or upper.
///
/// # Errors
/// Fails unless the matrices are square and float32.
pub fn tri_inv(a: &Value, upper: bool) -> Result<Value> {
    let batch = Batch::square("tri_inv", a)?;
    let n = batch.rows;
    let inverses = batch.matrices().flat_map(|matrix| {
        if upper {
            transposed(&lower_inverse(&transposed(matrix, n), n), n)
        } else {
            lower_inverse(matrix, n)
        }
    });
    batch.value(&inverses.collect::<Vec<_>>(), &[n, n])
}

/// The inverses of matrices whose Cholesky factors are given: lower, or upper.
///
/// # Errors
/// Fails unless the factors are square and float32.
pub fn cholesky_inv(a: &Value, upper: bool) -> Result<Value> {
    let batch = Batch::square("cholesky_inv", a)?;
    let n = batch.rows;
    let mut elements = Vec::with_capacity(batch.elements.len());
    for matrix in batch.matrices() {
        let lower = if upper { transposed(matrix, n) } else { matrix.to_vec() };
        let inverse = lower_inverse(&lower, n);
        // (l · lᵀ)⁻¹ = l⁻ᵀ · l⁻¹.
        for i in 0..n {
            for j in 0..n {
                elements.push((i.max(j)..n).map(|k| inverse[k * n + i] * inverse[k * n + j]).sum());
            }
        }
    }
    batch.value(&elements, &[n, n])
}

/// Rows in the order in which they were chosen, the factors in one matrix, and the sign of the permutation.
struct Lu {
    order: Vec<usize>,
    factors: Vec<f64>,
    sign: f64,
}

fn lu_of(a: &[f64], n: usize) -> Lu {
    let mut factors = a.to_vec();
    let (mut order, mut sign): (Vec<usize>, f64) = ((0..n).collect(), 1.0);
    for k in 0..n {
        let size = |row: usize| factors[row * n + k].abs();
        let pivot = (k..n).max_by(|&i, &j| size(i).total_cmp(&size(j))).unwrap_or(k);
        if pivot != k {
            (0..n).for_each(|column| factors.swap(k * n + column, pivot * n + column));
            order.swap(k, pivot);
            sign = -sign;
        }
        for i in k + 1..n {
            if factors[k * n + k] != 0.0 {
                factors[i * n + k] /= factors[k * n + k];
            }
            for j in k + 1..n {
                factors[i * n + j] -= factors[i * n + k] * factors[k * n + j];
            }
        }
    }
    Lu { order, factors, sign }
}

/// Solves a · x = b for `columns` columns.
fn solved(op: &str, lu: &Lu, n: usize, b: &[f64], columns: usize) -> Result<Vec<f64>> {
    let mut x = vec![0.0; n * columns];
    for column in 0..columns {
        for i in 0..n {
            let rest: f64 = (0..i).map(|k| lu.factors[i * n + k] * x[k * columns + column]).sum();
            x[i * columns + column] = b[lu.order[i] * columns + column] - rest;
        }
        for i in (0..n).rev() {
            let pivot = lu.factors[i * n + i];
            if pivot == 0.0 {
                return Err(Error::value(format!("[linalg::{op}] The matrix is singular.")));
            }
            let rest: f64 = (i + 1..n)
                .map(|k| lu.factors[i * n + k] * x[k * columns + column])
                .sum();
            x[i * columns + column] = (x[i * columns + column] - rest) / pivot;
        }
    }
    Ok(x)
}

/// The inverses of matrices.
///
/// # Errors
/// Fails unless the matrices are square, float32 and regular.
pub fn inv(a: &Value) -> Result<Value> {
    let batch = Batch::square("inv", a)?;
    let n = batch.rows;
    let unit: Vec<f64> = (0..n * n).map(|at| f64::from(u8::from(at / n == at % n))).collect();
    let mut elements = Vec::with_capacity(batch.elements.len());
    for matrix in batch.matrices() {
        elements.extend(solved("inv", &lu_of(matrix, n), n, &unit, n)?);
    }
    batch.value(&elements, &[n, n])
}

/// The solutions x of a · x = b; b holds matrices, or vectors of one dimension less.
///
/// # Errors
/// Fails unless a's matrices are square, float32 and regular, and b's shape fits.
pub fn solve(a: &Value, b: &Value) -> Result<Value> {
    let batch = Batch::square("solve", a)?;
    let n = batch.rows;
    let (leading, columns) = match b.shape() {
        [leading @ .., rows] if b.ndim() + 1 == a.ndim() && *rows == n => (leading, 1),
        [leading @ .., rows, columns] if *rows == n => (leading, *columns),
        _ => (&[][..], 0),
    };
    if leading != batch.leading || columns == 0 || b.dtype() != DType::F32 {
        return Err(Error::value(
            "[linalg::solve] The right-hand sides do not fit the matrices.",
        ));
    }
    let right: Vec<f64> = b.to_vec::<f32>()?.into_iter().map(f64::from).collect();
    let mut elements = Vec::with_capacity(right.len());
    for (matrix, side) in batch.matrices().zip(right.chunks_exact((n * columns).max(1))) {
        elements.extend(solved("solve", &lu_of(matrix, n), n, side, columns)?);
    }
    batch.value(&elements, &b.shape()[leading.len()..])
}

/// The signs of determinants and the logarithms of their sizes.
///
/// # Errors
/// Fails unless the matrices are square and float32.
pub fn slogdet(a: &Value) -> Result<[Value; 2]> {
    let batch = Batch::square("slogdet", a)?;
    let n = batch.rows;
    let (mut signs, mut logarithms) = (vec![], vec![]);
    for matrix in batch.matrices() {
        let lu = lu_of(matrix, n);
        let pivots = (0..n).map(|i| lu.factors[i * n + i]);
        signs.push(pivots.clone().fold(lu.sign, |sign, pivot| {
            sign * if pivot == 0.0 { 0.0 } else { pivot.signum() }
        }));
        logarithms.push(pivots.map(|pivot| pivot.abs().ln()).sum());
    }
    Ok([batch.value(&signs, &[])?, batch.value(&logarithms, &[])?])
}

/// The determinants of matrices.
///
/// # Errors
/// Fails unless the matrices are square and float32.
pub fn det(a: &Value) -> Result<Value> {
    let batch = Batch::square("det", a)?;
    let n = batch.rows;
    let determinant = |matrix: &[f64]| {
        let lu = lu_of(matrix, n);
        (0..n).map(|i| lu.factors[i * n + i]).product::<f64>() * lu.sign
    };
    batch.value(&batch.matrices().map(determinant).collect::<Vec<_>>(), &[])
}

/// Replaces `r` (m × n) by its upper triangle, and applies the same reflections to the unit matrix: returns qᵀ (m × m).
fn reflect(r: &mut [f64], m: usize, n: usize) -> Vec<f64> {
    let mut q: Vec<f64> = (0..m * m).map(|at| f64::from(u8::from(at / m == at % m))).collect();
    for k in 0..n.min(m) {
        let below: f64 = (k + 1..m).map(|row| r[row * n + k].powi(2)).sum();
        if below == 0.0 {
            continue;
        }
        // As LAPACK does: away from the diagonal element, so that nothing cancels.
        let pivot = r[k * n + k];
        let length = -(pivot * pivot + below).sqrt().copysign(pivot);
        let mut vector: Vec<f64> = (k..m).map(|row| r[row * n + k]).collect();
        vector[0] -= length;
        let size: f64 = vector.iter().map(|x| x * x).sum();
        let apply = |a: &mut [f64], columns: usize| {
            for column in 0..columns {
                let along: f64 = (k..m).map(|row| vector[row - k] * a[row * columns + column]).sum();
                for row in k..m {
                    a[row * columns + column] -= 2.0 * along / size * vector[row - k];
                }
            }
        };
        apply(r, n);
        apply(&mut q, m);
    }
    q
}

/// The orthonormal factor and the upper triangle of matrices, by Householder's reflections.
///
/// # Errors
/// Fails unless the matrices are float32.
pub fn qr(a: &Value) -> Result<[Value; 2]> {
    let batch = Batch::of("qr", a)?;
    let (m, n) = (batch.rows, batch.columns);
    let k = m.min(n);
    let (mut q, mut r) = (vec![], vec![]);
    for matrix in batch.matrices() {
        let mut upper = matrix.to_vec();
        let reflections = reflect(&mut upper, m, n);
        q.extend((0..m * k).map(|at| reflections[at % k * m + at / k]));
        r.extend((0..k * n).map(|at| if at % n < at / n { 0.0 } else { upper[at] }));
    }
    Ok([batch.value(&q, &[m, k])?, batch.value(&r, &[k, n])?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops;

    fn matrix() -> Value {
        Value::from_slice(&[4.0f32, 1.0, 2.0, 1.0, 5.0, 3.0, 2.0, 3.0, 6.0], &[3, 3]).expect("a value")
    }

    fn close(a: &Value, b: &Value) -> bool {
        let pairs = a
            .to_vec::<f32>()
            .expect("elements")
            .into_iter()
            .zip(b.to_vec::<f32>().expect("elements"));
        pairs.into_iter().all(|(a, b)| (a - b).abs() < 1e-4)
    }

    #[test]
    fn factors_multiply_to_the_matrix() {
        let a = matrix();
        let l = cholesky(&a, false).expect("positive definite");
        assert!(close(
            &ops::matmul(&l, &ops::transpose(&l, None).expect("a matrix")).expect("a product"),
            &a
        ));
        let [q, r] = qr(&a).expect("factors");
        assert!(close(&ops::matmul(&q, &r).expect("a product"), &a));
    }

    #[test]
    fn inverses_give_the_unit_matrix() {
        let a = matrix();
        let unit = ops::eye(3, 3, 0, DType::F32).expect("a matrix");
        assert!(close(
            &ops::matmul(&inv(&a).expect("regular"), &a).expect("a product"),
            &unit
        ));
        let l = cholesky(&a, false).expect("positive definite");
        assert!(close(
            &ops::matmul(&tri_inv(&l, false).expect("regular"), &l).expect("a product"),
            &unit
        ));
        assert!(close(
            &cholesky_inv(&l, false).expect("regular"),
            &inv(&a).expect("regular")
        ));
        assert!(close(&solve(&a, &unit).expect("regular"), &inv(&a).expect("regular")));
    }

    #[test]
    fn determinants_have_their_sign() {
        let swapped = Value::from_slice(&[0.0f32, 2.0, 3.0, 0.0], &[2, 2]).expect("a value");
        assert_eq!(
            det(&swapped).expect("square").to_vec::<f32>().expect("elements"),
            [-6.0]
        );
        let [sign, logarithm] = slogdet(&swapped).expect("square");
        assert_eq!(sign.to_vec::<f32>().expect("elements"), [-1.0]);
        assert!((logarithm.to_vec::<f32>().expect("elements")[0] - 6f32.ln()).abs() < 1e-6);
    }

    #[test]
    fn rejects_what_has_no_factor() {
        let singular = Value::from_slice(&[1.0f32, 2.0, 2.0, 4.0], &[2, 2]).expect("a value");
        assert!(inv(&singular).is_err());
        assert!(cholesky(&Value::from_slice(&[0.0f32; 4], &[2, 2]).expect("a value"), false).is_err());
        assert!(det(&Value::from_slice(&[1.0f32; 6], &[2, 3]).expect("a value")).is_err());
    }
}
