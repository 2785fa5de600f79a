//! What layers of `mlx.nn` and parts of mlx-lm compute, without Python between their operations. Each function reads the
//! items and attributes that the Python code reads; `replacements.py` puts it in the place of that.

use pyo3::exceptions::PyKeyError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use refrain_mlx::fast;
use refrain_mlx::index::{self, Index};
use refrain_mlx::{Operand, Value, ops};

use crate::array::PyArray;
use crate::convert::{ArrayArg, on};
use crate::fast::position;

/// A parameter of a layer.
fn parameter(layer: &Bound<'_, PyDict>, name: &Bound<'_, PyString>) -> PyResult<Value> {
    match layer.get_item(name)? {
        Some(item) => Ok(item.extract::<ArrayArg>()?.0),
        None => Err(PyKeyError::new_err(name.clone().unbind())),
    }
}

/// A parameter that a layer may not have.
fn optional(layer: &Bound<'_, PyDict>, name: &Bound<'_, PyString>) -> PyResult<Option<Value>> {
    let item = layer.get_item(name)?.filter(|item| !item.is_none());
    item.map(|item| Ok(item.extract::<ArrayArg>()?.0)).transpose()
}

/// The quantised matrix of a layer, or its matrices.
struct Weights<'py> {
    words: Value,
    scales: Value,
    biases: Option<Value>,
    group_size: i64,
    bits: i64,
    mode: Bound<'py, PyAny>,
}

