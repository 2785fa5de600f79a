//! `mlx.core.linalg`, as far as it is computed in Rust.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use refrain_mlx::linalg;

use crate::array::PyArray;
use crate::convert::{ArrayArg, StreamArg, on};
use crate::shapes::tuple;

macro_rules! triangular {
    ($($name:ident $doc:literal)*) => { $(
        #[doc = $doc]
        #[pyfunction]
        #[pyo3(signature = (a, upper = false, *, stream = None))]
        fn $name(py: Python<'_>, a: ArrayArg, upper: bool, stream: Option<StreamArg>) -> PyResult<PyArray> {
            on(py, stream, || linalg::$name(&a.0, upper)).map(PyArray::new)
        }
    )* };
}

triangular! {
    cholesky "The Cholesky factor of positive definite matrices."
    cholesky_inv "The inverses of matrices whose Cholesky factors are given."
    tri_inv "The inverses of triangular matrices."
}

macro_rules! of_one {
    ($($name:ident $doc:literal)*) => { $(
        #[doc = $doc]
        #[pyfunction]
        #[pyo3(signature = (a, *, stream = None))]
        fn $name(py: Python<'_>, a: ArrayArg, stream: Option<StreamArg>) -> PyResult<PyArray> {
            on(py, stream, || linalg::$name(&a.0)).map(PyArray::new)
        }
    )* };
}

of_one! {
    inv "The inverses of matrices."
    det "The determinants of matrices."
}

macro_rules! pairs {
    ($($name:ident $doc:literal)*) => { $(
        #[doc = $doc]
        #[pyfunction]
        #[pyo3(signature = (a, *, stream = None))]
        fn $name<'py>(py: Python<'py>, a: ArrayArg, stream: Option<StreamArg>) -> PyResult<Bound<'py, PyTuple>> {
            tuple(py, on(py, stream, || linalg::$name(&a.0))?.into())
        }
    )* };
}

pairs! {
    qr "The orthonormal and the upper triangular factors of matrices."
    slogdet "The signs of determinants and the logarithms of their sizes."
}

/// The solutions x of a @ x = b.
#[pyfunction]
#[pyo3(signature = (a, b, *, stream = None))]
fn solve(py: Python<'_>, a: ArrayArg, b: ArrayArg, stream: Option<StreamArg>) -> PyResult<PyArray> {
    on(py, stream, || linalg::solve(&a.0, &b.0)).map(PyArray::new)
}

/// Adds the functions to `mlx.core.linalg`.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    for function in [
        wrap_pyfunction!(cholesky, module)?,
        wrap_pyfunction!(cholesky_inv, module)?,
        wrap_pyfunction!(tri_inv, module)?,
        wrap_pyfunction!(inv, module)?,
        wrap_pyfunction!(det, module)?,
        wrap_pyfunction!(qr, module)?,
        wrap_pyfunction!(slogdet, module)?,
        wrap_pyfunction!(solve, module)?,
    ] {
        module.add_function(function)?;
    }
    Ok(())
}
