//! Functions of one, two or three operands, element by element.

use pyo3::prelude::*;
use refrain_mlx::ops;

use crate::array::PyArray;
use crate::convert::{ArrayArg, OperandArg, StreamArg, on};
use crate::dtype::PyDtype;

/// Functions of one operand whose arguments have one signature, and the function that registers them.
macro_rules! unary {
    ($register:ident $signature:tt $($name:ident $doc:literal)*) => {
        $(
            #[doc = $doc]
            #[pyfunction]
            #[pyo3(signature = $signature)]
            fn $name(py: Python<'_>, a: OperandArg, stream: Option<StreamArg>) -> PyResult<PyArray> {
                on(py, stream, || ops::$name(&a.0)).map(PyArray::new)
            }
        )*

        fn $register(module: &Bound<'_, PyModule>) -> PyResult<()> {
            $( module.add_function(wrap_pyfunction!($name, module)?)?; )*
            Ok(())
        }
    };
}

unary! {
    register_unary(a, /, *, stream = None)
    abs "The absolute value."
    sign "-1, 0 or 1."
    negative "The negated elements."
    exp "The exponential."
    expm1 "exp(a) - 1."
    log "The natural logarithm."
    log1p "log(1 + a)."
    log2 "The logarithm to base 2."
    log10 "The logarithm to base 10."
    sqrt "The square root."
    rsqrt "1 / sqrt(a)."
    square "The square."
    reciprocal "1 / a."
    sin "The sine."
    cos "The cosine."
    tan "The tangent."
    sinh "The hyperbolic sine."
    cosh "The hyperbolic cosine."
    tanh "The hyperbolic tangent."
    arcsin "The inverse sine."
    arccos "The inverse cosine."
    arctan "The inverse tangent."
    arcsinh "The inverse hyperbolic sine."
    arccosh "The inverse hyperbolic cosine."
    arctanh "The inverse hyperbolic tangent."
    sigmoid "1 / (1 + exp(-a))."
    erf "The error function."
    erfinv "The inverse of the error function."
    floor "The greatest integer that is not greater."
    ceil "The least integer that is not less."
    trunc "The integer part."
    logical_not "Whether the element is zero."
    degrees "Radians as degrees."
    radians "Degrees as radians."
}

unary! {
    register_unary_with_stream(a, stream = None)
    isnan "Whether the element is no number."
    isinf "Whether the element is infinite."
    isfinite "Whether the element is neither infinite nor no number."
    isposinf "Whether the element is positive infinity."
    isneginf "Whether the element is negative infinity."
    bitwise_invert "The inverted bits."
}

macro_rules! binary {
    ($($name:ident $doc:literal)*) => {
        $(
            #[doc = $doc]
            #[pyfunction]
            #[pyo3(signature = (a, b, stream = None))]
            fn $name(py: Python<'_>, a: OperandArg, b: OperandArg, stream: Option<StreamArg>) -> PyResult<PyArray> {
                on(py, stream, || ops::$name(&a.0, &b.0)).map(PyArray::new)
            }
        )*

        fn register_binary(module: &Bound<'_, PyModule>) -> PyResult<()> {
            $( module.add_function(wrap_pyfunction!($name, module)?)?; )*
            Ok(())
        }
    };
}

binary! {
    add "a + b."
    subtract "a - b."
    multiply "a * b."
    divide "a / b; of integers, their quotient as float32."
    floor_divide "The quotient, rounded down."
    remainder "The remainder, with the sign of the divisor."
    power "a to the power b."
    maximum "The greater element."
    minimum "The lesser element."
    logaddexp "log(exp(a) + exp(b))."
    arctan2 "The angle of (b, a)."
    equal "Whether the elements are equal."
    not_equal "Whether the elements differ."
    less "a < b."
    less_equal "a <= b."
    greater "a > b."
    greater_equal "a >= b."
    logical_and "Whether both elements are not zero."
    logical_or "Whether an element is not zero."
    bitwise_and "The bits that both have."
    bitwise_or "The bits that one has."
    bitwise_xor "The bits that exactly one has."
    left_shift "a << b."
    right_shift "a >> b."
}

/// `x` where the condition holds, else `y`.
#[pyfunction]
#[pyo3(name = "where", signature = (condition, x, y, /, *, stream = None))]
fn select(
    py: Python<'_>,
    condition: OperandArg,
    x: OperandArg,
    y: OperandArg,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    on(py, stream, || ops::where_(&condition.0, &x.0, &y.0)).map(PyArray::new)
}

/// The elements, but not less than `a_min` nor greater than `a_max`.
#[pyfunction]
#[pyo3(signature = (a, /, a_min, a_max, *, stream = None))]
fn clip(
    py: Python<'_>,
    a: OperandArg,
    a_min: Option<OperandArg>,
    a_max: Option<OperandArg>,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    let (low, high) = (a_min.map(|low| low.0), a_max.map(|high| high.0));
    let a = a.into_value(py)?;
    on(py, stream, || ops::clip(&a, low.as_ref(), high.as_ref())).map(PyArray::new)
}

