//! Functions that move, join and repeat elements.

use pyo3::exceptions::{PyNotImplementedError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyTuple};
use refrain_mlx::ops::{Padding, Sections};
use refrain_mlx::{Number, Operand, Value, ops};

use crate::array::PyArray;
use crate::convert::{ArrayArg, AxesArg, OperandArg, ShapeArg, StreamArg, on};
use crate::dtype::PyDtype;

/// Several values as a tuple of arrays.
pub fn tuple(py: Python<'_>, values: Vec<Value>) -> PyResult<Bound<'_, PyTuple>> {
    PyTuple::new(
        py,
        values
            .into_iter()
            .map(PyArray::new)
            .map(|array| Bound::new(py, array))
            .collect::<PyResult<Vec<_>>>()?,
    )
}

/// Several values as a list of arrays.
fn arrays(values: Vec<Value>) -> Vec<PyArray> {
    values.into_iter().map(PyArray::new).collect()
}

/// The elements in another shape; one dimension may be -1.
#[pyfunction]
#[pyo3(signature = (a, /, shape, *, stream = None))]
fn reshape(py: Python<'_>, a: ArrayArg, shape: ShapeArg, stream: Option<StreamArg>) -> PyResult<PyArray> {
    on(py, stream, || ops::reshape(&a.0, &shape.0)).map(PyArray::new)
}

/// Axes `start_axis` to `end_axis` as one.
#[pyfunction]
#[pyo3(signature = (a, /, start_axis = 0, end_axis = -1, *, stream = None))]
fn flatten(
    py: Python<'_>,
    a: ArrayArg,
    start_axis: i64,
    end_axis: i64,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    on(py, stream, || ops::flatten(&a.0, start_axis, end_axis)).map(PyArray::new)
}

/// An axis as several.
#[pyfunction]
#[pyo3(signature = (a, /, axis, shape, *, stream = None))]
fn unflatten(py: Python<'_>, a: ArrayArg, axis: i64, shape: ShapeArg, stream: Option<StreamArg>) -> PyResult<PyArray> {
    on(py, stream, || ops::unflatten(&a.0, axis, &shape.0)).map(PyArray::new)
}

/// The array without axes of length one.
#[pyfunction]
#[pyo3(signature = (a, /, axis = AxesArg(None), *, stream = None))]
fn squeeze(py: Python<'_>, a: ArrayArg, axis: AxesArg, stream: Option<StreamArg>) -> PyResult<PyArray> {
    on(py, stream, || ops::squeeze(&a.0, axis.as_deref())).map(PyArray::new)
}

/// The array with further axes of length one.
#[pyfunction]
#[pyo3(signature = (a, /, axis, *, stream = None))]
fn expand_dims(py: Python<'_>, a: ArrayArg, axis: ShapeArg, stream: Option<StreamArg>) -> PyResult<PyArray> {
    on(py, stream, || ops::expand_dims(&a.0, &axis.0)).map(PyArray::new)
}

/// The elements in reverse order along axes.
#[pyfunction]
#[pyo3(signature = (a, /, axis = AxesArg(None), *, stream = None))]
fn flip(py: Python<'_>, a: ArrayArg, axis: AxesArg, stream: Option<StreamArg>) -> PyResult<PyArray> {
    on(py, stream, || ops::flip(&a.0, axis.as_deref())).map(PyArray::new)
}

/// An axis at another place.
#[pyfunction]
#[pyo3(signature = (a, /, source, destination, *, stream = None))]
fn moveaxis(
    py: Python<'_>,
    a: ArrayArg,
    source: i64,
    destination: i64,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    on(py, stream, || ops::moveaxis(&a.0, source, destination)).map(PyArray::new)
}

/// Two axes swapped.
#[pyfunction]
#[pyo3(signature = (a, /, axis1, axis2, *, stream = None))]
fn swapaxes(py: Python<'_>, a: ArrayArg, axis1: i64, axis2: i64, stream: Option<StreamArg>) -> PyResult<PyArray> {
    on(py, stream, || ops::swapaxes(&a.0, axis1, axis2)).map(PyArray::new)
}

/// The axes in another order; reversed by default.
#[pyfunction]
#[pyo3(signature = (a, /, axes = AxesArg(None), *, stream = None))]
fn transpose(py: Python<'_>, a: ArrayArg, axes: AxesArg, stream: Option<StreamArg>) -> PyResult<PyArray> {
    on(py, stream, || ops::transpose(&a.0, axes.as_deref())).map(PyArray::new)
}

/// The array as one of a greater shape.
#[pyfunction]
#[pyo3(signature = (a, /, shape, *, stream = None))]
fn broadcast_to(py: Python<'_>, a: OperandArg, shape: ShapeArg, stream: Option<StreamArg>) -> PyResult<PyArray> {
    let a = a.into_value(py)?;
    on(py, stream, || ops::broadcast_to(&a, &shape.0)).map(PyArray::new)
}

/// The arrays in the shape that all of them fit.
#[pyfunction]
#[pyo3(signature = (*arrays, stream = None))]
fn broadcast_arrays<'py>(
    py: Python<'py>,
    arrays: Vec<ArrayArg>,
    stream: Option<StreamArg>,
) -> PyResult<Bound<'py, PyTuple>> {
    let values: Vec<Value> = arrays.into_iter().map(|array| array.0).collect();
    tuple(py, on(py, stream, || ops::broadcast_arrays(&values))?)
}

