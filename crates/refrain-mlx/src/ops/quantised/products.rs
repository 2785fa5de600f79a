//! Products with quantised matrices.

use std::hash::{Hash, Hasher};

use refrain::{Array, Composite, QuantFormat, Quantised};

use super::{Kind, Mode, dequantised};
use crate::lowering::rounded;
use crate::ops::experts::{batch_indices, chosen, gathered_product};
use crate::shape::tuple;
use crate::{DType, Error, Result, Value, ops, promote};

impl Mode {
    /// Fails if the last extent of x does not fit the matrices.
    fn check_columns(&self, op: &str, x: &Value, w: &Value, transpose: bool) -> Result<()> {
        let inner = if transpose {
            self.columns(w)
        } else {
            w.shape()[w.ndim() - 2]
        };
        if x.shape().last() == Some(&inner) {
            return Ok(());
        }
        let message = format!(
            "[{op}] Last dimension of first input with shape {} does not match the expanded quantized matrix with shape \
             {} (transpose={transpose}).",
            tuple(x.shape()),
            tuple(w.shape())
        );
        Err(Error::value(message))
    }

    /// The dtype of products with x: that of all floats together. Scales that are exponents do not count.
    fn product_dtype(&self, x: &Value, scales: &Value, biases: Option<&Value>) -> DType {
        let planes = [scales].into_iter().chain(biases);
        let planes = planes.filter(|_| self.kind == Kind::Affine);
        planes.fold(x.dtype(), |dtype, plane| promote(dtype, plane.dtype()))
    }
}

/// x · Wᵀ with a quantised W, or x · W if not `transpose`. The result has the promoted dtype of x, scales and biases, or
/// x's if the scales are exponents.
///
/// # Errors
/// Fails if settings, shapes or dtypes do not fit.
#[allow(clippy::too_many_arguments)]
pub fn quantized_matmul(
    x: &Value,
    w: &Value,
    scales: &Value,
    biases: Option<&Value>,
    transpose: bool,
    group: Option<i64>,
    bits: Option<i64>,
    mode: &str,
) -> Result<Value> {
    const OP: &str = "quantized_matmul";
    let mode = Mode::of(OP, group, bits, mode)?;
    mode.check(OP, w, scales, biases)?;
    check_input(OP, x)?;
    mode.check_columns(OP, x, w, transpose)?;
    let dtype = mode.product_dtype(x, scales, biases);
    if let Some(format) = mode.format(scales, biases)
        && transpose
        && w.ndim() == 2
    {
        let inputs: Vec<&Array> = [x, w, scales].into_iter().chain(biases).map(Value::array).collect();
        let mut shape = x.shape().to_vec();
        *shape.last_mut().expect("there is an axis") = w.shape()[0];
        let dtype = dtype.stored()?;
        return Value::of(Array::composed(Product { format, dtype }, &inputs, None, &shape, dtype));
    }
    let matrix = factor(mode, w, scales, biases, dtype)?;
    product(x, &matrix, transpose, dtype)
}

/// (x `[.., K]`, quants, scales, {biases}) → x · Wᵀ, `[.., N]`.
#[derive(Hash, Debug)]
struct Product {
    format: QuantFormat,
    /// The result's dtype.
    dtype: refrain::DType,
}

impl Composite for Product {
    fn name(&self) -> &'static str {
        "quantized_matmul"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn compose(&self, inputs: &[Array], _integer: Option<&Array>) -> Array {
        let [x, planes @ ..] = inputs else {
            unreachable!("there are three arrays")
        };
        rounded(&Quantised::of_planes(self.format, planes).matmul(x), self.dtype)
    }
}

fn check_input(op: &str, x: &Value) -> Result<()> {
    if x.dtype().is_floating() && x.ndim() > 0 {
        return Ok(());
    }
    let message = format!(
        "[{op}] Only real floating types are supported but x has type {}.",
        x.dtype()
    );
    Err(Error::value(message))
}

/// The values of a matrix for a product in `dtype`, which decides where they are rounded.
fn factor(mode: Mode, w: &Value, scales: &Value, biases: Option<&Value>, dtype: DType) -> Result<Value> {
    let plane = |plane: &Value| match mode.kind {
        Kind::Affine => plane.cast(dtype),
        _ => Ok(plane.clone()),
    };
    let (scales, biases) = (plane(scales)?, biases.map(plane).transpose()?);
    let biases = biases.as_ref().map(Value::array);
    Value::of(dequantised(mode, w.array(), scales.array(), biases))
}

/// x · Wᵀ or x · W, in `dtype`.
fn product(x: &Value, matrix: &Value, transpose: bool, dtype: DType) -> Result<Value> {
    let matrix = if transpose {
        ops::swapaxes(matrix, -1, -2)?
    } else {
        matrix.clone()
    };
    ops::matmul(&x.cast(DType::F32)?, &matrix)?.cast(dtype)
}

/// Products with quantised matrices that are chosen by indices: see [`ops::gather_mm`] and [`quantized_matmul`]. Transposed
/// matrices are read as they are stored, if there is a kernel for their mode.
///
/// # Errors
/// As [`quantized_matmul`]; also fails if indices do not broadcast.
#[allow(clippy::too_many_arguments)]
pub fn gather_qmm(
    x: &Value,
    w: &Value,
    scales: &Value,
    biases: Option<&Value>,
    [lhs, rhs]: [Option<&Value>; 2],
    transpose: bool,
    group: Option<i64>,
    bits: Option<i64>,
    mode: &str,
) -> Result<Value> {
    const OP: &str = "gather_qmm";
    if lhs.is_none() && rhs.is_none() {
        return quantized_matmul(x, w, scales, biases, transpose, group, bits, mode);
    }
    let mode = Mode::of(OP, group, bits, mode)?;
    mode.check(OP, w, scales, biases)?;
    check_input(OP, x)?;
    if x.ndim() < 2 {
        return Err(Error::value(format!(
            "[{OP}] The input must have at least two dimensions."
        )));
    }
    mode.check_columns(OP, x, w, transpose)?;
    let dtype = mode.product_dtype(x, scales, biases);
    if let Some(format) = mode.format(scales, biases)
        && transpose
        && [x, w].iter().all(|x| x.size() > 0)
    {
        let x = lhs.map_or_else(|| Ok(x.clone()), |lhs| chosen(x, lhs))?;
        let planes: Vec<&Value> = [w, scales].into_iter().chain(biases).collect();
        let rhs = batch_indices(w, rhs)?;
        return gathered_product(OP, &x, &rhs, Some(format), &planes, dtype);
    }
    let indices = ops::broadcast_arrays(&[batch_indices(x, lhs)?, batch_indices(w, rhs)?])?;
    let x = chosen(x, &indices[0])?;
    let [w, scales] = [chosen(w, &indices[1])?, chosen(scales, &indices[1])?];
    let biases = biases.map(|biases| chosen(biases, &indices[1])).transpose()?;
    let matrix = factor(mode, &w, &scales, biases.as_ref(), dtype)?;
    product(&x, &matrix, transpose, dtype)
}
