//! `array`: a Python object that holds a value. Assigning to a part of it gives it another value; other objects that
//! held the old value keep it.

use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use pyo3::{IntoPyObjectExt, intern};
use refrain_mlx::{Operand, Value, ops};

use crate::control::check_process;
use crate::convert::{StreamArg, on, type_name, variadic_integers};
use crate::create;
use crate::dtype::PyDtype;
use crate::elements;
use crate::error::raise;

/// An N-dimensional array. It is lazy: its elements are computed when something reads them.
#[pyclass(frozen, weakref, name = "array", module = "mlx.core")]
pub struct PyArray {
    // Never held while anything else is locked or computed.
    value: Mutex<Value>,
}

impl PyArray {
    /// An object that holds `value`.
    pub fn new(value: Value) -> PyArray {
        PyArray {
            value: Mutex::new(value),
        }
    }

    /// The value that the object holds now.
    pub fn value(&self) -> Value {
        self.value.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The value as an operand.
    pub fn operand(&self) -> Operand {
        Operand::Value(self.value())
    }

    /// Gives the object another value.
    pub fn set(&self, value: Value) {
        *self.value.lock().unwrap_or_else(PoisonError::into_inner) = value;
    }

    /// The elements, row by row. Other Python threads run while they are computed.
    pub fn bytes(&self, py: Python<'_>) -> PyResult<Vec<u8>> {
        check_process()?;
        let value = self.value();
        py.detach(move || value.to_bytes()).map_err(|error| raise(py, error))
    }

    /// The only element, as a Python number.
    pub fn scalar<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if self.value().size() != 1 {
            return Err(PyValueError::new_err(
                "[convert] Only length-1 arrays can be converted to Python scalars.",
            ));
        }
        let bytes = self.bytes(py)?;
        elements::to_object(py, &bytes, self.value().dtype())
    }
}

#[pymethods]
impl PyArray {
    #[new]
    #[pyo3(signature = (val, dtype = None))]
    fn create(val: &Bound<'_, PyAny>, dtype: Option<PyDtype>) -> PyResult<PyArray> {
        create::from_object(val, dtype.map(|dtype| dtype.0)).map(PyArray::new)
    }

