//! `Dtype`: the type of an array's elements.

use std::hash::{DefaultHasher, Hash, Hasher};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use refrain_mlx::DType;

/// The type of an array's elements, for example `mlx.core.float32`.
#[pyclass(frozen, name = "Dtype", module = "mlx.core", from_py_object)]
#[derive(Clone, Copy, PartialEq)]
pub struct PyDtype(pub DType);

#[pymethods]
impl PyDtype {
    /// The size of an element in bytes.
    #[getter]
    fn size(&self) -> usize {
        self.0.size()
    }

    fn __repr__(&self) -> String {
        format!("mlx.core.{}", self.0.name())
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<PyDtype>().is_ok_and(|other| other.get().0 == self.0)
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.name().hash(&mut hasher);
        hasher.finish()
    }

    /// How `pickle` makes the dtype again.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (&'static str,))> {
        Ok((py.import("refrain._core")?.getattr("_dtype_named")?, (self.0.name(),)))
    }

    fn __copy__(&self) -> PyDtype {
        *self
    }

    fn __deepcopy__(&self, _memo: &Bound<'_, PyAny>) -> PyDtype {
        *self
    }
}

/// The dtype that a caller gave, or a default.
pub fn dtype_or(dtype: Option<PyDtype>, default: DType) -> DType {
    dtype.map_or(default, |dtype| dtype.0)
}

/// The name of a dtype in `mlx.core`.
pub fn python_name(dtype: DType) -> &'static str {
    match dtype.name() {
        "bool" => "bool_",
        name => name,
    }
}

/// Element type and item format (PEP 3118) of the elements that NumPy and the buffer protocol know.
const FORMATS: [(DType, &str); 13] = [
    (DType::Bool, "?"),
    (DType::U8, "B"),
    (DType::U16, "H"),
    (DType::U32, "I"),
    (DType::U64, "Q"),
    (DType::I8, "b"),
    (DType::I16, "h"),
    (DType::I32, "i"),
    (DType::I64, "q"),
    (DType::F16, "e"),
    (DType::F32, "f"),
    (DType::F64, "d"),
    (DType::C64, "Zf"),
];

/// The item format of `dtype` in the buffer protocol. There is none for bfloat16.
pub fn format_of(dtype: DType) -> Option<&'static str> {
    FORMATS
        .iter()
        .find(|(known, _)| *known == dtype)
        .map(|(_, format)| *format)
}

/// The dtype of a buffer's item format.
///
/// # Errors
/// `ValueError` for formats that no dtype has.
pub fn from_format(format: &str) -> PyResult<DType> {
    let native = format.trim_start_matches(['@', '=', '<']);
    let fixed = match native {
        "l" => "q",
        "L" => "Q",
        other => other,
    };
    let known = FORMATS.iter().find(|(_, known)| *known == fixed);
    known
        .map(|(dtype, _)| *dtype)
        .ok_or_else(|| PyValueError::new_err(format!("cannot convert a buffer of items {format:?} to an array")))
}

/// A dtype by its name; `pickle` calls it.
#[pyfunction]
#[pyo3(name = "_dtype_named")]
fn dtype_named(name: &str) -> PyResult<PyDtype> {
    let known = DType::ALL.into_iter().find(|dtype| dtype.name() == name);
    known
        .map(PyDtype)
        .ok_or_else(|| PyValueError::new_err(format!("there is no dtype {name}")))
}

/// The dtype of a result of both dtypes.
#[pyfunction]
#[pyo3(name = "_promote")]
fn promote(a: PyDtype, b: PyDtype) -> PyDtype {
    PyDtype(refrain_mlx::promote(a.0, b.0))
}

/// Adds the dtypes under their names.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyDtype>()?;
    module.add_function(wrap_pyfunction!(dtype_named, module)?)?;
    module.add_function(wrap_pyfunction!(promote, module)?)?;
    for dtype in DType::ALL {
        module.add(python_name(dtype), PyDtype(dtype))?;
    }
    Ok(())
}
