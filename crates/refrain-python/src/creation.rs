//! Functions that make arrays of a shape.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use refrain_mlx::{DType, Number, Value, ops};

use crate::array::PyArray;
use crate::convert::{ArrayArg, OperandArg, ShapeArg, StreamArg, number, on};
use crate::create;
use crate::dtype::{PyDtype, dtype_or};

fn shape_of(value: &Value) -> Vec<i64> {
    value.shape().iter().map(|&length| length as i64).collect()
}

/// Zeros.
#[pyfunction]
#[pyo3(signature = (shape, dtype = None, *, stream = None))]
fn zeros(py: Python<'_>, shape: ShapeArg, dtype: Option<PyDtype>, stream: Option<StreamArg>) -> PyResult<PyArray> {
    on(py, stream, || ops::zeros(&shape.0, dtype_or(dtype, DType::F32))).map(PyArray::new)
}

/// Ones.
#[pyfunction]
#[pyo3(signature = (shape, dtype = None, *, stream = None))]
fn ones(py: Python<'_>, shape: ShapeArg, dtype: Option<PyDtype>, stream: Option<StreamArg>) -> PyResult<PyArray> {
    on(py, stream, || ops::ones(&shape.0, dtype_or(dtype, DType::F32))).map(PyArray::new)
}

/// Zeros in the shape of an array.
#[pyfunction]
#[pyo3(signature = (a, /, dtype = None, *, stream = None))]
fn zeros_like(py: Python<'_>, a: ArrayArg, dtype: Option<PyDtype>, stream: Option<StreamArg>) -> PyResult<PyArray> {
    on(py, stream, || ops::zeros(&shape_of(&a.0), dtype_or(dtype, a.0.dtype()))).map(PyArray::new)
}

/// Ones in the shape of an array.
#[pyfunction]
#[pyo3(signature = (a, /, dtype = None, *, stream = None))]
fn ones_like(py: Python<'_>, a: ArrayArg, dtype: Option<PyDtype>, stream: Option<StreamArg>) -> PyResult<PyArray> {
    on(py, stream, || ops::ones(&shape_of(&a.0), dtype_or(dtype, a.0.dtype()))).map(PyArray::new)
}

/// One value everywhere.
#[pyfunction]
#[pyo3(signature = (shape, vals, dtype = None, *, stream = None))]
fn full(
    py: Python<'_>,
    shape: ShapeArg,
    vals: OperandArg,
    dtype: Option<PyDtype>,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    on(py, stream, || ops::full(&shape.0, &vals.0, dtype.map(|dtype| dtype.0))).map(PyArray::new)
}

/// One value everywhere, in the shape of an array.
#[pyfunction]
#[pyo3(signature = (a, vals, dtype = None, *, stream = None))]
fn full_like(
    py: Python<'_>,
    a: ArrayArg,
    vals: OperandArg,
    dtype: Option<PyDtype>,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    let dtype = dtype_or(dtype, a.0.dtype());
    on(py, stream, || ops::full(&shape_of(&a.0), &vals.0, Some(dtype))).map(PyArray::new)
}

/// Numbers of equal distance: `arange(stop)`, `arange(start, stop, step)`.
#[pyfunction]
#[pyo3(signature = (start = None, stop = None, step = None, dtype = None, *, stream = None))]
fn arange(
    py: Python<'_>,
    start: Option<&Bound<'_, PyAny>>,
    stop: Option<&Bound<'_, PyAny>>,
    step: Option<&Bound<'_, PyAny>>,
    dtype: Option<PyDtype>,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    let bound = |object: Option<&Bound<'_, PyAny>>| -> PyResult<Option<Number>> {
        match object {
            None => Ok(None),
            Some(object) => match number(object)? {
                Some(number) => Ok(Some(number)),
                // An integer of NumPy, or an array of one element.
                None => Ok(Some(match object.extract::<i64>() {
                    Ok(whole) => Number::Int(whole),
                    Err(_) => Number::Float(object.extract()?),
                })),
            },
        }
    };
    let (start, stop, step) = (bound(start)?, bound(stop)?, bound(step)?);
    let (start, stop) = match (start, stop) {
        (Some(stop), None) | (None, Some(stop)) => (Number::Int(0), stop),
        (Some(start), Some(stop)) => (start, stop),
        (None, None) => return Err(PyTypeError::new_err("arange needs the number at which it stops")),
    };
    let step = step.unwrap_or(Number::Int(1));
    on(py, stream, || {
        ops::arange(start, stop, step, dtype.map(|dtype| dtype.0))
    })
    .map(PyArray::new)
}

