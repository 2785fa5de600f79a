//! Products of matrices, quantised ones too, and convolutions.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use refrain_mlx::{DType, ops};

use crate::array::PyArray;
use crate::convert::{ArrayArg, StreamArg, on};
use crate::dtype::PyDtype;
use crate::shapes::tuple;

macro_rules! products {
    ($($name:ident $doc:literal)*) => { $(
        #[doc = $doc]
        #[pyfunction]
        #[pyo3(signature = (a, b, /, *, stream = None))]
        fn $name(py: Python<'_>, a: ArrayArg, b: ArrayArg, stream: Option<StreamArg>) -> PyResult<PyArray> {
            on(py, stream, || ops::$name(&a.0, &b.0)).map(PyArray::new)
        }
    )* };
}

products! {
    matmul "The matrix product; leading axes are batches."
    inner "The product over the last axes."
    outer "Each element of `a` with each element of `b`."
}

/// beta * c + alpha * (a @ b).
#[pyfunction]
#[pyo3(signature = (c, a, b, /, alpha = 1.0, beta = 1.0, *, stream = None))]
fn addmm(
    py: Python<'_>,
    c: ArrayArg,
    a: ArrayArg,
    b: ArrayArg,
    alpha: f64,
    beta: f64,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    on(py, stream, || ops::addmm(&c.0, &a.0, &b.0, alpha, beta)).map(PyArray::new)
}

/// Products of the matrices that indices select.
#[pyfunction]
#[pyo3(signature = (a, b, /, lhs_indices = None, rhs_indices = None, *, sorted_indices = false, stream = None))]
fn gather_mm(
    py: Python<'_>,
    a: ArrayArg,
    b: ArrayArg,
    lhs_indices: Option<ArrayArg>,
    rhs_indices: Option<ArrayArg>,
    sorted_indices: bool,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    let (left, right) = (lhs_indices.as_ref(), rhs_indices.as_ref());
    let left = left.map(|indices| &indices.0);
    let right = right.map(|indices| &indices.0);
    // Sorted indices would only be a hint.
    let _ = sorted_indices;
    on(py, stream, || ops::gather_mm(&a.0, &b.0, left, right)).map(PyArray::new)
}

/// The quantised words, scales and biases of a matrix.
#[pyfunction]
#[pyo3(signature = (w, /, group_size = None, bits = None, mode = "affine", *, global_scale = None, stream = None))]
fn quantize<'py>(
    py: Python<'py>,
    w: ArrayArg,
    group_size: Option<i64>,
    bits: Option<i64>,
    mode: &str,
    global_scale: Option<ArrayArg>,
    stream: Option<StreamArg>,
) -> PyResult<Bound<'py, PyTuple>> {
    without_global_scale("quantize", global_scale.as_ref())?;
    tuple(py, on(py, stream, || ops::quantize(&w.0, group_size, bits, mode))?)
}

/// The elements of a quantised matrix.
#[pyfunction]
#[pyo3(signature = (w, /, scales, biases = None, group_size = None, bits = None, mode = "affine", global_scale = None, dtype = None, *, stream = None))]
#[allow(clippy::too_many_arguments)]
fn dequantize(
    py: Python<'_>,
    w: ArrayArg,
    scales: ArrayArg,
    biases: Option<ArrayArg>,
    group_size: Option<i64>,
    bits: Option<i64>,
    mode: &str,
    global_scale: Option<ArrayArg>,
    dtype: Option<PyDtype>,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    without_global_scale("dequantize", global_scale.as_ref())?;
    let biases = biases.as_ref().map(|biases| &biases.0);
    let dtype = dtype.map(|dtype| dtype.0);
    let dequantised = || ops::dequantize(&w.0, &scales.0, biases, group_size, bits, mode, dtype);
    on(py, stream, dequantised).map(PyArray::new)
}

/// The product with a quantised matrix.
#[pyfunction]
#[pyo3(signature = (x, w, /, scales, biases = None, transpose = true, group_size = None, bits = None, mode = "affine", *, stream = None))]
#[allow(clippy::too_many_arguments)]
fn quantized_matmul(
    py: Python<'_>,
    x: ArrayArg,
    w: ArrayArg,
    scales: ArrayArg,
    biases: Option<ArrayArg>,
    transpose: bool,
    group_size: Option<i64>,
    bits: Option<i64>,
    mode: &str,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    let biases = biases.as_ref().map(|biases| &biases.0);
    let product = || ops::quantized_matmul(&x.0, &w.0, &scales.0, biases, transpose, group_size, bits, mode);
    on(py, stream, product).map(PyArray::new)
}

