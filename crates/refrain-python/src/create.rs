//! Arrays from Python objects: numbers, nested lists, other arrays, buffers.

use pyo3::exceptions::{PyNotImplementedError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyComplex, PyList, PyTuple};
use refrain_mlx::{DType, Number, Value, ops};

use crate::array::PyArray;
use crate::convert::{ArrayArg, buffer, number, type_name};
use crate::dtype::PyDtype;
use crate::elements::from_numbers;
use crate::error::raise;

/// The dtype that MLX gives a list of numbers.
fn dtype_of(numbers: &[Number]) -> DType {
    let mut found = if numbers.is_empty() { DType::F32 } else { DType::Bool };
    for number in numbers {
        match number {
            Number::Float(_) => return DType::F32,
            Number::Int(value) if i32::try_from(*value).is_err() => found = DType::I64,
            Number::Int(_) if found == DType::Bool => found = DType::I32,
            Number::Int(_) | Number::Bool(_) => {}
        }
    }
    found
}

/// The items of a list or tuple.
fn items<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
    if let Ok(list) = object.cast::<PyList>() {
        return Ok(Some(list.iter().collect()));
    }
    if let Ok(tuple) = object.cast::<PyTuple>() {
        return Ok(Some(tuple.iter().collect()));
    }
    Ok(None)
}

/// Whether a nested list holds an array.
fn holds_array(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    match items(object)? {
        Some(items) => {
            for item in &items {
                if holds_array(item)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        None => Ok(object.is_instance_of::<PyArray>()
            || object.hasattr("__mlx_array__")?
            || (number(object)?.is_none() && object.hasattr("dtype")?)),
    }
}

/// Collects the numbers of a nested list and checks that its rows are equally long.
fn collect(object: &Bound<'_, PyAny>, depth: usize, shape: &mut Vec<usize>, numbers: &mut Vec<Number>) -> PyResult<()> {
    let uneven = || PyValueError::new_err("Initialization encountered non-uniform length.");
    if let Some(items) = items(object)? {
        match shape.get(depth) {
            None if numbers.is_empty() => shape.push(items.len()),
            Some(length) if *length == items.len() => {}
            _ => return Err(uneven()),
        }
        for item in &items {
            collect(item, depth + 1, shape, numbers)?;
        }
        return Ok(());
    }
    match number(object)? {
        Some(number) if depth == shape.len() => numbers.push(number),
        Some(_) => return Err(uneven()),
        None if object.is_instance_of::<PyComplex>() => return Err(no_complex()),
        None => {
            let message = format!("Invalid type {} received in array initialization.", type_name(object));
            return Err(PyValueError::new_err(message));
        }
    }
    Ok(())
}

fn no_complex() -> PyErr {
    PyNotImplementedError::new_err("arrays of complex numbers are not supported by Refrain yet")
}

/// Stacks nested lists of arrays and numbers.
fn stacked(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    let py = object.py();
    match items(object)? {
        Some(items) => {
            let parts = items.iter().map(stacked).collect::<PyResult<Vec<_>>>()?;
            ops::stack(&parts, 0).map_err(|error| raise(py, error))
        }
        None => from_object(object, None),
    }
}

/// The array that `mlx.core.array(object, dtype)` makes.
pub fn from_object(object: &Bound<'_, PyAny>, dtype: Option<DType>) -> PyResult<Value> {
    let py = object.py();
    let converted = |value: Value| match dtype {
        Some(dtype) if value.dtype() != dtype => ops::astype(&value, dtype).map_err(|error| raise(py, error)),
        _ => Ok(value),
    };
    if let Ok(ArrayArg(value)) = object.extract::<ArrayArg>() {
        return converted(value);
    }
    if let Some(number) = number(object)? {
        let dtype = dtype.unwrap_or_else(|| dtype_of(&[number]));
        return Value::from_bytes(&from_numbers(&[number], dtype)?, dtype, &[]).map_err(|error| raise(py, error));
    }
    if items(object)?.is_none() {
        return match buffer(object, dtype)? {
            Some(value) => converted(value),
            None => from_other(object, dtype),
        };
    }
    if holds_array(object)? {
        return converted(stacked(object)?);
    }
    let (mut shape, mut numbers) = (Vec::new(), Vec::new());
    collect(object, 0, &mut shape, &mut numbers)?;
    let dtype = dtype.unwrap_or_else(|| dtype_of(&numbers));
    let bytes = from_numbers(&numbers, dtype)?;
    Value::from_bytes(&bytes, dtype, &shape).map_err(|error| raise(py, error))
}

/// An array of an object that has none of the usual forms: through DLPack or `__array__`.
fn from_other(object: &Bound<'_, PyAny>, dtype: Option<DType>) -> PyResult<Value> {
    if object.hasattr("__array__")? {
        return from_object(&object.call_method0("__array__")?, dtype);
    }
    if object.is_instance_of::<PyComplex>() {
        return Err(no_complex());
    }
    Err(PyTypeError::new_err(format!(
        "cannot make an array of {}",
        type_name(object)
    )))
}

/// An array of elements in bytes; `pickle` calls it.
#[pyfunction]
#[pyo3(name = "_array_from_bytes")]
fn array_from_bytes(
    py: Python<'_>,
    content: &Bound<'_, PyBytes>,
    dtype: PyDtype,
    shape: Vec<usize>,
) -> PyResult<PyArray> {
    let value = Value::from_bytes(content.as_bytes(), dtype.0, &shape);
    value.map(PyArray::new).map_err(|error| raise(py, error))
}

/// Adds the function that `pickle` calls.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(array_from_bytes, module)?)
}
