//! Reductions, scans, sorts and searches.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use refrain_mlx::ops;

use crate::array::PyArray;
use crate::convert::{ArrayArg, AxesArg, OperandArg, StreamArg, on};
use crate::dtype::PyDtype;

macro_rules! reductions {
    ($($name:ident $doc:literal)*) => {
        $(
            #[doc = $doc]
            #[pyfunction]
            #[pyo3(signature = (a, /, axis = AxesArg(None), keepdims = false, *, stream = None))]
            fn $name(
                py: Python<'_>,
                a: ArrayArg,
                axis: AxesArg,
                keepdims: bool,
                stream: Option<StreamArg>,
            ) -> PyResult<PyArray> {
                on(py, stream, || ops::$name(&a.0, axis.as_deref(), keepdims)).map(PyArray::new)
            }
        )*

        mod reduction_methods {
            use super::*;
            $(
                #[pymethods]
                impl PyArray {
                    #[doc = $doc]
                    #[pyo3(signature = (axis = AxesArg(None), keepdims = false, *, stream = None))]
                    fn $name(
                        &self,
                        py: Python<'_>,
                        axis: AxesArg,
                        keepdims: bool,
                        stream: Option<StreamArg>,
                    ) -> PyResult<PyArray> {
                        on(py, stream, || ops::$name(&self.value(), axis.as_deref(), keepdims)).map(PyArray::new)
                    }
                }
            )*
        }

        fn register_reductions(module: &Bound<'_, PyModule>) -> PyResult<()> {
            $( module.add_function(wrap_pyfunction!($name, module)?)?; )*
            Ok(())
        }
    };
}

reductions! {
    sum "The sum along axes, or of all elements."
    prod "The product along axes, or of all elements."
    max "The greatest element along axes, or of all."
    min "The least element along axes, or of all."
    mean "The mean along axes, or of all elements."
    all "Whether every element is true."
    any "Whether an element is true."
    logsumexp "log(sum(exp(a))) along axes, or of all elements."
    median "The median along axes, or of all elements."
}

macro_rules! deviations {
    ($($name:ident $doc:literal)*) => { $(
        #[doc = $doc]
        #[pyfunction]
        #[pyo3(signature = (a, /, axis = AxesArg(None), keepdims = false, ddof = 0, *, stream = None))]
        fn $name(
            py: Python<'_>,
            a: ArrayArg,
            axis: AxesArg,
            keepdims: bool,
            ddof: i64,
            stream: Option<StreamArg>,
        ) -> PyResult<PyArray> {
            on(py, stream, || ops::$name(&a.0, axis.as_deref(), keepdims, ddof)).map(PyArray::new)
        }
    )* };
}

deviations! {
    var "The variance along axes, or of all elements."
    std "The standard deviation along axes, or of all elements."
}

macro_rules! positions {
    ($($name:ident $doc:literal)*) => { $(
        #[doc = $doc]
        #[pyfunction]
        #[pyo3(signature = (a, /, axis = None, keepdims = false, *, stream = None))]
        fn $name(
            py: Python<'_>,
            a: ArrayArg,
            axis: Option<i64>,
            keepdims: bool,
            stream: Option<StreamArg>,
        ) -> PyResult<PyArray> {
            on(py, stream, || ops::$name(&a.0, axis, keepdims)).map(PyArray::new)
        }
    )* };
}

positions! {
    argmax "The index of the greatest element along an axis."
    argmin "The index of the least element along an axis."
}

macro_rules! scans {
    ($($name:ident $doc:literal)*) => { $(
        #[doc = $doc]
        #[pyfunction]
        #[pyo3(signature = (a, /, axis = None, *, reverse = false, inclusive = true, dtype = None, stream = None))]
        fn $name(
            py: Python<'_>,
            a: ArrayArg,
            axis: Option<i64>,
            reverse: bool,
            inclusive: bool,
            dtype: Option<PyDtype>,
            stream: Option<StreamArg>,
        ) -> PyResult<PyArray> {
            let scan = || {
                let a = dtype.map_or(Ok(a.0.clone()), |dtype| ops::astype(&a.0, dtype.0))?;
                ops::$name(&a, axis, reverse, inclusive)
            };
            on(py, stream, scan).map(PyArray::new)
        }
    )* };
}

