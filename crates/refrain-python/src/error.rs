//! Errors as the exceptions that MLX raises.

use pyo3::exceptions::{PyIndexError, PyMemoryError, PyNotImplementedError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};
use refrain_mlx::{Error, ErrorKind};

/// The exception of a bad axis: an `IndexError` and a `ValueError` at once, like NumPy's `AxisError`. MLX 0.32.2
/// raised the one, 0.32.4 raises the other.
static AXIS_ERROR: PyOnceLock<Py<PyType>> = PyOnceLock::new();

fn axis_error(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    let class = AXIS_ERROR.get_or_try_init(py, || {
        let bases = PyTuple::new(py, [py.get_type::<PyIndexError>(), py.get_type::<PyValueError>()])?;
        let content = PyDict::new(py);
        content.set_item("__module__", "mlx.core")?;
        content.set_item("__doc__", "An axis that the array does not have.")?;
        let made = py.get_type::<PyType>().call1(("AxisError", bases, content))?;
        PyResult::Ok(made.cast_into::<PyType>()?.unbind())
    })?;
    Ok(class.bind(py))
}

/// The exception for `error`.
pub fn raise(py: Python<'_>, error: Error) -> PyErr {
    let message = error.to_string();
    match error.kind {
        ErrorKind::Value => PyValueError::new_err(message),
        ErrorKind::Index => PyIndexError::new_err(message),
        ErrorKind::Axis => match axis_error(py) {
            Ok(class) => PyErr::from_type(class.clone(), message),
            Err(failed) => failed,
        },
        ErrorKind::Type => PyTypeError::new_err(message),
        ErrorKind::Memory => PyMemoryError::new_err(message),
        // A subclass of RuntimeError, which is what MLX raises.
        ErrorKind::NotImplemented => PyNotImplementedError::new_err(message),
        _ => PyRuntimeError::new_err(message),
    }
}

/// Adds the class of errors about axes.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("_AxisError", axis_error(module.py())?)
}