/// The elements rounded to a number of decimals; half to even.
#[pyfunction]
#[pyo3(signature = (a, /, decimals = 0, stream = None))]
fn round(py: Python<'_>, a: OperandArg, decimals: i64, stream: Option<StreamArg>) -> PyResult<PyArray> {
    on(py, stream, || ops::round(&a.0, decimals)).map(PyArray::new)
}

/// The same elements, through which no gradient passes.
#[pyfunction]
#[pyo3(signature = (a, /, *, stream = None))]
fn stop_gradient(py: Python<'_>, a: ArrayArg, stream: Option<StreamArg>) -> PyResult<PyArray> {
    on(py, stream, || Ok(PyArray::new(ops::stop_gradient(&a.0))))
}

/// Whether elements are equal within tolerances.
#[pyfunction]
#[pyo3(signature = (a, b, /, rtol = 1e-5, atol = 1e-8, *, equal_nan = false, stream = None))]
fn isclose(
    py: Python<'_>,
    a: OperandArg,
    b: OperandArg,
    rtol: f64,
    atol: f64,
    equal_nan: bool,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    on(py, stream, || ops::isclose(&a.0, &b.0, rtol, atol, equal_nan)).map(PyArray::new)
}

/// Whether all elements are equal within tolerances.
#[pyfunction]
#[pyo3(signature = (a, b, /, rtol = 1e-5, atol = 1e-8, *, equal_nan = false, stream = None))]
fn allclose(
    py: Python<'_>,
    a: OperandArg,
    b: OperandArg,
    rtol: f64,
    atol: f64,
    equal_nan: bool,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    on(py, stream, || ops::allclose(&a.0, &b.0, rtol, atol, equal_nan)).map(PyArray::new)
}

/// Whether two arrays have the same shape and the same elements.
#[pyfunction]
#[pyo3(signature = (a, b, equal_nan = false, stream = None))]
fn array_equal(
    py: Python<'_>,
    a: OperandArg,
    b: OperandArg,
    equal_nan: bool,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    on(py, stream, || ops::array_equal(&a.0, &b.0, equal_nan)).map(PyArray::new)
}

/// The elements with numbers in the place of NaN and infinities.
#[pyfunction]
#[pyo3(signature = (a, nan = 0.0, posinf = None, neginf = None, *, stream = None))]
fn nan_to_num(
    py: Python<'_>,
    a: OperandArg,
    nan: f64,
    posinf: Option<f64>,
    neginf: Option<f64>,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    let a = a.into_value(py)?;
    on(py, stream, || ops::nan_to_num(&a, nan, posinf, neginf)).map(PyArray::new)
}

/// The elements converted to `dtype`.
#[pyfunction]
#[pyo3(signature = (a, dtype, *, stream = None))]
fn astype(py: Python<'_>, a: ArrayArg, dtype: PyDtype, stream: Option<StreamArg>) -> PyResult<PyArray> {
    on(py, stream, || ops::astype(&a.0, dtype.0)).map(PyArray::new)
}

/// The same bytes as elements of `dtype`.
#[pyfunction]
#[pyo3(signature = (a, dtype, stream = None))]
fn view(py: Python<'_>, a: OperandArg, dtype: PyDtype, stream: Option<StreamArg>) -> PyResult<PyArray> {
    let a = a.into_value(py)?;
    on(py, stream, || ops::view(&a, dtype.0)).map(PyArray::new)
}

/// Adds the functions, and the other names that some have.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    register_unary(module)?;
    register_unary_with_stream(module)?;
    register_binary(module)?;
    for function in [
        wrap_pyfunction!(select, module)?,
        wrap_pyfunction!(clip, module)?,
        wrap_pyfunction!(round, module)?,
        wrap_pyfunction!(astype, module)?,
        wrap_pyfunction!(view, module)?,
        wrap_pyfunction!(stop_gradient, module)?,
        wrap_pyfunction!(isclose, module)?,
        wrap_pyfunction!(allclose, module)?,
        wrap_pyfunction!(array_equal, module)?,
        wrap_pyfunction!(nan_to_num, module)?,
    ] {
        module.add_function(function)?;
    }
    for (alias, name) in [
        ("acos", "arccos"),
        ("acosh", "arccosh"),
        ("asin", "arcsin"),
        ("asinh", "arcsinh"),
        ("atan", "arctan"),
        ("atan2", "arctan2"),
        ("atanh", "arctanh"),
        ("pow", "power"),
        ("bitwise_left_shift", "left_shift"),
        ("bitwise_right_shift", "right_shift"),
    ] {
        module.add(alias, module.getattr(name)?)?;
    }
    Ok(())
}
