//! Arguments of Python calls: numbers and arrays, axes, shapes, streams.

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyMemoryView, PyString, PyTuple};
use pyo3::{Borrowed, intern};
use refrain_mlx::{DType, Number, Operand, Value};

use crate::array::PyArray;
use crate::dtype::from_format;
use crate::elements;
use crate::error::raise;

/// An argument that must be an array.
pub struct ArrayArg(pub Value);

impl<'py> FromPyObject<'_, 'py> for ArrayArg {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<ArrayArg> {
        if let Ok(array) = object.cast::<PyArray>() {
            return Ok(ArrayArg(array.get().value()));
        }
        match array_protocol(&object)? {
            Some(value) => Ok(ArrayArg(value)),
            None => Err(PyTypeError::new_err(format!(
                "expected an array, not {}",
                type_name(&object)
            ))),
        }
    }
}

/// An argument that is an array, a number or something that holds an array.
pub struct OperandArg(pub Operand);

impl<'py> FromPyObject<'_, 'py> for OperandArg {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<OperandArg> {
        if let Ok(array) = object.cast::<PyArray>() {
            return Ok(OperandArg(Operand::Value(array.get().value())));
        }
        if let Some(number) = number(&object)? {
            return Ok(OperandArg(Operand::Number(number)));
        }
        if let Some(value) = array_protocol(&object)? {
            return Ok(OperandArg(Operand::Value(value)));
        }
        if let Some(value) = buffer(&object, None)? {
            return Ok(OperandArg(Operand::Adapting(value)));
        }
        if object.hasattr(intern!(object.py(), "__float__"))? {
            return Ok(OperandArg(Operand::Number(Number::Float(object.extract()?))));
        }
        let message = format!("expected a number or an array, not {}", type_name(&object));
        Err(PyTypeError::new_err(message))
    }
}

impl OperandArg {
    /// The operand as an array of its own dtype.
    pub fn into_value(self, py: Python<'_>) -> PyResult<Value> {
        self.0.value().map_err(|error| raise(py, error))
    }
}

/// The class name of an object, for messages.
pub fn type_name(object: &Bound<'_, PyAny>) -> String {
    object
        .get_type()
        .name()
        .map_or_else(|_| "?".to_owned(), |name| name.to_string())
}

/// A Python number, or nothing where the object is none.
pub fn number(object: &Bound<'_, PyAny>) -> PyResult<Option<Number>> {
    if let Ok(value) = object.cast::<PyBool>() {
        return Ok(Some(Number::Bool(value.is_true())));
    }
    if object.is_instance_of::<PyInt>() {
        let whole = object
            .extract::<i64>()
            .or_else(|_| object.extract::<u64>().map(|n| n.cast_signed()));
        let whole = whole.map_err(|_| PyValueError::new_err(format!("{object} does not fit 64 bits")))?;
        return Ok(Some(Number::Int(whole)));
    }
    match object.cast::<PyFloat>() {
        Ok(value) => Ok(Some(Number::Float(value.extract()?))),
        Err(_) => Ok(None),
    }
}

/// What `__mlx_array__` returns, where an object has it.
fn array_protocol(object: &Bound<'_, PyAny>) -> PyResult<Option<Value>> {
    match object.getattr_opt(intern!(object.py(), "__mlx_array__"))? {
        Some(method) => {
            let made = method.call0()?;
            let made = made
                .cast::<PyArray>()
                .map_err(|_| PyTypeError::new_err("__mlx_array__ returned no array"))?;
            Ok(Some(made.get().value()))
        }
        None => Ok(None),
    }
}