/// The shape that all shapes fit.
#[pyfunction]
#[pyo3(signature = (*shapes))]
fn broadcast_shapes<'py>(py: Python<'py>, shapes: Vec<Vec<usize>>) -> PyResult<Bound<'py, PyTuple>> {
    let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
    PyTuple::new(py, on(py, None, || ops::broadcast_shapes(&shapes))?)
}

/// The arrays one after another along an axis; flattened where the axis is None.
#[pyfunction]
#[pyo3(signature = (arrays, axis = Some(0), *, stream = None))]
fn concatenate(
    py: Python<'_>,
    arrays: Vec<ArrayArg>,
    axis: Option<i64>,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    let values: Vec<Value> = arrays.into_iter().map(|array| array.0).collect();
    on(py, stream, || ops::concatenate(&values, axis)).map(PyArray::new)
}

/// The arrays along a new axis.
#[pyfunction]
#[pyo3(signature = (arrays, axis = 0, *, stream = None))]
fn stack(py: Python<'_>, arrays: Vec<ArrayArg>, axis: i64, stream: Option<StreamArg>) -> PyResult<PyArray> {
    let values: Vec<Value> = arrays.into_iter().map(|array| array.0).collect();
    on(py, stream, || ops::stack(&values, axis)).map(PyArray::new)
}

/// The array cut into equal parts, or at indices.
#[pyfunction]
#[pyo3(signature = (a, /, indices_or_sections, axis = 0, *, stream = None))]
fn split(
    py: Python<'_>,
    a: ArrayArg,
    indices_or_sections: &Bound<'_, PyAny>,
    axis: i64,
    stream: Option<StreamArg>,
) -> PyResult<Vec<PyArray>> {
    let sections = if indices_or_sections.is_instance_of::<PyInt>() {
        Sections::Count(indices_or_sections.extract()?)
    } else {
        Sections::Indices(indices_or_sections.extract()?)
    };
    on(py, stream, || ops::split(&a.0, &sections, axis)).map(arrays)
}

/// Each element several times along an axis.
#[pyfunction]
#[pyo3(signature = (array, repeats, axis = None, *, stream = None))]
fn repeat(
    py: Python<'_>,
    array: ArrayArg,
    repeats: i64,
    axis: Option<i64>,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    on(py, stream, || ops::repeat(&array.0, repeats, axis)).map(PyArray::new)
}

/// The array several times beside itself.
#[pyfunction]
#[pyo3(signature = (a, reps, /, *, stream = None))]
fn tile(py: Python<'_>, a: ArrayArg, reps: ShapeArg, stream: Option<StreamArg>) -> PyResult<PyArray> {
    on(py, stream, || ops::tile(&a.0, &reps.0)).map(PyArray::new)
}

