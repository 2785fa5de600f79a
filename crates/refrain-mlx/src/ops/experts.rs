//! Products with matrices that indices choose, as with the experts of a mixture.

use std::hash::{Hash, Hasher};

use refrain::nn::Weight;
use refrain::{Array, Composite, QuantFormat, Quantised};
use refrain_lm::expert_matmul;

use crate::shape::{broadcast, signed};
use crate::{DType, Error, Result, Value, ops, promote};

/// Maximum number of (row, matrix) pairs of one product: a limit of the kernel for devices without matrix cores.
const MAX_PAIRS: usize = 65_535;

/// Products of matrices that are chosen by indices into the flattened leading axes: `[.., M, K]` with `[.., K, N]` →
/// `[indices.., M, N]`. Without indices, all matrices in their order.
///
/// # Errors
/// As [`ops::matmul`]; also fails if indices do not broadcast.
pub fn gather_mm(a: &Value, b: &Value, lhs: Option<&Value>, rhs: Option<&Value>) -> Result<Value> {
    if a.ndim() < 2 || b.ndim() < 2 {
        return Err(Error::value("[gather_mm] Inputs must have at least two dimensions."));
    }
    if lhs.is_none() && rhs.is_none() {
        return ops::matmul(a, b);
    }
    let fits = a.shape().last() == Some(&b.shape()[b.ndim() - 2]);
    let are_floats = a.dtype().is_floating() && b.dtype().is_floating();
    if let Some(transposed) = b.array().transpose_of()
        && fits
        && are_floats
        && [a, b].iter().all(|x| x.size() > 0)
    {
        let a = lhs.map_or_else(|| Ok(a.clone()), |lhs| chosen(a, lhs))?;
        let matrices = b.like(transposed)?;
        let dtype = promote(a.dtype(), b.dtype());
        return gathered_product("gather_mm", &a, &batch_indices(b, rhs)?, None, &[&matrices], dtype);
    }
    let indices = ops::broadcast_arrays(&[batch_indices(a, lhs)?, batch_indices(b, rhs)?])?;
    ops::matmul(&chosen(a, &indices[0])?, &chosen(b, &indices[1])?)
}

/// The given indices of matrices, or those of all matrices in the shape of the leading axes.
pub(super) fn batch_indices(a: &Value, indices: Option<&Value>) -> Result<Value> {
    match indices {
        Some(indices) => Ok(indices.clone()),
        None => {
            let outer = &a.shape()[..a.ndim() - 2];
            let count = outer.iter().product();
            let all = Array::arange(a.array().device(), refrain::DType::U32, count);
            Value::of(all.reshape(&signed(outer)))
        }
    }
}

/// Matrices of a stack, chosen by indices into its flattened leading axes.
pub(super) fn chosen(a: &Value, indices: &Value) -> Result<Value> {
    let (rows, columns) = (a.shape()[a.ndim() - 2], a.shape()[a.ndim() - 1]);
    let stack = a.array().reshape(&[-1, rows as isize, columns as isize]);
    ops::take(&Value::of(stack)?, indices, Some(0))
}

/// x `[.., M, K]` · Wᵀ in `dtype`, for matrices W `[N, K]` that are chosen by `indices` into the flattened leading axes
/// of `planes`: a dense stack, or the planes of one in `format`. The leading axes of x broadcast with the indices. No
/// matrix is copied.
///
/// # Errors
/// Fails if indices are no integers or do not broadcast.
pub(super) fn gathered_product(
    op: &str,
    x: &Value,
    indices: &Value,
    format: Option<QuantFormat>,
    planes: &[&Value],
    dtype: DType,
) -> Result<Value> {
    if !indices.dtype().is_integer() {
        let message = format!("[{op}] Got indices with invalid dtype. Indices must be integral.");
        return Err(Error::value(message));
    }
    let (outer, [rows, _]) = split(x.shape());
    let batch = broadcast(op, &[outer, indices.shape()])?;
    let mut indices = indices.cast(DType::U32)?;
    if indices.shape() != batch {
        indices = indices.like(indices.array().broadcast_to(&batch))?;
    }
    let (_, [columns, _]) = split(planes[0].shape());
    let inputs: Vec<&Array> = [x, &indices].iter().chain(planes).map(|value| value.array()).collect();
    let shape = [&batch[..], &[rows, columns]].concat();
    let composite = GatheredProduct {
        format,
        dtype: dtype.stored()?,
    };
    Value::of(Array::composed(composite, &inputs, None, &shape, dtype.stored()?))
}

