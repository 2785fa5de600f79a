//! Functions that read and write elements at indices.

use pyo3::prelude::*;
use refrain_mlx::ops;

use crate::array::PyArray;
use crate::convert::{ArrayArg, OperandArg, ShapeArg, StreamArg, on};

/// The elements at indices along an axis, or of the flattened array.
#[pyfunction]
#[pyo3(signature = (a, /, indices, axis = None, *, stream = None))]
fn take(
    py: Python<'_>,
    a: ArrayArg,
    indices: OperandArg,
    axis: Option<i64>,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    let indices = indices.into_value(py)?;
    on(py, stream, || ops::take(&a.0, &indices, axis)).map(PyArray::new)
}

/// The elements at indices that have the array's shape but along one axis.
#[pyfunction]
#[pyo3(signature = (a, /, indices, axis = Some(-1), *, stream = None))]
fn take_along_axis(
    py: Python<'_>,
    a: ArrayArg,
    indices: ArrayArg,
    axis: Option<i64>,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    on(py, stream, || ops::take_along_axis(&a.0, &indices.0, axis)).map(PyArray::new)
}

/// The array with values at indices that have its shape but along one axis.
#[pyfunction]
#[pyo3(signature = (a, /, indices, values, axis = None, *, stream = None))]
fn put_along_axis(
    py: Python<'_>,
    a: ArrayArg,
    indices: ArrayArg,
    values: OperandArg,
    axis: Option<i64>,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    let values = values.into_value(py)?;
    on(py, stream, || ops::put_along_axis(&a.0, &indices.0, &values, axis)).map(PyArray::new)
}

/// The part of the array that starts at indices held by an array.
#[pyfunction]
#[pyo3(signature = (a, start_indices, axes, slice_size, *, stream = None))]
fn slice(
    py: Python<'_>,
    a: ArrayArg,
    start_indices: ArrayArg,
    axes: ShapeArg,
    slice_size: ShapeArg,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    on(py, stream, || {
        ops::slice(&a.0, &start_indices.0, &axes.0, &slice_size.0)
    })
    .map(PyArray::new)
}

/// The array with `update` in the part that starts at indices held by an array.
#[pyfunction]
#[pyo3(signature = (a, update, start_indices, axes, *, stream = None))]
fn slice_update(
    py: Python<'_>,
    a: ArrayArg,
    update: ArrayArg,
    start_indices: ArrayArg,
    axes: ShapeArg,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    on(py, stream, || {
        ops::slice_update(&a.0, &update.0, &start_indices.0, &axes.0)
    })
    .map(PyArray::new)
}

/// Adds the functions.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    for function in [
        wrap_pyfunction!(take, module)?,
        wrap_pyfunction!(take_along_axis, module)?,
        wrap_pyfunction!(put_along_axis, module)?,
        wrap_pyfunction!(slice, module)?,
        wrap_pyfunction!(slice_update, module)?,
    ] {
        module.add_function(function)?;
    }
    Ok(())
}
