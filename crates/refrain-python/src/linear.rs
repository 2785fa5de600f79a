//! Products over chosen axes, and convolutions of any number of axes.

use pyo3::prelude::*;
use pyo3::types::PyInt;
use refrain_mlx::{Value, ops};

use crate::array::PyArray;
use crate::convert::{ArrayArg, StreamArg, on};

/// A sum of products as subscripts say, for example "ij,jk->ik".
#[pyfunction]
#[pyo3(signature = (subscripts, *operands, stream = None))]
fn einsum(py: Python<'_>, subscripts: &str, operands: Vec<ArrayArg>, stream: Option<StreamArg>) -> PyResult<PyArray> {
    let values: Vec<Value> = operands.into_iter().map(|operand| operand.0).collect();
    on(py, stream, || ops::einsum(subscripts, &values)).map(PyArray::new)
}

/// The Kronecker product.
#[pyfunction]
#[pyo3(signature = (a, b, *, stream = None))]
fn kron(py: Python<'_>, a: ArrayArg, b: ArrayArg, stream: Option<StreamArg>) -> PyResult<PyArray> {
    on(py, stream, || ops::kron(&a.0, &b.0)).map(PyArray::new)
}

/// The product over several axes: the last of `a` and the first of `b`, or lists of them.
#[pyfunction]
#[pyo3(signature = (a, b, /, axes = None, *, stream = None))]
fn tensordot(
    py: Python<'_>,
    a: ArrayArg,
    b: ArrayArg,
    axes: Option<&Bound<'_, PyAny>>,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    let (left, right) = match axes {
        Some(axes) if !axes.is_instance_of::<PyInt>() => axes.extract::<(Vec<i64>, Vec<i64>)>()?,
        _ => {
            let count = axes.map_or(Ok(2), |axes| axes.extract::<i64>())?;
            ((-count..0).collect(), (0..count).collect())
        }
    };
    on(py, stream, || ops::tensordot(&a.0, &b.0, [&left, &right])).map(PyArray::new)
}

/// A convolution along any number of axes, with padding before and after each.
#[pyfunction]
#[pyo3(name = "_convolve")]
fn convolve(
    py: Python<'_>,
    input: ArrayArg,
    weight: ArrayArg,
    strides: Vec<i64>,
    padding: Vec<(i64, i64)>,
    dilation: Vec<i64>,
    groups: i64,
) -> PyResult<PyArray> {
    let convolution = || ops::conv_general(&input.0, &weight.0, &strides, &padding, &dilation, groups);
    on(py, None, convolution).map(PyArray::new)
}

/// Adds the functions.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    for function in [
        wrap_pyfunction!(einsum, module)?,
        wrap_pyfunction!(kron, module)?,
        wrap_pyfunction!(tensordot, module)?,
        wrap_pyfunction!(convolve, module)?,
    ] {
        module.add_function(function)?;
    }
    Ok(())
}
