//! `mlx.core.fast`.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use refrain_mlx::Number;
use refrain_mlx::fast::{self, Mask, Offset};

use crate::array::PyArray;
use crate::convert::{ArrayArg, StreamArg, number, on};
use crate::shapes::tuple;

/// Normalises the last axis by its root mean square.
#[pyfunction]
#[pyo3(signature = (x, weight, eps, *, stream = None))]
fn rms_norm(
    py: Python<'_>,
    x: ArrayArg,
    weight: Option<ArrayArg>,
    eps: f32,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    let weight = weight.as_ref().map(|weight| &weight.0);
    on(py, stream, || fast::rms_norm(&x.0, weight, eps)).map(PyArray::new)
}

/// Normalises the last axis by its mean and variance.
#[pyfunction]
#[pyo3(signature = (x, weight, bias, eps, *, stream = None))]
fn layer_norm(
    py: Python<'_>,
    x: ArrayArg,
    weight: Option<ArrayArg>,
    bias: Option<ArrayArg>,
    eps: f32,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    let (weight, bias) = (
        weight.as_ref().map(|weight| &weight.0),
        bias.as_ref().map(|bias| &bias.0),
    );
    on(py, stream, || fast::layer_norm(&x.0, weight, bias, eps)).map(PyArray::new)
}

/// The position of the first token: an integer or an array.
pub fn position(offset: &Bound<'_, PyAny>) -> PyResult<Offset> {
    match number(offset)? {
        Some(Number::Int(position)) => Ok(Offset::Int(position)),
        _ => Ok(Offset::Value(offset.extract::<ArrayArg>()?.0)),
    }
}

/// Rotates pairs of elements by angles of their positions.
#[pyfunction]
#[pyo3(signature = (a, dims, *, traditional, base, scale, offset, freqs = None, stream = None))]
#[allow(clippy::too_many_arguments)]
fn rope(
    py: Python<'_>,
    a: ArrayArg,
    dims: i64,
    traditional: bool,
    base: Option<f32>,
    scale: f32,
    offset: &Bound<'_, PyAny>,
    freqs: Option<ArrayArg>,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    let offset = position(offset)?;
    let frequencies = freqs.as_ref().map(|freqs| &freqs.0);
    on(py, stream, || {
        fast::rope(&a.0, dims, traditional, base, scale, &offset, frequencies)
    })
    .map(PyArray::new)
}

/// softmax(q @ k.T * scale + mask) @ v.
#[pyfunction]
#[pyo3(signature = (q, k, v, *, scale, mask = None, sinks = None, force_fused = false, stream = None))]
#[allow(clippy::too_many_arguments)]
fn scaled_dot_product_attention(
    py: Python<'_>,
    q: ArrayArg,
    k: ArrayArg,
    v: ArrayArg,
    scale: f32,
    mask: Option<&Bound<'_, PyAny>>,
    sinks: Option<ArrayArg>,
    force_fused: bool,
    stream: Option<StreamArg>,
) -> PyResult<PyArray> {
    // One implementation: there is nothing to choose.
    let _ = force_fused;
    let mask = match mask {
        None => Mask::None,
        Some(mask) => match mask.cast::<PyString>() {
            Ok(name) if name.to_str()? == "causal" => Mask::Causal,
            Ok(name) if name.to_str()?.is_empty() => Mask::None,
            Ok(name) => {
                let message = format!("[scaled_dot_product_attention] mask must be 'causal' or an array, not '{name}'");
                return Err(PyValueError::new_err(message));
            }
            Err(_) => Mask::Value(mask.extract::<ArrayArg>()?.0),
        },
    };
    let sinks = sinks.as_ref().map(|sinks| &sinks.0);
    let attention = || fast::scaled_dot_product_attention(&q.0, &k.0, &v.0, scale, &mask, sinks);
    on(py, stream, attention).map(PyArray::new)
}

/// The negative log-probability of each target.
#[pyfunction]
#[pyo3(signature = (logits, targets, *, stream = None))]
fn cross_entropy(py: Python<'_>, logits: ArrayArg, targets: ArrayArg, stream: Option<StreamArg>) -> PyResult<PyArray> {
    on(py, stream, || fast::cross_entropy(&logits.0, &targets.0)).map(PyArray::new)
}

/// The outputs and the new state of a gated delta rule.
#[pyfunction]
#[pyo3(signature = (q, k, v, gamma, beta, initial_state = None, mask = None, stream = None))]
#[allow(clippy::too_many_arguments)]
fn gated_delta_update<'py>(
    py: Python<'py>,
    q: ArrayArg,
    k: ArrayArg,
    v: ArrayArg,
    gamma: ArrayArg,
    beta: ArrayArg,
    initial_state: Option<ArrayArg>,
    mask: Option<ArrayArg>,
    stream: Option<StreamArg>,
) -> PyResult<Bound<'py, PyTuple>> {
    let state = initial_state.as_ref().map(|state| &state.0);
    let mask = mask.as_ref().map(|mask| &mask.0);
    let update = || fast::gated_delta_update([&q.0, &k.0, &v.0], &gamma.0, &beta.0, state, mask);
    let (outputs, state) = on(py, stream, update)?;
    tuple(py, vec![outputs, state])
}

/// Adds the functions to `mlx.core.fast`.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    for function in [
        wrap_pyfunction!(rms_norm, module)?,
        wrap_pyfunction!(layer_norm, module)?,
        wrap_pyfunction!(rope, module)?,
        wrap_pyfunction!(cross_entropy, module)?,
        wrap_pyfunction!(scaled_dot_product_attention, module)?,
        wrap_pyfunction!(gated_delta_update, module)?,
    ] {
        module.add_function(function)?;
    }
    Ok(())
}