/// Widths before and after each axis: of one integer, of one pair, or of a list of pairs.
fn pad_widths(object: &Bound<'_, PyAny>, rank: usize) -> PyResult<Vec<(i64, i64)>> {
    if let Ok(width) = object.extract::<i64>() {
        return Ok(vec![(width, width); rank]);
    }
    if let Ok(widths) = object.extract::<Vec<i64>>() {
        return match widths[..] {
            [width] => Ok(vec![(width, width); rank]),
            [before, after] => Ok(vec![(before, after); rank]),
            _ => Err(PyValueError::new_err(
                "pad_width must be an integer, a pair or a list of pairs",
            )),
        };
    }
    let pairs: Vec<Vec<i64>> = object.extract()?;
    let pair = |widths: Vec<i64>| match widths[..] {
        [width] => Ok((width, width)),
        [before, after] => Ok((before, after)),
        _ => Err(PyValueError::new_err("each item of pad_width must be a pair")),
    };
    let pairs = pairs.into_iter().map(pair).collect::<PyResult<Vec<_>>>()?;
    match pairs[..] {
        [only] => Ok(vec![only; rank]),
        _ => Ok(pairs),
    }
}

/// The array with elements before and after each axis.
#[pyfunction]
#[pyo3(signature = (a, pad_width, mode = "constant", constant_values = OperandArg(Operand::Number(Number::Int(0))), *, stream = None))]
fn pad(
    py: Python<'_>,
    a: ArrayArg,
    pad_width: &Bound<'_, PyAny>,
    mode: &str,
    constant_values: OperandArg,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    let widths = pad_widths(pad_width, a.0.shape().len())?;
    let padding = match mode {
        "constant" => Padding::Constant(constant_values.0),
        "edge" => Padding::Edge,
        "reflect" | "symmetric" => {
            return Err(PyNotImplementedError::new_err(format!(
                "[pad] mode '{mode}' is not supported by Refrain yet"
            )));
        }
        _ => return Err(PyValueError::new_err(format!("[pad] Invalid padding mode ({mode})"))),
    };
    on(py, stream, || ops::pad(&a.0, &widths, &padding)).map(PyArray::new)
}

/// Elements at offsets of the flattened array.
#[pyfunction]
#[pyo3(signature = (a, /, shape = None, strides = None, offset = 0, *, stream = None))]
fn as_strided(
    py: Python<'_>,
    a: ArrayArg,
    shape: Option<Vec<i64>>,
    strides: Option<Vec<i64>>,
    offset: i64,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    on(py, stream, || {
        ops::as_strided(&a.0, shape.as_deref(), strides.as_deref(), offset)
    })
    .map(PyArray::new)
}

/// The array in memory of its own, row by row.
#[pyfunction]
#[pyo3(signature = (a, /, allow_col_major = false, *, stream = None))]
fn contiguous(py: Python<'_>, a: ArrayArg, allow_col_major: bool, stream: Option<StreamArg>) -> PyResult<PyArray> {
    let _ = allow_col_major;
    on(py, stream, || ops::contiguous(&a.0)).map(PyArray::new)
}

/// The elements shifted along axes; what leaves at one end enters at the other.
#[pyfunction]
#[pyo3(signature = (a, shift, axis = AxesArg(None), *, stream = None))]
fn roll(py: Python<'_>, a: ArrayArg, shift: ShapeArg, axis: AxesArg, stream: Option<StreamArg>) -> PyResult<PyArray> {
    let shifts = match &axis.0 {
        Some(axes) if shift.0.len() == 1 => vec![shift.0[0]; axes.len()],
        Some(axes) if shift.0.len() != axes.len() => {
            return Err(PyValueError::new_err("[roll] one shift for each axis is needed"));
        }
        Some(_) => shift.0,
        None => vec![shift.0.iter().sum()],
    };
    on(py, stream, || ops::roll(&a.0, &shifts, axis.as_deref())).map(PyArray::new)
}

macro_rules! triangles {
    ($($name:ident $doc:literal)*) => { $(
        #[doc = $doc]
        #[pyfunction]
        #[pyo3(signature = (x, k = 0, *, stream = None))]
        fn $name(py: Python<'_>, x: ArrayArg, k: i64, stream: Option<StreamArg>) -> PyResult<PyArray> {
            on(py, stream, || ops::$name(&x.0, k)).map(PyArray::new)
        }
    )* };
}

triangles! {
    tril "The elements on and below the k-th diagonal; zero elsewhere."
    triu "The elements on and above the k-th diagonal; zero elsewhere."
}

