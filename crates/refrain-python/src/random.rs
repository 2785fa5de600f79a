//! `mlx.core.random`. The key of each thread is kept by Python (refrain/mlx/random_state.py); these functions take one.

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyInt;
use refrain_mlx::{DType, Number, Operand, Value, random};

use crate::array::PyArray;
use crate::convert::{ArrayArg, OperandArg, ShapeArg, StreamArg, on};
use crate::dtype::{PyDtype, dtype_or};

/// The given key, or the next one of the thread's state.
fn key_or_next(py: Python<'_>, key: Option<ArrayArg>) -> PyResult<Value> {
    match key {
        Some(key) => Ok(key.0),
        None => {
            let state = py.import(intern!(py, "refrain.mlx.random_state"))?;
            Ok(state.call_method0(intern!(py, "next_key"))?.extract::<ArrayArg>()?.0)
        }
    }
}

fn shape_or_scalar(shape: Option<ShapeArg>) -> Vec<i64> {
    shape.map_or_else(Vec::new, |shape| shape.0)
}

/// A key of a seed.
#[pyfunction]
fn key(py: Python<'_>, seed: u64) -> PyResult<PyArray> {
    on(py, None, || random::key(seed)).map(PyArray::new)
}

/// Several keys of one.
#[pyfunction]
#[pyo3(signature = (key, num = 2, stream = None))]
fn split(py: Python<'_>, key: ArrayArg, num: i64, stream: Option<StreamArg>) -> PyResult<PyArray> {
    on(py, stream, || random::split(&key.0, num)).map(PyArray::new)
}

/// Uniformly distributed numbers in [low, high).
#[pyfunction]
#[pyo3(signature = (low = OperandArg(Operand::Number(Number::Int(0))), high = OperandArg(Operand::Number(Number::Int(1))), shape = None, dtype = None, key = None, stream = None))]
fn uniform(
    py: Python<'_>,
    low: OperandArg,
    high: OperandArg,
    shape: Option<ShapeArg>,
    dtype: Option<PyDtype>,
    key: Option<ArrayArg>,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    let (shape, key) = (shape_or_scalar(shape), key_or_next(py, key)?);
    let numbers = || random::uniform(&low.0, &high.0, &shape, dtype_or(dtype, DType::F32), Some(&key));
    on(py, stream, numbers).map(PyArray::new)
}

/// Normally distributed numbers.
#[pyfunction]
#[pyo3(signature = (shape = None, dtype = None, loc = None, scale = None, key = None, stream = None))]
fn normal(
    py: Python<'_>,
    shape: Option<ShapeArg>,
    dtype: Option<PyDtype>,
    loc: Option<OperandArg>,
    scale: Option<OperandArg>,
    key: Option<ArrayArg>,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    let (shape, key) = (shape_or_scalar(shape), key_or_next(py, key)?);
    let (loc, scale) = (loc.map(|loc| loc.0), scale.map(|scale| scale.0));
    let numbers = || {
        random::normal(
            &shape,
            dtype_or(dtype, DType::F32),
            loc.as_ref(),
            scale.as_ref(),
            Some(&key),
        )
    };
    on(py, stream, numbers).map(PyArray::new)
}

/// Uniformly distributed integers in [low, high).
#[pyfunction]
#[pyo3(signature = (low, high, shape = None, dtype = None, key = None, stream = None))]
fn randint(
    py: Python<'_>,
    low: OperandArg,
    high: OperandArg,
    shape: Option<ShapeArg>,
    dtype: Option<PyDtype>,
    key: Option<ArrayArg>,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    let (shape, key) = (shape_or_scalar(shape), key_or_next(py, key)?);
    let numbers = || random::randint(&low.0, &high.0, &shape, dtype_or(dtype, DType::I32), Some(&key));
    on(py, stream, numbers).map(PyArray::new)
}

/// True with probability `p`.
#[pyfunction]
#[pyo3(signature = (p = OperandArg(Operand::Number(Number::Float(0.5))), shape = None, key = None, stream = None))]
fn bernoulli(
    py: Python<'_>,
    p: OperandArg,
    shape: Option<ShapeArg>,
    key: Option<ArrayArg>,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    let key = key_or_next(py, key)?;
    let shape = shape.map(|shape| shape.0);
    on(py, stream, || random::bernoulli(&p.0, shape.as_deref(), Some(&key))).map(PyArray::new)
}