/// A shape as leading axes and the extents of matrices.
fn split(shape: &[usize]) -> (&[usize], [usize; 2]) {
    let [outer @ .., rows, columns] = shape else {
        unreachable!("callers check that there are matrices")
    };
    (outer, [*rows, *columns])
}

/// (x `[.., M, K]`, indices u32 `[..]`, W `[.., N, K]` or quants, scales, {biases}) → products with the chosen
/// matrices, `[indices.., M, N]`.
#[derive(Hash, Debug)]
struct GatheredProduct {
    /// The format of W, if it is quantised.
    format: Option<QuantFormat>,
    /// The result's dtype.
    dtype: refrain::DType,
}

impl Composite for GatheredProduct {
    fn name(&self) -> &'static str {
        match self.format {
            Some(_) => "gather_qmm",
            None => "gather_mm",
        }
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn compose(&self, inputs: &[Array], _integer: Option<&Array>) -> Array {
        let [x, indices, planes @ ..] = inputs else {
            unreachable!("there are at least three arrays")
        };
        let (outer, [rows, columns]) = split(x.shape());
        let (_, [result_columns, _]) = split(planes[0].shape());
        let shape = [indices.shape(), &[rows, result_columns]].concat();
        let (x, experts) = pairs(x, indices, outer, [rows, columns]);
        let stacked = |plane: &Array| plane.reshape(&[-1, plane.dim(-1) as isize]);
        let stacks: Vec<Array> = planes.iter().map(stacked).collect();
        let weights = match self.format {
            None => Weight::Dense(stacks[0].clone()),
            Some(format) => Weight::Quantised(Quantised::of_planes(format, &stacks)),
        };
        let part = |x: &Array, experts: &Array| expert_matmul(x, experts, weights.clone(), result_columns);
        let product = in_parts(&x, &experts, part);
        product.astype(self.dtype).reshape(&signed(&shape))
    }
}

/// x as `[T, U, K]`, or `[T, 1, K]` if all matrices of a token multiply the same vector, and the indices as `[T, U]`.
/// Rows of a matrix of x count as further tokens.
fn pairs(x: &Array, indices: &Array, outer: &[usize], [rows, columns]: [usize; 2]) -> (Array, Array) {
    let mut batch = indices.shape().to_vec();
    let mut vectors = vec![1; batch.len() - outer.len()];
    vectors.extend(outer);
    let mut indices = indices.clone();
    if rows != 1 {
        batch.push(rows);
        vectors.push(rows);
        indices = indices.expand_dims(-1).broadcast_to(&batch);
    }
    let is_shared = vectors.last() == Some(&1);
    // A list of vectors with a matrix each has one matrix per token.
    let used = match batch[..] {
        [] => 1,
        [_] if !is_shared => 1,
        [.., used] => used,
    };
    let tokens = batch.iter().product::<usize>() / used;
    let mut spread = batch;
    if let Some(last) = spread.last_mut().filter(|_| is_shared) {
        *last = 1;
    }
    spread.push(columns);
    vectors.push(columns);
    let each = if is_shared { 1 } else { used };
    let x = x.reshape(&signed(&vectors)).broadcast_to(&spread);
    let experts = indices.reshape(&signed(&[tokens, used]));
    (x.reshape(&signed(&[tokens, each, columns])), experts)
}

/// The product of all pairs, joined from products of as many pairs as a kernel takes.
fn in_parts(x: &Array, experts: &Array, product: impl Fn(&Array, &Array) -> Array) -> Array {
    let (tokens, used) = (experts.dim(0), experts.dim(1));
    let pairs = tokens * used;
    if pairs <= MAX_PAIRS {
        return product(x, experts);
    }
    let columns = x.dim(2);
    let x = x
        .broadcast_to(&[tokens, used, columns])
        .reshape(&signed(&[pairs, 1, columns]));
    let experts = experts.reshape(&signed(&[pairs, 1]));
    let parts: Vec<Array> = (0..pairs)
        .step_by(MAX_PAIRS)
        .map(|first| {
            let last = pairs.min(first + MAX_PAIRS);
            product(&x.slice(0, first, last), &experts.slice(0, first, last))
        })
        .collect();
    let joined = refrain::concatenate(&parts.iter().collect::<Vec<_>>(), 0);
    joined.reshape(&signed(&[tokens, used, joined.dim(2)]))
}
