//! Evaluation, the device, memory and files.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use refrain::Device;
use refrain_mlx::{Value, compute_device, files, memory, set_compute_device};
use refrain_vulkan::{DeviceChoice, OpenOptions, Options, Vulkan};

use crate::array::PyArray;
use crate::convert::{on, type_name};
use crate::error::raise;

/// Collects the arrays in nested lists, tuples and dicts.
fn collect(object: &Bound<'_, PyAny>, values: &mut Vec<Value>) -> PyResult<()> {
    if let Ok(array) = object.cast::<PyArray>() {
        values.push(array.get().value());
        return Ok(());
    }
    if let Ok(list) = object.cast::<PyList>() {
        return list.iter().try_for_each(|item| collect(&item, values));
    }
    if let Ok(tuple) = object.cast::<PyTuple>() {
        return tuple.iter().try_for_each(|item| collect(&item, values));
    }
    if let Ok(dict) = object.cast::<PyDict>() {
        return dict.values().iter().try_for_each(|item| collect(&item, values));
    }
    // Objects of other classes are leaves without arrays, as in MLX.
    Ok(())
}

fn arrays_in(arguments: &Bound<'_, PyTuple>) -> PyResult<Vec<Value>> {
    let mut values = Vec::new();
    collect(arguments, &mut values)?;
    Ok(values)
}

/// Computes the arrays in the arguments and waits for them.
#[pyfunction]
#[pyo3(signature = (*args))]
fn eval(py: Python<'_>, args: &Bound<'_, PyTuple>) -> PyResult<()> {
    check_process()?;
    let values = arrays_in(args)?;
    py.detach(move || refrain_mlx::eval(&values))
        .map_err(|error| raise(py, error))
}

/// Starts to compute the arrays in the arguments. Reading an array raises the error, if there is one.
#[pyfunction]
#[pyo3(signature = (*args))]
fn async_eval(py: Python<'_>, args: &Bound<'_, PyTuple>) -> PyResult<()> {
    check_process()?;
    let values = arrays_in(args)?;
    py.detach(move || refrain_mlx::async_eval(&values));
    Ok(())
}

/// Waits until everything that was started is with the device.
fn finish_submitting(py: Python<'_>) {
    // A child that `fork` made has no thread that evaluates.
    if check_process().is_ok() {
        py.detach(refrain_mlx::finish_submitting);
    }
}

/// Waits for everything that was started, whether it fails or not, so that the process can end.
#[pyfunction]
#[pyo3(name = "_finish")]
fn finish(py: Python<'_>) {
    if check_process().is_ok() {
        py.detach(refrain_mlx::finish);
    }
}

/// Waits for everything that was started.
#[pyfunction]
#[pyo3(name = "_synchronize")]
fn synchronize(py: Python<'_>) -> PyResult<()> {
    check_process()?;
    py.detach(refrain_mlx::synchronize).map_err(|error| raise(py, error))
}

/// Chooses the device that computes: "cpu", "auto" (the best GPU, else the CPU), "gpu" (software
/// drivers too), an index or a part of a name.
#[pyfunction]
#[pyo3(name = "_open_device")]
fn open_device(py: Python<'_>, choice: &str) -> PyResult<()> {
    let device = py.detach(|| device_of(choice));
    let device = device.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    set_compute_device(device);
    Ok(())
}

/// Opens the device that `choice` names, as [`open_device`] takes it.
///
/// # Errors
/// If there is no such device, or it does not open.
pub fn device_of(choice: &str) -> Result<Device, refrain_vulkan::Error> {
    match choice {
        "cpu" => Ok(Device::cpu()),
        // A software driver is slower than the CPU executor.
        "" | "auto" => Ok(open("auto")
            .ok()
            .filter(|device| !device.is_software())
            .unwrap_or_else(Device::cpu)),
        "gpu" => open("auto"),
        other => open(other),
    }
}

fn open(choice: &str) -> Result<Device, refrain_vulkan::Error> {
    let vulkan = Vulkan::load(Options::default())?;
    let Ok(choice) = choice.parse::<DeviceChoice>();
    let index = vulkan.choose(&choice)?;
    let options = OpenOptions {
        cache_dir: SHADERS.get().cloned(),
        keep_scratch: true,
        ..OpenOptions::default()
    };
    Ok(Device::vulkan(vulkan.open(index, &options)?))
}

/// The directory of compiled shaders.
static SHADERS: OnceLock<PathBuf> = OnceLock::new();

/// Keeps compiled shaders in a directory, if none was named before.
#[pyfunction]
#[pyo3(name = "_keep_shaders")]
fn keep_shaders(directory: PathBuf) {
    SHADERS.get_or_init(|| directory);
}