/// Products with the quantised matrices that indices select.
#[pyfunction]
#[pyo3(signature = (x, w, /, scales, biases = None, lhs_indices = None, rhs_indices = None, transpose = true, group_size = None, bits = None, mode = "affine", global_scale = None, *, sorted_indices = false, stream = None))]
#[allow(clippy::too_many_arguments)]
fn gather_qmm(
    py: Python<'_>,
    x: ArrayArg,
    w: ArrayArg,
    scales: ArrayArg,
    biases: Option<ArrayArg>,
    lhs_indices: Option<ArrayArg>,
    rhs_indices: Option<ArrayArg>,
    transpose: bool,
    group_size: Option<i64>,
    bits: Option<i64>,
    mode: &str,
    global_scale: Option<ArrayArg>,
    sorted_indices: bool,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    without_global_scale("gather_qmm", global_scale.as_ref())?;
    let biases = biases.as_ref().map(|biases| &biases.0);
    let left = lhs_indices.as_ref().map(|indices| &indices.0);
    let right = rhs_indices.as_ref().map(|indices| &indices.0);
    let _ = sorted_indices;
    let (w, scales, indices) = (&w.0, &scales.0, [left, right]);
    let product = || ops::gather_qmm(&x.0, w, scales, biases, indices, transpose, group_size, bits, mode);
    on(py, stream, product).map(PyArray::new)
}

/// Only the nvfp4 mode has a scale of the whole matrix.
fn without_global_scale(function: &str, scale: Option<&ArrayArg>) -> PyResult<()> {
    match scale {
        None => Ok(()),
        Some(_) => Err(pyo3::exceptions::PyNotImplementedError::new_err(format!(
            "[{function}] global_scale is not supported by Refrain yet"
        ))),
    }
}

/// The elements as eight-bit floats (E4M3) in bytes.
#[pyfunction]
#[pyo3(signature = (x, *, stream = None))]
fn to_fp8(py: Python<'_>, x: ArrayArg, stream: Option<StreamArg>) -> PyResult<PyArray> {
    on(py, stream, || ops::to_fp8(&x.0)).map(PyArray::new)
}

/// The elements of eight-bit floats (E4M3) in bytes.
#[pyfunction]
#[pyo3(signature = (x, dtype = None, *, stream = None))]
fn from_fp8(py: Python<'_>, x: ArrayArg, dtype: Option<PyDtype>, stream: Option<StreamArg>) -> PyResult<PyArray> {
    let dtype = dtype.map_or(DType::BF16, |dtype| dtype.0);
    on(py, stream, || ops::from_fp8(&x.0, dtype)).map(PyArray::new)
}

/// The Walsh-Hadamard transform along the last axis.
#[pyfunction]
#[pyo3(signature = (a, scale = None, stream = None))]
fn hadamard_transform(py: Python<'_>, a: ArrayArg, scale: Option<f32>, stream: Option<StreamArg>) -> PyResult<PyArray> {
    on(py, stream, || ops::hadamard_transform(&a.0, scale)).map(PyArray::new)
}

/// A convolution along one axis.
#[pyfunction]
#[pyo3(signature = (input, weight, /, stride = 1, padding = 0, dilation = 1, groups = 1, *, stream = None))]
#[allow(clippy::too_many_arguments)]
fn conv1d(
    py: Python<'_>,
    input: ArrayArg,
    weight: ArrayArg,
    stride: i64,
    padding: i64,
    dilation: i64,
    groups: i64,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    let convolution = || ops::conv1d(&input.0, &weight.0, stride, padding, dilation, groups);
    on(py, stream, convolution).map(PyArray::new)
}

/// Adds the functions.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    for function in [
        wrap_pyfunction!(matmul, module)?,
        wrap_pyfunction!(inner, module)?,
        wrap_pyfunction!(outer, module)?,
        wrap_pyfunction!(addmm, module)?,
        wrap_pyfunction!(gather_mm, module)?,
        wrap_pyfunction!(quantize, module)?,
        wrap_pyfunction!(dequantize, module)?,
        wrap_pyfunction!(quantized_matmul, module)?,
        wrap_pyfunction!(gather_qmm, module)?,
        wrap_pyfunction!(to_fp8, module)?,
        wrap_pyfunction!(from_fp8, module)?,
        wrap_pyfunction!(hadamard_transform, module)?,
        wrap_pyfunction!(conv1d, module)?,
    ] {
        module.add_function(function)?;
    }
    Ok(())
}