/// A matrix with ones on the k-th diagonal.
#[pyfunction]
#[pyo3(signature = (n, m = None, k = 0, dtype = None, *, stream = None))]
fn eye(
    py: Python<'_>,
    n: i64,
    m: Option<i64>,
    k: i64,
    dtype: Option<PyDtype>,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    on(py, stream, || {
        ops::eye(n, m.unwrap_or(n), k, dtype_or(dtype, DType::F32))
    })
    .map(PyArray::new)
}

/// A square matrix with ones on its diagonal.
#[pyfunction]
#[pyo3(signature = (n, dtype = None, *, stream = None))]
fn identity(py: Python<'_>, n: i64, dtype: Option<PyDtype>, stream: Option<StreamArg>) -> PyResult<PyArray> {
    on(py, stream, || ops::eye(n, n, 0, dtype_or(dtype, DType::F32))).map(PyArray::new)
}

/// A matrix with ones on and below the k-th diagonal.
#[pyfunction]
#[pyo3(signature = (n, m = None, k = 0, dtype = None, *, stream = None))]
fn tri(
    py: Python<'_>,
    n: i64,
    m: Option<i64>,
    k: i64,
    dtype: Option<PyDtype>,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    on(py, stream, || {
        ops::tri(n, m.unwrap_or(n), k, dtype_or(dtype, DType::F32))
    })
    .map(PyArray::new)
}

/// Numbers of equal distance from `start` to `stop`.
#[pyfunction]
#[pyo3(signature = (start, stop, num = 50, endpoint = true, dtype = None, stream = None))]
fn linspace(
    py: Python<'_>,
    start: f64,
    stop: f64,
    num: i64,
    endpoint: bool,
    dtype: Option<PyDtype>,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    on(py, stream, || {
        ops::linspace(start, stop, num, endpoint, dtype_or(dtype, DType::F32))
    })
    .map(PyArray::new)
}

/// An array of an object, without a copy where the object is an array already.
#[pyfunction]
#[pyo3(signature = (a, dtype = None, *, copy = None))]
fn asarray(a: &Bound<'_, PyAny>, dtype: Option<PyDtype>, copy: Option<bool>) -> PyResult<PyArray> {
    if copy == Some(false) {
        return Err(PyValueError::new_err(
            "[asarray] the elements must be copied: pass copy=None or copy=True",
        ));
    }
    create::from_object(a, dtype.map(|dtype| dtype.0)).map(PyArray::new)
}

/// Adds the functions.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    for function in [
        wrap_pyfunction!(zeros, module)?,
        wrap_pyfunction!(ones, module)?,
        wrap_pyfunction!(zeros_like, module)?,
        wrap_pyfunction!(ones_like, module)?,
        wrap_pyfunction!(full, module)?,
        wrap_pyfunction!(full_like, module)?,
        wrap_pyfunction!(arange, module)?,
        wrap_pyfunction!(eye, module)?,
        wrap_pyfunction!(identity, module)?,
        wrap_pyfunction!(tri, module)?,
        wrap_pyfunction!(linspace, module)?,
        wrap_pyfunction!(asarray, module)?,
    ] {
        module.add_function(function)?;
    }
    Ok(())
}
