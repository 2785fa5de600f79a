//! Elements of arrays as Python objects.

use std::borrow::Cow;

use half::{bf16, f16};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyComplex, PyList};
use refrain_mlx::{DType, Number};

/// The first `N` bytes of `bytes`.
fn word<const N: usize>(bytes: &[u8]) -> [u8; N] {
    std::array::from_fn(|at| bytes[at])
}

/// The element in `bytes` as a Python object.
pub fn to_object<'py>(py: Python<'py>, bytes: &[u8], dtype: DType) -> PyResult<Bound<'py, PyAny>> {
    match dtype {
        DType::Bool => (bytes[0] != 0).into_bound_py_any(py),
        DType::U8 => bytes[0].into_bound_py_any(py),
        DType::I8 => bytes[0].cast_signed().into_bound_py_any(py),
        DType::U16 => u16::from_le_bytes(word(bytes)).into_bound_py_any(py),
        DType::I16 => i16::from_le_bytes(word(bytes)).into_bound_py_any(py),
        DType::U32 => u32::from_le_bytes(word(bytes)).into_bound_py_any(py),
        DType::I32 => i32::from_le_bytes(word(bytes)).into_bound_py_any(py),
        DType::U64 => u64::from_le_bytes(word(bytes)).into_bound_py_any(py),
        DType::I64 => i64::from_le_bytes(word(bytes)).into_bound_py_any(py),
        DType::F16 => f16::from_le_bytes(word(bytes)).to_f32().into_bound_py_any(py),
        DType::BF16 => bf16::from_le_bytes(word(bytes)).to_f32().into_bound_py_any(py),
        DType::F32 => f32::from_le_bytes(word(bytes)).into_bound_py_any(py),
        DType::F64 => f64::from_le_bytes(word(bytes)).into_bound_py_any(py),
        DType::C64 => {
            let real = f32::from_le_bytes(word(bytes));
            let imaginary = f32::from_le_bytes(word(&bytes[4..]));
            PyComplex::from_doubles(py, real.into(), imaginary.into()).into_bound_py_any(py)
        }
    }
}

/// Elements as nested lists.
pub fn to_lists<'py>(py: Python<'py>, bytes: &[u8], dtype: DType, shape: &[usize]) -> PyResult<Bound<'py, PyAny>> {
    let Some((&first, inner)) = shape.split_first() else {
        return to_object(py, bytes, dtype);
    };
    let stride = inner.iter().product::<usize>() * dtype.size();
    let list = PyList::empty(py);
    for at in 0..first {
        list.append(to_lists(py, &bytes[at * stride..(at + 1) * stride], dtype, inner)?)?;
    }
    Ok(list.into_any())
}

/// Elements of NumPy's default dtypes as elements of 32 bits: doubles, as MLX does where nothing else is `wanted`, and
/// integers that fit, until there are arrays of 64 bits.
pub fn narrowed(bytes: &[u8], dtype: DType, wanted: Option<DType>) -> (Cow<'_, [u8]>, DType) {
    match dtype {
        DType::F64 if wanted != Some(DType::F64) => {
            let single = |bytes: &[u8]| (f64::from_le_bytes(word(bytes)) as f32).to_le_bytes();
            (bytes.chunks_exact(8).flat_map(single).collect(), DType::F32)
        }
        DType::I64 if wanted != Some(DType::I64) && !DType::I64.is_supported() => {
            let narrow = |bytes: &[u8]| i32::try_from(i64::from_le_bytes(word(bytes)));
            match bytes.chunks_exact(8).map(narrow).collect::<Result<Vec<_>, _>>() {
                Ok(narrow) => (narrow.into_iter().flat_map(i32::to_le_bytes).collect(), DType::I32),
                Err(_) => (Cow::Borrowed(bytes), dtype),
            }
        }
        _ => (Cow::Borrowed(bytes), dtype),
    }
}

/// The bytes of `numbers` as elements of `dtype`.
///
/// # Errors
/// `ValueError` for a dtype that numbers are not converted to.
pub fn from_numbers(numbers: &[Number], dtype: DType) -> PyResult<Vec<u8>> {
    let mut bytes = Vec::with_capacity(numbers.len() * dtype.size());
    for &number in numbers {
        match dtype {
            DType::Bool => bytes.push(u8::from(float(number) != 0.0)),
            DType::U8 | DType::I8 => bytes.extend_from_slice(&integer(number).to_le_bytes()[..1]),
            DType::U16 | DType::I16 => bytes.extend_from_slice(&integer(number).to_le_bytes()[..2]),
            DType::U32 | DType::I32 => bytes.extend_from_slice(&integer(number).to_le_bytes()[..4]),
            DType::U64 | DType::I64 => bytes.extend_from_slice(&integer(number).to_le_bytes()),
            DType::F16 => bytes.extend_from_slice(&f16::from_f64(float(number)).to_le_bytes()),
            DType::BF16 => bytes.extend_from_slice(&bf16::from_f64(float(number)).to_le_bytes()),
            DType::F32 => bytes.extend_from_slice(&single(number).to_le_bytes()),
            DType::F64 => bytes.extend_from_slice(&float(number).to_le_bytes()),
            DType::C64 => {
                bytes.extend_from_slice(&single(number).to_le_bytes());
                bytes.extend_from_slice(&0f32.to_le_bytes());
            }
        }
    }
    if bytes.len() == numbers.len() * dtype.size() {
        return Ok(bytes);
    }
    Err(PyValueError::new_err(format!(
        "cannot make elements of {} from numbers",
        dtype.name()
    )))
}

fn single(number: Number) -> f32 {
    float(number) as f32
}

fn float(number: Number) -> f64 {
    match number {
        Number::Bool(value) => f64::from(u8::from(value)),
        Number::Int(value) => value as f64,
        Number::Float(value) => value,
    }
}

fn integer(number: Number) -> i64 {
    match number {
        Number::Bool(value) => i64::from(value),
        Number::Int(value) => value,
        Number::Float(value) => value as i64,
    }
}