scans! {
    cumsum "The sums of all elements up to each one."
    cumprod "The products of all elements up to each one."
    cummax "The greatest of all elements up to each one."
    cummin "The least of all elements up to each one."
    logcumsumexp "log(cumsum(exp(a)))."
}

macro_rules! sorts {
    ($($name:ident $doc:literal)*) => { $(
        #[doc = $doc]
        #[pyfunction]
        #[pyo3(signature = (a, /, axis = Some(-1), *, stream = None))]
        fn $name(py: Python<'_>, a: ArrayArg, axis: Option<i64>, stream: Option<StreamArg>) -> PyResult<PyArray> {
            on(py, stream, || ops::$name(&a.0, axis)).map(PyArray::new)
        }
    )* };
}

sorts! {
    sort "The elements in ascending order along an axis."
    argsort "The indices that sort along an axis."
}

macro_rules! partitions {
    ($($name:ident $doc:literal)*) => { $(
        #[doc = $doc]
        #[pyfunction]
        #[pyo3(signature = (a, /, kth, axis = Some(-1), *, stream = None))]
        fn $name(
            py: Python<'_>,
            a: ArrayArg,
            kth: i64,
            axis: Option<i64>,
            stream: Option<StreamArg>,
        ) -> PyResult<PyArray> {
            on(py, stream, || ops::$name(&a.0, kth, axis)).map(PyArray::new)
        }
    )* };
}

partitions! {
    partition "The elements so that the k-th is where sorting puts it, lesser ones before it."
    argpartition "The indices that partition along an axis."
}

/// The `k` greatest elements along an axis.
#[pyfunction]
#[pyo3(signature = (a, /, k, axis = Some(-1), *, stream = None))]
fn topk(py: Python<'_>, a: ArrayArg, k: i64, axis: Option<i64>, stream: Option<StreamArg>) -> PyResult<PyArray> {
    on(py, stream, || ops::topk(&a.0, k, axis)).map(PyArray::new)
}

/// Where values belong in a sorted sequence.
#[pyfunction]
#[pyo3(signature = (sorted_sequence, values, /, side = "left", *, stream = None))]
fn searchsorted(
    py: Python<'_>,
    sorted_sequence: ArrayArg,
    values: OperandArg,
    side: &str,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    let after = match side {
        "left" => false,
        "right" => true,
        _ => {
            return Err(PyValueError::new_err(format!(
                "[searchsorted] side must be 'left' or 'right', not '{side}'"
            )));
        }
    };
    on(py, stream, || ops::searchsorted(&sorted_sequence.0, &values.0, after)).map(PyArray::new)
}

/// exp(a) divided by its sum along axes, or over all elements.
#[pyfunction]
#[pyo3(signature = (a, /, axis = AxesArg(None), *, precise = false, stream = None))]
fn softmax(py: Python<'_>, a: ArrayArg, axis: AxesArg, precise: bool, stream: Option<StreamArg>) -> PyResult<PyArray> {
    on(py, stream, || ops::softmax(&a.0, axis.as_deref(), precise)).map(PyArray::new)
}

/// Adds the functions.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    register_reductions(module)?;
    for function in [
        wrap_pyfunction!(var, module)?,
        wrap_pyfunction!(self::std, module)?,
        wrap_pyfunction!(argmax, module)?,
        wrap_pyfunction!(argmin, module)?,
        wrap_pyfunction!(cumsum, module)?,
        wrap_pyfunction!(cumprod, module)?,
        wrap_pyfunction!(cummax, module)?,
        wrap_pyfunction!(cummin, module)?,
        wrap_pyfunction!(logcumsumexp, module)?,
        wrap_pyfunction!(sort, module)?,
        wrap_pyfunction!(argsort, module)?,
        wrap_pyfunction!(partition, module)?,
        wrap_pyfunction!(argpartition, module)?,
        wrap_pyfunction!(topk, module)?,
        wrap_pyfunction!(softmax, module)?,
        wrap_pyfunction!(searchsorted, module)?,
    ] {
        module.add_function(function)?;
    }
    for (alias, name) in [("cumulative_sum", "cumsum"), ("cumulative_prod", "cumprod")] {
        module.add(alias, module.getattr(name)?)?;
    }
    Ok(())
}