/// Indices drawn with probabilities softmax(logits).
#[pyfunction]
#[pyo3(signature = (logits, axis = -1, shape = None, num_samples = None, key = None, stream = None))]
fn categorical(
    py: Python<'_>,
    logits: ArrayArg,
    axis: i64,
    shape: Option<ShapeArg>,
    num_samples: Option<i64>,
    key: Option<ArrayArg>,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    let key = key_or_next(py, key)?;
    let shape = shape.map(|shape| shape.0);
    let indices = || random::categorical(&logits.0, axis, shape.as_deref(), num_samples, Some(&key));
    on(py, stream, indices).map(PyArray::new)
}

/// Numbers of the standard Gumbel distribution.
#[pyfunction]
#[pyo3(signature = (shape = None, dtype = None, key = None, stream = None))]
fn gumbel(
    py: Python<'_>,
    shape: Option<ShapeArg>,
    dtype: Option<PyDtype>,
    key: Option<ArrayArg>,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    let (shape, key) = (shape_or_scalar(shape), key_or_next(py, key)?);
    on(py, stream, || {
        random::gumbel(&shape, dtype_or(dtype, DType::F32), Some(&key))
    })
    .map(PyArray::new)
}

/// Numbers of a Laplace distribution.
#[pyfunction]
#[pyo3(signature = (shape = None, dtype = None, loc = 0.0, scale = 1.0, key = None, stream = None))]
fn laplace(
    py: Python<'_>,
    shape: Option<ShapeArg>,
    dtype: Option<PyDtype>,
    loc: f64,
    scale: f64,
    key: Option<ArrayArg>,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    let (shape, key) = (shape_or_scalar(shape), key_or_next(py, key)?);
    on(py, stream, || {
        random::laplace(&shape, dtype_or(dtype, DType::F32), loc, scale, Some(&key))
    })
    .map(PyArray::new)
}

/// Normally distributed numbers between bounds.
#[pyfunction]
#[pyo3(signature = (lower, upper, shape = None, dtype = None, key = None, stream = None))]
fn truncated_normal(
    py: Python<'_>,
    lower: OperandArg,
    upper: OperandArg,
    shape: Option<ShapeArg>,
    dtype: Option<PyDtype>,
    key: Option<ArrayArg>,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    let key = key_or_next(py, key)?;
    let shape = shape.map(|shape| shape.0);
    let numbers = || {
        random::truncated_normal(
            &lower.0,
            &upper.0,
            shape.as_deref(),
            dtype_or(dtype, DType::F32),
            Some(&key),
        )
    };
    on(py, stream, numbers).map(PyArray::new)
}

/// The numbers below `x`, or the rows of an array, in random order.
#[pyfunction]
#[pyo3(signature = (x, axis = 0, key = None, stream = None))]
fn permutation(
    py: Python<'_>,
    x: &Bound<'_, PyAny>,
    axis: i64,
    key: Option<ArrayArg>,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    let key = key_or_next(py, key)?;
    if x.is_instance_of::<PyInt>() {
        let count = x.extract()?;
        return on(py, stream, || random::permutation_of(count, Some(&key))).map(PyArray::new);
    }
    match x.extract::<ArrayArg>() {
        Ok(rows) => on(py, stream, || random::permutation(&rows.0, axis, Some(&key))).map(PyArray::new),
        Err(_) => Err(PyTypeError::new_err("[permutation] expected an integer or an array")),
    }
}

/// Adds the functions to `mlx.core.random`.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    for function in [
        wrap_pyfunction!(key, module)?,
        wrap_pyfunction!(split, module)?,
        wrap_pyfunction!(uniform, module)?,
        wrap_pyfunction!(normal, module)?,
        wrap_pyfunction!(randint, module)?,
        wrap_pyfunction!(bernoulli, module)?,
        wrap_pyfunction!(categorical, module)?,
        wrap_pyfunction!(gumbel, module)?,
        wrap_pyfunction!(laplace, module)?,
        wrap_pyfunction!(truncated_normal, module)?,
        wrap_pyfunction!(permutation, module)?,
    ] {
        module.add_function(function)?;
    }
    Ok(())
}