/// An array of the elements in an object's buffer (NumPy arrays and scalars, `bytes`, `memoryview`), copied, for an
/// array of `wanted` or of the dtype of the elements.
pub fn buffer(object: &Bound<'_, PyAny>, wanted: Option<DType>) -> PyResult<Option<Value>> {
    let py = object.py();
    let (view, reinterpreted) = match PyMemoryView::from(object) {
        Ok(view) => (view, None),
        Err(_) => match bfloat16_words(object)? {
            Some(view) => (view, Some(DType::BF16)),
            None => return Ok(None),
        },
    };
    let dtype = match reinterpreted {
        Some(dtype) => dtype,
        None => from_format(&view.getattr("format")?.extract::<String>()?)?,
    };
    let shape: Vec<usize> = view.getattr("shape")?.extract()?;
    if let Some(extent) = shape.iter().find(|&&extent| i32::try_from(extent).is_err()) {
        return Err(PyOverflowError::new_err(format!(
            "Shape dimension {extent} is outside the supported range [-2147483648, 2147483647]. MLX currently uses \
             32-bit integers for shape dimensions."
        )));
    }
    let bytes = view.call_method0("tobytes")?;
    let bytes: &[u8] = bytes.extract()?;
    let (bytes, dtype) = elements::narrowed(bytes, dtype, wanted);
    Value::from_bytes(&bytes, dtype, &shape)
        .map(Some)
        .map_err(|error| raise(py, error))
}

/// The words of a NumPy array of `ml_dtypes.bfloat16`, which has no buffer of its own.
fn bfloat16_words<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyMemoryView>>> {
    let Some(dtype) = object.getattr_opt("dtype")? else {
        return Ok(None);
    };
    match dtype.getattr_opt("name")? {
        Some(name) if name.eq("bfloat16")? => PyMemoryView::from(&object.call_method1("view", ("uint16",))?).map(Some),
        _ => Ok(None),
    }
}

/// An axis, several axes, or none.
#[derive(Default)]
pub struct AxesArg(pub Option<Vec<i64>>);

impl<'py> FromPyObject<'_, 'py> for AxesArg {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<AxesArg> {
        if object.is_none() {
            return Ok(AxesArg(None));
        }
        Ok(AxesArg(Some(integers(&object)?)))
    }
}

impl AxesArg {
    /// The axes as operations take them.
    pub fn as_deref(&self) -> Option<&[i64]> {
        self.0.as_deref()
    }
}

/// The dimensions of a shape: one integer or several.
pub struct ShapeArg(pub Vec<i64>);

impl<'py> FromPyObject<'_, 'py> for ShapeArg {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<ShapeArg> {
        integers(&object).map(ShapeArg)
    }
}

/// One integer, or a sequence of integers.
fn integers(object: &Bound<'_, PyAny>) -> PyResult<Vec<i64>> {
    if object.is_instance_of::<PyInt>() {
        return Ok(vec![object.extract()?]);
    }
    if let Ok(several) = object.cast_exact::<PyTuple>() {
        return each_integer(several);
    }
    if object.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err("expected integers, not a string"));
    }
    match object.extract::<Vec<i64>>() {
        Ok(several) => Ok(several),
        Err(error) => object.extract::<i64>().map(|one| vec![one]).map_err(|_| error),
    }
}

/// The arguments of a method that takes integers one by one or as one sequence, such as `reshape`.
pub fn variadic_integers(arguments: &Bound<'_, PyTuple>) -> PyResult<Vec<i64>> {
    if arguments.len() == 1 {
        return integers(&arguments.get_item(0)?);
    }
    each_integer(arguments)
}

/// The integers in a tuple. Programs pass axes and shapes as tuples, for which this is faster than an iterator.
fn each_integer(objects: &Bound<'_, PyTuple>) -> PyResult<Vec<i64>> {
    objects.iter().map(|object| object.extract()).collect()
}

/// The argument `stream=`: a stream, a device or a kind of device. One device computes everything, so it is only
/// checked.
pub struct StreamArg;

impl<'py> FromPyObject<'_, 'py> for StreamArg {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<StreamArg> {
        // The classes are Python's (refrain/mlx/streams.py). The method checks that the stream belongs to the calling
        // thread.
        match object.getattr_opt(intern!(object.py(), "_use"))? {
            Some(check) => check.call0().map(|_| StreamArg),
            None => Err(PyTypeError::new_err(format!(
                "expected a stream or a device, not {}",
                type_name(&object)
            ))),
        }
    }
}

/// Makes an operation; its error becomes the exception that MLX raises.
pub fn on<T>(py: Python<'_>, stream: Option<StreamArg>, make: impl FnOnce() -> refrain_mlx::Result<T>) -> PyResult<T> {
    let _ = stream;
    make().map_err(|error| raise(py, error))
}