    /// The dimensions.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.value().shape())
    }

    /// The number of dimensions.
    #[getter]
    fn ndim(&self) -> usize {
        self.value().shape().len()
    }

    /// The number of elements.
    #[getter]
    fn size(&self) -> usize {
        self.value().size()
    }

    /// The bytes of an element.
    #[getter]
    fn itemsize(&self) -> usize {
        self.value().dtype().size()
    }

    /// The bytes of all elements.
    #[getter]
    fn nbytes(&self) -> usize {
        let value = self.value();
        value.size() * value.dtype().size()
    }

    /// The type of the elements.
    #[getter]
    fn dtype(&self) -> PyDtype {
        PyDtype(self.value().dtype())
    }

    /// The array with its axes reversed.
    #[getter(T)]
    fn reversed_axes(&self, py: Python<'_>) -> PyResult<PyArray> {
        on(py, None, || ops::transpose(&self.value(), None)).map(PyArray::new)
    }

    /// The array with its last two axes swapped.
    #[getter(mT)]
    fn matrix_transposed(&self, py: Python<'_>) -> PyResult<PyArray> {
        let value = self.value();
        if value.shape().len() < 2 {
            return Err(PyValueError::new_err("mT needs an array of at least 2 dimensions"));
        }
        on(py, None, || ops::swapaxes(&value, -1, -2)).map(PyArray::new)
    }

    /// The only element as a Python number.
    fn item<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.scalar(py)
    }

    /// The elements as nested lists; of an array without dimensions, its element.
    fn tolist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let bytes = self.bytes(py)?;
        let value = self.value();
        elements::to_lists(py, &bytes, value.dtype(), value.shape())
    }

    fn __len__(&self) -> PyResult<usize> {
        let first = self.value().shape().first().copied();
        first.ok_or_else(|| PyTypeError::new_err("len() of an array without dimensions"))
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        self.scalar(py)?.is_truthy()
    }

    fn __float__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let element = self.scalar(py)?;
        py.get_type::<pyo3::types::PyFloat>().call1((element,))
    }

    fn __int__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let element = self.scalar(py)?;
        py.get_type::<pyo3::types::PyInt>().call1((element,))
    }

    fn __complex__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let element = self.scalar(py)?;
        py.get_type::<pyo3::types::PyComplex>().call1((element,))
    }

    fn __index__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let value = self.value();
        if !value.dtype().is_integer() || value.size() != 1 {
            return Err(PyTypeError::new_err(
                "only integer arrays of one element can be an index",
            ));
        }
        self.scalar(py)
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.bytes(py)?))
    }

    fn __hash__(slf: &Bound<'_, Self>) -> usize {
        slf.as_ptr().addr() >> 4
    }

    fn __repr__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let printing = slf.py().import(intern!(slf.py(), "refrain.mlx.printing"))?;
        printing.call_method1("representation", (slf,))
    }

    fn __format__<'py>(slf: &Bound<'py, Self>, spec: &str) -> PyResult<Bound<'py, PyAny>> {
        if slf.get().value().shape().is_empty() {
            return slf.get().scalar(slf.py())?.call_method1("__format__", (spec,));
        }
        if spec.is_empty() {
            return slf.str()?.into_bound_py_any(slf.py());
        }
        Err(PyTypeError::new_err(
            "unsupported format string passed to array.__format__",
        ))
    }

    fn __copy__(&self) -> PyArray {
        PyArray::new(self.value())
    }

    fn __deepcopy__(&self, _memo: &Bound<'_, PyAny>) -> PyArray {
        PyArray::new(self.value())
    }

    /// How `pickle` makes the array again.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        let value = slf.get().value();
        let content = PyBytes::new(py, &slf.get().bytes(py)?);
        let parts = (content, PyDtype(value.dtype()), PyTuple::new(py, value.shape())?);
        let rebuild = py.import("refrain._core")?.getattr("_array_from_bytes")?;
        (rebuild, parts).into_pyobject(py)
    }

    /// Sets what `__reduce__` describes: bytes, dtype, shape.
    fn __setstate__(&self, py: Python<'_>, state: (Vec<u8>, PyDtype, Vec<usize>)) -> PyResult<()> {
        let (bytes, dtype, shape) = state;
        self.set(Value::from_bytes(&bytes, dtype.0, &shape).map_err(|error| raise(py, error))?);
        Ok(())
    }

    /// The elements converted to `dtype`.
    #[pyo3(signature = (dtype, stream = None))]
    fn astype(&self, py: Python<'_>, dtype: &Bound<'_, PyAny>, stream: Option<StreamArg>) -> PyResult<PyArray> {
        let Ok(dtype) = dtype.cast::<PyDtype>() else {
            return Err(PyTypeError::new_err(format!(
                "expected a Dtype, not {}",
                type_name(dtype)
            )));
        };
        on(py, stream, || ops::astype(&self.value(), dtype.get().0)).map(PyArray::new)
    }

    /// The elements in another shape.
    #[pyo3(signature = (*shape, stream = None))]
    fn reshape(&self, py: Python<'_>, shape: &Bound<'_, PyTuple>, stream: Option<StreamArg>) -> PyResult<PyArray> {
        let shape = variadic_integers(shape)?;
        on(py, stream, || ops::reshape(&self.value(), &shape)).map(PyArray::new)
    }

    /// The array with its axes in another order; reversed without arguments.
    #[pyo3(signature = (*axes, stream = None))]
    fn transpose(&self, py: Python<'_>, axes: &Bound<'_, PyTuple>, stream: Option<StreamArg>) -> PyResult<PyArray> {
        let axes = if axes.is_empty() || (axes.len() == 1 && axes.get_item(0)?.is_none()) {
            None
        } else {
            Some(variadic_integers(axes)?)
        };
        on(py, stream, || ops::transpose(&self.value(), axes.as_deref())).map(PyArray::new)
    }

    /// The array with two axes swapped.
    #[pyo3(signature = (axis1, axis2, *, stream = None))]
    fn swapaxes(&self, py: Python<'_>, axis1: i64, axis2: i64, stream: Option<StreamArg>) -> PyResult<PyArray> {
        on(py, stream, || ops::swapaxes(&self.value(), axis1, axis2)).map(PyArray::new)
    }
}
