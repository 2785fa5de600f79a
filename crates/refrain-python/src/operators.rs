//! The operators of `array`.

// PyO3's attribute macros make such functions, and say so only where they expand in a macro.
#![allow(unsafe_op_in_unsafe_fn)]

use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBool;
use refrain_mlx::{Number, Operand, Result, Value, ops};

use crate::array::PyArray;
use crate::convert::{OperandArg, on, type_name};

/// An operation of two operands.
type Binary = fn(&Operand, &Operand) -> Result<Value>;

/// Computes an operator; `word` names it when the other side is no operand.
fn binary(
    slf: &PyArray,
    other: &Bound<'_, PyAny>,
    word: &str,
    operation: impl FnOnce(&Operand, &Operand) -> Result<Value>,
) -> PyResult<Value> {
    check_not_none(other, word)?;
    let Ok(other_side) = other.extract::<OperandArg>() else {
        let message = format!("Cannot perform {word} on an mlx.core.array and {}", type_name(other));
        return Err(PyValueError::new_err(message));
    };
    let is_floating = |side: &Operand| match side {
        Operand::Value(value) => value.dtype().is_floating(),
        Operand::Number(number) => matches!(number, Number::Float(_)),
        Operand::Adapting(_) => false,
    };
    let own = slf.operand();
    if word.starts_with("bitwise") && (is_floating(&own) || is_floating(&other_side.0)) {
        return Err(PyValueError::new_err(format!(
            "Floating point types not allowed with {word}"
        )));
    }
    on(other.py(), None, || operation(&own, &other_side.0))
}

/// MLX does not take `None`, even where it compares other objects.
fn check_not_none(other: &Bound<'_, PyAny>, word: &str) -> PyResult<()> {
    if other.is_none() {
        let message = format!("Cannot perform {word} on an mlx.core.array and None");
        return Err(PyTypeError::new_err(message));
    }
    Ok(())
}

macro_rules! operators {
    ($($plain:ident $reflected:ident $in_place:ident $operation:ident $word:literal;)*) => { $(
        #[pymethods]
        impl PyArray {
            fn $plain(&self, other: &Bound<'_, PyAny>) -> PyResult<PyArray> {
                binary(self, other, $word, ops::$operation).map(PyArray::new)
            }

            fn $reflected(&self, other: &Bound<'_, PyAny>) -> PyResult<PyArray> {
                binary(self, other, $word, |a, b| ops::$operation(b, a)).map(PyArray::new)
            }

            fn $in_place(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
                self.set(binary(self, other, $word, ops::$operation)?);
                Ok(())
            }
        }
    )* };
}

operators! {
    __add__ __radd__ __iadd__ add "addition";
    __sub__ __rsub__ __isub__ subtract "subtraction";
    __mul__ __rmul__ __imul__ multiply "multiplication";
    __floordiv__ __rfloordiv__ __ifloordiv__ floor_divide "floor division";
    __mod__ __rmod__ __imod__ remainder "modulus";
    __and__ __rand__ __iand__ bitwise_and "bitwise and";
    __or__ __ror__ __ior__ bitwise_or "bitwise or";
    __xor__ __rxor__ __ixor__ bitwise_xor "bitwise xor";
    __lshift__ __rlshift__ __ilshift__ left_shift "left shift";
    __rshift__ __rrshift__ __irshift__ right_shift "right shift";
}

/// The matrix product of two operands that must both be arrays.
fn matmul(a: &Operand, b: &Operand) -> Result<Value> {
    ops::matmul(&a.value()?, &b.value()?)
}

#[pymethods]
impl PyArray {
    fn __truediv__(&self, other: &Bound<'_, PyAny>) -> PyResult<PyArray> {
        binary(self, other, "division", ops::divide).map(PyArray::new)
    }

    fn __rtruediv__(&self, other: &Bound<'_, PyAny>) -> PyResult<PyArray> {
        binary(self, other, "division", |a, b| ops::divide(b, a)).map(PyArray::new)
    }

    fn __itruediv__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        check_not_none(other, "division")?;
        if !self.value().dtype().is_floating() {
            return Err(PyValueError::new_err(
                "In place division cannot be performed on integer arrays",
            ));
        }
        self.set(binary(self, other, "division", ops::divide)?);
        Ok(())
    }

    fn __matmul__(&self, other: &Bound<'_, PyAny>) -> PyResult<PyArray> {
        binary(self, other, "matrix multiplication", matmul).map(PyArray::new)
    }

    fn __rmatmul__(&self, other: &Bound<'_, PyAny>) -> PyResult<PyArray> {
        binary(self, other, "matrix multiplication", |a, b| matmul(b, a)).map(PyArray::new)
    }

    fn __imatmul__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.set(binary(self, other, "matrix multiplication", matmul)?);
        Ok(())
    }

    fn __pow__(&self, other: &Bound<'_, PyAny>, _modulus: &Bound<'_, PyAny>) -> PyResult<PyArray> {
        binary(self, other, "power", ops::power).map(PyArray::new)
    }

    fn __rpow__(&self, other: &Bound<'_, PyAny>, _modulus: &Bound<'_, PyAny>) -> PyResult<PyArray> {
        binary(self, other, "power", |a, b| ops::power(b, a)).map(PyArray::new)
    }

    fn __ipow__(&self, other: &Bound<'_, PyAny>, _modulus: &Bound<'_, PyAny>) -> PyResult<()> {
        self.set(binary(self, other, "power", ops::power)?);
        Ok(())
    }

    fn __neg__(&self, py: Python<'_>) -> PyResult<PyArray> {
        on(py, None, || ops::negative(&self.operand())).map(PyArray::new)
    }

    fn __pos__(&self) -> PyArray {
        PyArray::new(self.value())
    }

    fn __abs__(&self, py: Python<'_>) -> PyResult<PyArray> {
        on(py, None, || ops::abs(&self.operand())).map(PyArray::new)
    }

    fn __invert__(&self, py: Python<'_>) -> PyResult<PyArray> {
        on(py, None, || ops::bitwise_invert(&self.operand())).map(PyArray::new)
    }

    fn __richcmp__<'py>(&self, other: &Bound<'py, PyAny>, compare: CompareOp) -> PyResult<Bound<'py, PyAny>> {
        let py = other.py();
        let (operation, word): (Binary, &str) = match compare {
            CompareOp::Eq => (ops::equal, "equal"),
            CompareOp::Ne => (ops::not_equal, "not equal"),
            CompareOp::Lt => (ops::less, "less than"),
            CompareOp::Le => (ops::less_equal, "less than or equal"),
            CompareOp::Gt => (ops::greater, "greater than"),
            CompareOp::Ge => (ops::greater_equal, "greater than or equal"),
        };
        check_not_none(other, word)?;
        let comparable = other.extract::<OperandArg>().is_ok();
        match compare {
            CompareOp::Eq if !comparable => Ok(PyBool::new(py, false).to_owned().into_any()),
            CompareOp::Ne if !comparable => Ok(PyBool::new(py, true).to_owned().into_any()),
            _ => Ok(Bound::new(py, PyArray::new(binary(self, other, word, operation)?))?.into_any()),
        }
    }
}