impl<'py> Weights<'py> {
    fn of(layer: &Bound<'py, PyDict>) -> PyResult<Weights<'py>> {
        let py = layer.py();
        Ok(Weights {
            words: parameter(layer, intern!(py, "weight"))?,
            scales: parameter(layer, intern!(py, "scales"))?,
            biases: optional(layer, intern!(py, "biases"))?,
            group_size: layer.getattr(intern!(py, "group_size"))?.extract()?,
            bits: layer.getattr(intern!(py, "bits"))?.extract()?,
            mode: layer.getattr(intern!(py, "mode"))?,
        })
    }

    fn mode(&self) -> PyResult<&str> {
        self.mode.cast::<PyString>()?.to_str()
    }
}

/// What a `mlx.nn.QuantizedLinear` computes of `x`.
#[pyfunction]
fn _quantized_linear(py: Python<'_>, layer: &Bound<'_, PyDict>, x: ArrayArg) -> PyResult<PyArray> {
    let w = Weights::of(layer)?;
    let (mode, bias) = (w.mode()?, optional(layer, intern!(py, "bias"))?);
    on(py, None, || {
        let (group_size, bits) = (Some(w.group_size), Some(w.bits));
        let product = ops::quantized_matmul(
            &x.0,
            &w.words,
            &w.scales,
            w.biases.as_ref(),
            true,
            group_size,
            bits,
            mode,
        )?;
        match bias {
            Some(bias) => ops::add(&Operand::Value(product), &Operand::Value(bias)),
            None => Ok(product),
        }
    })
    .map(PyArray::new)
}

/// What a `mlx.nn.QuantizedEmbedding` makes of the tokens `x`.
#[pyfunction]
fn _quantized_embedding(py: Python<'_>, layer: &Bound<'_, PyDict>, x: ArrayArg) -> PyResult<PyArray> {
    let w = Weights::of(layer)?;
    let mode = w.mode()?;
    on(py, None, || {
        let (group_size, bits) = (Some(w.group_size), Some(w.bits));
        ops::quantized_rows(&x.0, [&w.words, &w.scales], w.biases.as_ref(), group_size, bits, mode)
    })
    .map(PyArray::new)
}

/// What a `QuantizedSwitchLinear` of mlx-lm computes of `x`: products with the matrices that `indices` select. Nothing if
/// the layer has a bias or one scale for all of a matrix.
#[pyfunction]
fn _quantized_switch_linear(
    py: Python<'_>,
    layer: &Bound<'_, PyDict>,
    x: ArrayArg,
    indices: ArrayArg,
) -> PyResult<Option<PyArray>> {
    let has_more = layer.contains(intern!(py, "bias"))? || !layer.getattr(intern!(py, "global_scale"))?.is_none();
    if has_more {
        return Ok(None);
    }
    let w = Weights::of(layer)?;
    let mode = w.mode()?;
    on(py, None, || {
        let (chosen, group_size, bits) = ([None, Some(&indices.0)], Some(w.group_size), Some(w.bits));
        ops::gather_qmm(
            &x.0,
            &w.words,
            &w.scales,
            w.biases.as_ref(),
            chosen,
            true,
            group_size,
            bits,
            mode,
        )
    })
    .map(|product| Some(PyArray::new(product)))
}

/// What a `mlx.nn.RMSNorm` computes of `x`.
#[pyfunction]
fn _rms_norm(py: Python<'_>, layer: &Bound<'_, PyDict>, x: ArrayArg) -> PyResult<PyArray> {
    let weight = parameter(layer, intern!(py, "weight"))?;
    let eps = layer.getattr(intern!(py, "eps"))?.extract()?;
    on(py, None, || fast::rms_norm(&x.0, Some(&weight), eps)).map(PyArray::new)
}

/// What a `mlx.nn.RoPE` computes of `x`.
#[pyfunction]
fn _rope(py: Python<'_>, layer: &Bound<'_, PyAny>, x: ArrayArg, offset: &Bound<'_, PyAny>) -> PyResult<PyArray> {
    let offset = position(offset)?;
    let dims = layer.getattr(intern!(py, "dims"))?.extract()?;
    let traditional = layer.getattr(intern!(py, "traditional"))?.extract()?;
    let base = layer.getattr(intern!(py, "base"))?.extract()?;
    let scale = layer.getattr(intern!(py, "scale"))?.extract()?;
    on(py, None, || {
        fast::rope(&x.0, dims, traditional, base, scale, &offset, None)
    })
    .map(PyArray::new)
}

/// What `update_and_fetch` of mlx-lm's `KVCache` returns: all keys and values so far, behind which it has written the
/// new ones. Nothing, and nothing is changed, if a cache that holds some has to grow.
#[pyfunction]
fn _update_and_fetch<'py>(
    py: Python<'py>,
    cache: &Bound<'py, PyAny>,
    keys: ArrayArg,
    values: ArrayArg,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let (names, new) = ([intern!(py, "keys"), intern!(py, "values")], [keys.0, values.0]);
    let offset = cache.getattr(intern!(py, "offset"))?.extract::<i64>()?;
    let &[_, _, tokens, _] = new[0].shape() else {
        return Ok(None);
    };
    let end = offset + tokens as i64;
    if offset < 0 || new[1].shape().get(2) != Some(&tokens) {
        return Ok(None);
    }
    let mut planes = vec![];
    let mut is_new = false;
    for (name, new) in names.iter().zip(&new) {
        let held = cache.getattr(name)?;
        if held.is_none() && offset == 0 && new.ndim() == 4 {
            is_new = true;
            planes.push(Bound::new(py, PyArray::new(empty_plane(py, cache, new)?))?);
        } else if let Ok(held) = held.cast_into::<PyArray>() {
            planes.push(held);
        } else {
            return Ok(None);
        }
    }
    let held = planes[0].get().value().shape().get(2).map_or(0, |&held| held as i64);
    if end > held {
        return Ok(None);
    }
    let along = |start, stop| {
        let tokens = Index::Slice {
            start,
            stop,
            step: None,
        };
        [Index::ALL, Index::ALL, tokens, Index::ALL]
    };
    let (slots, so_far) = (along(Some(offset), Some(end)), along(None, Some(end)));
    let mut written = vec![];
    for (plane, part) in planes.iter().zip(new) {
        let set = || index::set(&plane.get().value(), &slots, &Operand::Value(part));
        written.push(on(py, None, set)?);
    }
    cache.setattr(intern!(py, "offset"), end)?;
    let mut fetched = vec![];
    for ((name, plane), all) in names.iter().zip(planes).zip(written) {
        plane.get().set(all.clone());
        if is_new {
            cache.setattr(name, &plane)?;
        }
        fetched.push(if end == held {
            plane
        } else {
            let part = on(py, None, || index::get(&all, &so_far))?;
            Bound::new(py, PyArray::new(part))?
        });
    }
    PyTuple::new(py, fetched).map(Some)
}

/// Keys or values of a cache that holds nothing: zeros for `new` ones, in whole steps.
fn empty_plane(py: Python<'_>, cache: &Bound<'_, PyAny>, new: &Value) -> PyResult<Value> {
    let step = cache.getattr(intern!(py, "step"))?.extract::<usize>()?.max(1);
    let mut shape: Vec<i64> = new.shape().iter().map(|&n| n as i64).collect();
    shape[2] = new.shape()[2].next_multiple_of(step) as i64;
    on(py, None, || ops::zeros(&shape, new.dtype()))
}

/// Adds the functions.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    for function in [
        wrap_pyfunction!(_quantized_linear, module)?,
        wrap_pyfunction!(_quantized_embedding, module)?,
        wrap_pyfunction!(_quantized_switch_linear, module)?,
        wrap_pyfunction!(_rms_norm, module)?,
        wrap_pyfunction!(_rope, module)?,
        wrap_pyfunction!(_update_and_fetch, module)?,
    ] {
        module.add_function(function)?;
    }
    Ok(())
}