/// The name of the device that computes, and whether it is the CPU.
#[pyfunction]
#[pyo3(name = "_device")]
fn device() -> (String, bool) {
    let device = compute_device();
    (device.name().to_owned(), device.is_cpu())
}

/// Whether this process was made by `fork`: queues and threads of the parent are not there.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Python calls it in a child that `fork` made.
#[pyfunction]
#[pyo3(name = "_refuse_after_fork")]
fn refuse_after_fork() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Fails in a child that `fork` made.
///
/// # Errors
/// `RuntimeError`.
pub fn check_process() -> PyResult<()> {
    if FORKED.load(Ordering::Relaxed) {
        return Err(PyRuntimeError::new_err(
            "arrays cannot be computed in a process made by fork: start processes with the method \"spawn\"",
        ));
    }
    Ok(())
}

/// The Vulkan devices of this machine.
#[pyfunction]
#[pyo3(name = "_gpu_names")]
fn gpu_names() -> Vec<String> {
    let vulkan = Vulkan::load(Options::default());
    vulkan.map_or_else(
        |_| Vec::new(),
        |vulkan| vulkan.devices().iter().map(|info| info.name.clone()).collect(),
    )
}

/// Bytes of memory: in use, and the most that ever were.
#[pyfunction]
#[pyo3(name = "_memory")]
fn memory_bytes(py: Python<'_>) -> (u64, u64) {
    finish_submitting(py);
    (memory::active(), memory::peak())
}

/// What the last evaluations did, as text.
#[pyfunction]
#[pyo3(name = "_explain")]
fn explain(py: Python<'_>) -> String {
    finish_submitting(py);
    compute_device().explain()
}

/// Counters: programs lowered, programs found in the cache, updates in place, updates that copied, replays.
#[pyfunction]
#[pyo3(name = "_program_counts")]
fn program_counts(py: Python<'_>) -> (u64, u64, u64, u64, u64) {
    finish_submitting(py);
    let counts = compute_device().program_counts();
    (
        counts.lowerings,
        counts.hits,
        counts.in_place,
        counts.copies,
        counts.replays,
    )
}

/// Frees memory that is kept for programs that are evaluated again and again.
#[pyfunction]
#[pyo3(name = "_clear_cache")]
fn clear_cache(py: Python<'_>) {
    py.detach(memory::clear_cache);
}

/// The arrays and the metadata of a safetensors file.
#[pyfunction]
#[pyo3(name = "_load_safetensors")]
fn load_safetensors<'py>(py: Python<'py>, path: PathBuf) -> PyResult<(Bound<'py, PyDict>, HashMap<String, String>)> {
    let (values, metadata) = on(py, None, || files::load_safetensors(&path))?;
    let arrays = PyDict::new(py);
    for (name, value) in values {
        arrays.set_item(name, PyArray::new(value))?;
    }
    Ok((arrays, metadata.into_iter().collect()))
}

/// Writes arrays to a safetensors file.
#[pyfunction]
#[pyo3(name = "_save_safetensors")]
fn save_safetensors(
    py: Python<'_>,
    path: PathBuf,
    arrays: &Bound<'_, PyDict>,
    metadata: HashMap<String, String>,
) -> PyResult<()> {
    let mut named = Vec::with_capacity(arrays.len());
    for (name, array) in arrays {
        let Ok(array) = array.cast::<PyArray>() else {
            let message = format!("[save_safetensors] {name} is not an array but {}", type_name(&array));
            return Err(PyTypeError::new_err(message));
        };
        named.push((name.extract::<String>()?, array.get().value()));
    }
    let metadata: Vec<(String, String)> = metadata.into_iter().collect();
    let write = move || {
        let named: Vec<(&str, &Value)> = named.iter().map(|(name, value)| (name.as_str(), value)).collect();
        files::save_safetensors(&path, &named, &metadata)
    };
    py.detach(write).map_err(|error| raise(py, error))
}

/// Adds the functions.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    for function in [
        wrap_pyfunction!(eval, module)?,
        wrap_pyfunction!(async_eval, module)?,
        wrap_pyfunction!(finish, module)?,
        wrap_pyfunction!(synchronize, module)?,
        wrap_pyfunction!(open_device, module)?,
        wrap_pyfunction!(keep_shaders, module)?,
        wrap_pyfunction!(device, module)?,
        wrap_pyfunction!(gpu_names, module)?,
        wrap_pyfunction!(refuse_after_fork, module)?,
        wrap_pyfunction!(memory_bytes, module)?,
        wrap_pyfunction!(explain, module)?,
        wrap_pyfunction!(program_counts, module)?,
        wrap_pyfunction!(clear_cache, module)?,
        wrap_pyfunction!(load_safetensors, module)?,
        wrap_pyfunction!(save_safetensors, module)?,
    ] {
        module.add_function(function)?;
    }
    Ok(())
}