/// The elements of the k-th diagonal, or a matrix with them.
#[pyfunction]
#[pyo3(signature = (a, /, k = 0, *, stream = None))]
fn diag(py: Python<'_>, a: ArrayArg, k: i64, stream: Option<StreamArg>) -> PyResult<PyArray> {
    on(py, stream, || ops::diag(&a.0, k)).map(PyArray::new)
}

/// The diagonals of the matrices in two axes.
#[pyfunction]
#[pyo3(signature = (a, offset = 0, axis1 = 0, axis2 = 1, stream = None))]
fn diagonal(
    py: Python<'_>,
    a: ArrayArg,
    offset: i64,
    axis1: i64,
    axis2: i64,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    on(py, stream, || ops::diagonal(&a.0, offset, axis1, axis2)).map(PyArray::new)
}

/// The sum of a diagonal.
#[pyfunction]
#[pyo3(signature = (a, /, offset = 0, axis1 = 0, axis2 = 1, dtype = None, *, stream = None))]
fn trace(
    py: Python<'_>,
    a: ArrayArg,
    offset: i64,
    axis1: i64,
    axis2: i64,
    dtype: Option<PyDtype>,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    let dtype = dtype.map(|dtype| dtype.0);
    on(py, stream, || ops::trace(&a.0, offset, axis1, axis2, dtype)).map(PyArray::new)
}

/// Coordinates of a grid.
#[pyfunction]
#[pyo3(signature = (*arrays, sparse = false, indexing = "xy", stream = None))]
fn meshgrid<'py>(
    py: Python<'py>,
    arrays: Vec<ArrayArg>,
    sparse: bool,
    indexing: &str,
    stream: Option<StreamArg>,
) -> PyResult<Bound<'py, PyTuple>> {
    if !["xy", "ij"].contains(&indexing) {
        return Err(PyValueError::new_err(
            "[meshgrid] Invalid indexing value. Valid values are 'xy' and 'ij'.",
        ));
    }
    let values: Vec<Value> = arrays.into_iter().map(|array| array.0).collect();
    tuple(py, on(py, stream, || ops::meshgrid(&values, sparse, indexing == "xy"))?)
}

/// The inputs, which are computed after the dependencies. Operations have no effects but their results, so these are
/// the inputs themselves.
#[pyfunction]
fn depends<'py>(inputs: Bound<'py, PyAny>, dependencies: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if dependencies.is_none() {
        return Err(PyTypeError::new_err("depends needs arrays to depend on"));
    }
    Ok(inputs)
}

/// Adds the functions, and the other names that some have.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    for function in [
        wrap_pyfunction!(reshape, module)?,
        wrap_pyfunction!(flatten, module)?,
        wrap_pyfunction!(unflatten, module)?,
        wrap_pyfunction!(squeeze, module)?,
        wrap_pyfunction!(expand_dims, module)?,
        wrap_pyfunction!(flip, module)?,
        wrap_pyfunction!(moveaxis, module)?,
        wrap_pyfunction!(swapaxes, module)?,
        wrap_pyfunction!(transpose, module)?,
        wrap_pyfunction!(broadcast_to, module)?,
        wrap_pyfunction!(broadcast_arrays, module)?,
        wrap_pyfunction!(broadcast_shapes, module)?,
        wrap_pyfunction!(concatenate, module)?,
        wrap_pyfunction!(stack, module)?,
        wrap_pyfunction!(split, module)?,
        wrap_pyfunction!(repeat, module)?,
        wrap_pyfunction!(tile, module)?,
        wrap_pyfunction!(pad, module)?,
        wrap_pyfunction!(as_strided, module)?,
        wrap_pyfunction!(contiguous, module)?,
        wrap_pyfunction!(roll, module)?,
        wrap_pyfunction!(tril, module)?,
        wrap_pyfunction!(triu, module)?,
        wrap_pyfunction!(diag, module)?,
        wrap_pyfunction!(diagonal, module)?,
        wrap_pyfunction!(trace, module)?,
        wrap_pyfunction!(meshgrid, module)?,
        wrap_pyfunction!(depends, module)?,
    ] {
        module.add_function(function)?;
    }
    for (alias, name) in [("permute_dims", "transpose"), ("concat", "concatenate")] {
        module.add(alias, module.getattr(name)?)?;
    }
    Ok(())
}
