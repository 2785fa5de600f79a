//! Subscripts: `a[…]`, `a[…] = …`, `a.at[…]` and iteration.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PyInt, PyList, PySlice, PyString, PyTuple};
use refrain_mlx::index::{self, Index, Update};
use refrain_mlx::{Operand, Value};

use crate::array::PyArray;
use crate::convert::{OperandArg, buffer, on, type_name};
use crate::create;

/// An index or a bound of a slice.
fn position(object: &Bound<'_, PyAny>) -> PyResult<i64> {
    let position: i64 = object.extract()?;
    match i32::try_from(position) {
        Ok(_) => Ok(position),
        Err(_) => Err(PyValueError::new_err(format!("Index {position} does not fit 32 bits"))),
    }
}

/// One item of a subscript.
fn item(object: &Bound<'_, PyAny>) -> PyResult<Index> {
    if object.is_none() {
        return Ok(Index::NewAxis);
    }
    // Python's truth values are integers, too.
    if object.is_instance_of::<PyBool>() {
        return Err(PyValueError::new_err("Cannot index mlx array using the given type."));
    }
    if object.is_instance_of::<PyInt>() {
        return position(object).map(Index::Int);
    }
    if object.is_instance_of::<PySlice>() {
        let py = object.py();
        let bound = |name: &Bound<'_, PyString>| -> PyResult<Option<i64>> {
            let bound = object.getattr(name)?;
            if bound.is_none() {
                Ok(None)
            } else {
                position(&bound).map(Some)
            }
        };
        return Ok(Index::Slice {
            start: bound(intern!(py, "start"))?,
            stop: bound(intern!(py, "stop"))?,
            step: bound(intern!(py, "step"))?,
        });
    }
    if let Ok(array) = object.cast::<PyArray>() {
        return Ok(Index::Array(array.get().value()));
    }
    if object.is(PyEllipsis::get(object.py())) {
        return Ok(Index::Ellipsis);
    }
    if object.is_instance_of::<PyList>() {
        return create::from_object(object, None).map(Index::Array);
    }
    if let Some(value) = buffer(object, None)? {
        return Ok(Index::Array(value));
    }
    match object.extract::<i64>() {
        Ok(position) => Ok(Index::Int(position)),
        Err(_) => Err(PyValueError::new_err(format!(
            "Cannot index mlx array using the given type {}",
            type_name(object)
        ))),
    }
}

/// The items of a subscript.
fn subscript(object: &Bound<'_, PyAny>) -> PyResult<Vec<Index>> {
    match object.cast::<PyTuple>() {
        Ok(items) => items.iter().map(|one| item(&one)).collect(),
        Err(_) => Ok(vec![item(object)?]),
    }
}

/// What is assigned: an array, a number, or nested lists of them.
fn assigned(object: &Bound<'_, PyAny>) -> PyResult<Operand> {
    if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
        return create::from_object(object, None).map(Operand::Value);
    }
    Ok(object.extract::<OperandArg>()?.0)
}

#[pymethods]
impl PyArray {
    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<PyArray> {
        let items = subscript(key)?;
        on(key.py(), None, || index::get(&self.value(), &items)).map(PyArray::new)
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let items = match key.cast::<PyBool>() {
            // All elements, or none.
            Ok(_) => vec![Index::Array(create::from_object(key, None)?)],
            Err(_) => subscript(key)?,
        };
        let value = assigned(value)?;
        self.set(on(key.py(), None, || index::set(&self.value(), &items, &value))?);
        Ok(())
    }

    fn __iter__(slf: &Bound<'_, Self>) -> PyResult<ArrayIterator> {
        match slf.get().value().shape().first() {
            Some(&length) => Ok(ArrayIterator {
                value: slf.get().value(),
                next: 0,
                length,
            }),
            None => Err(PyTypeError::new_err("iteration over an array without dimensions")),
        }
    }

    /// Updates of parts that count every occurrence of a repeated index: `a.at[i].add(x)`.
    #[getter]
    fn at(&self) -> ArrayAt {
        ArrayAt {
            value: self.value(),
            items: None,
        }
    }
}

/// Iterates over the first axis.
#[pyclass(name = "ArrayIterator", module = "mlx.core")]
pub struct ArrayIterator {
    value: Value,
    next: usize,
    length: usize,
}

#[pymethods]
impl ArrayIterator {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<PyArray>> {
        if self.next == self.length {
            return Ok(None);
        }
        let position = Index::Int(self.next as i64);
        self.next += 1;
        on(py, None, || index::get(&self.value, &[position])).map(|value| Some(PyArray::new(value)))
    }
}

/// A part of an array, for updates that return the updated array.
#[pyclass(frozen, name = "ArrayAt", module = "mlx.core")]
pub struct ArrayAt {
    value: Value,
    items: Option<Vec<Index>>,
}

macro_rules! updates {
    ($($name:ident $update:ident;)*) => { $(
        #[pymethods]
        impl ArrayAt {
            fn $name(&self, value: &Bound<'_, PyAny>) -> PyResult<PyArray> {
                let operand = assigned(value)?;
                let Some(items) = &self.items else {
                    return Err(PyValueError::new_err("Must give indices to array.at: array.at[indices]"));
                };
                let update = || index::update(&self.value, items, &operand, Update::$update);
                on(value.py(), None, update).map(PyArray::new)
            }
        }
    )* };
}

updates! {
    add Add;
    subtract Subtract;
    multiply Multiply;
    divide Divide;
    maximum Maximum;
    minimum Minimum;
}

#[pymethods]
impl ArrayAt {
    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<ArrayAt> {
        Ok(ArrayAt {
            value: self.value.clone(),
            items: Some(subscript(key)?),
        })
    }
}

/// Adds the classes.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<ArrayAt>()?;
    module.add_class::<ArrayIterator>()
}
