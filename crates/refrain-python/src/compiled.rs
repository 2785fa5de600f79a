//! `mlx.core.compile`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use refrain_mlx::{Compiled, Value};
use smallvec::SmallVec;

use crate::array::PyArray;
use crate::error::raise;

/// Maximum number of kinds of arguments for which a function is traced; for others it runs each time.
const MAX_TRACES: usize = 64;

static DISABLED: AtomicBool = AtomicBool::new(false);

/// A function that runs once for each kind of argument: shapes and dtypes of arrays, and the values of all others. What
/// it made of the arrays is then made again without running it. It runs each time if it reads other arrays, if it needs
/// elements, or with arguments that are no arrays, numbers, strings or sequences of these.
#[pyclass(frozen, dict, weakref, name = "compiled_function", module = "mlx.core")]
struct CompiledFunction {
    function: Py<PyAny>,
    // Never held while Python code runs.
    traces: Mutex<Vec<(Kind, Option<Arc<Trace>>)>>,
}

/// A kind of argument: words that are equal for calls of the same kind. A program calls a function with few of them, so
/// they are compared one by one.
type Kind = SmallVec<[u64; 32]>;

/// What a function made of one kind of argument.
struct Trace {
    compiled: Compiled,
    results: Results,
}

/// How a function returns its results.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Results {
    One,
    Tuple,
    List,
}

#[pymethods]
impl CompiledFunction {
    #[new]
    fn new(function: Bound<'_, PyAny>) -> PyResult<CompiledFunction> {
        if !function.is_callable() {
            return Err(PyTypeError::new_err("[compile] expected a function"));
        }
        Ok(CompiledFunction {
            function: function.unbind(),
            traces: Mutex::default(),
        })
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let run = || self.function.bind(py).call(args, kwargs);
        let mut arguments = Arguments::default();
        let are_plain = arguments.add_all(args.iter()) && kwargs.is_none_or(|kwargs| arguments.add_named(kwargs));
        if !are_plain || arguments.values.is_empty() || DISABLED.load(Ordering::Relaxed) {
            return run();
        }
        let Some(trace) = self.trace(py, args, kwargs, &arguments) else {
            return run();
        };
        let made = trace
            .compiled
            .call(&arguments.values)
            .map_err(|error| raise(py, error))?;
        let mut made = made.into_iter().map(PyArray::new);
        match trace.results {
            Results::One => Ok(Bound::new(py, made.next().expect("one result"))?.into_any()),
            Results::Tuple => Ok(PyTuple::new(
                py,
                made.map(|array| Bound::new(py, array)).collect::<PyResult<Vec<_>>>()?,
            )?
            .into_any()),
            Results::List => Ok(PyList::new(
                py,
                made.map(|array| Bound::new(py, array)).collect::<PyResult<Vec<_>>>()?,
            )?
            .into_any()),
        }
    }
}

impl CompiledFunction {
    /// What the function makes of such arguments; nothing if it must run each time.
    fn trace(
        &self,
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
        arguments: &Arguments,
    ) -> Option<Arc<Trace>> {
        {
            let traces = self.traces.lock().unwrap_or_else(PoisonError::into_inner);
            match traces.iter().find(|(kind, _)| *kind == arguments.kind) {
                Some((_, trace)) => return trace.clone(),
                None if traces.len() >= MAX_TRACES => return None,
                None => {}
            }
        }
        // An error is the function's own, or comes of placeholders, which have no elements: it runs again with its
        // arguments.
        let trace = traced(py, &self.function, args, kwargs, &arguments.values)
            .ok()
            .flatten()
            .map(Arc::new);
        let mut traces = self.traces.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have added the kind meanwhile; one of both is found.
        traces.push((arguments.kind.clone(), trace.clone()));
        trace
    }
}

/// Runs a function with placeholders. Returns nothing if its results are no arrays, or depend on other arrays.
fn traced(
    py: Python<'_>,
    function: &Py<PyAny>,
    args: &Bound<'_, PyTuple>,
    kwargs: Option<&Bound<'_, PyDict>>,
    values: &[Value],
) -> PyResult<Option<Trace>> {
    let placeholders = values.iter().map(Compiled::placeholder).collect::<Result<Vec<_>, _>>();
    let placeholders = placeholders.map_err(|error| raise(py, error))?;
    let mut next = placeholders.iter();
    let args: Vec<Bound<'_, PyAny>> = args
        .iter()
        .map(|argument| replaced(&argument, &mut next))
        .collect::<PyResult<_>>()?;
    let named = kwargs.map(|_| PyDict::new(py));
    if let (Some(named), Some(kwargs)) = (&named, kwargs) {
        for (name, argument) in kwargs {
            named.set_item(name, replaced(&argument, &mut next)?)?;
        }
    }
    let returned = function.bind(py).call(PyTuple::new(py, args)?, named.as_ref())?;
    let (results, made) = if let Ok(array) = returned.cast::<PyArray>() {
        (Results::One, vec![array.get().value()])
    } else if let Ok(tuple) = returned.cast_exact::<PyTuple>() {
        (Results::Tuple, arrays(tuple.iter()).unwrap_or_default())
    } else if let Ok(list) = returned.cast_exact::<PyList>() {
        (Results::List, arrays(list.iter()).unwrap_or_default())
    } else {
        return Ok(None);
    };
    if made.is_empty() {
        return Ok(None);
    }
    let compiled = Compiled::of(&placeholders, &made).ok();
    Ok(compiled.map(|compiled| Trace { compiled, results }))
}

/// The arrays, if all are some.
fn arrays<'py>(objects: impl Iterator<Item = Bound<'py, PyAny>>) -> Option<Vec<Value>> {
    let value = |object: Bound<'py, PyAny>| object.cast::<PyArray>().ok().map(|array| array.get().value());
    objects.map(value).collect()
}

/// An argument with placeholders for its arrays.
fn replaced<'v, 'py>(
    argument: &Bound<'py, PyAny>,
    next: &mut impl Iterator<Item = &'v Value>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = argument.py();
    if argument.is_instance_of::<PyArray>() {
        let placeholder = next.next().expect("one for each array").clone();
        Ok(Bound::new(py, PyArray::new(placeholder))?.into_any())
    } else if let Ok(tuple) = argument.cast::<PyTuple>() {
        let parts = tuple
            .iter()
            .map(|part| replaced(&part, next))
            .collect::<PyResult<Vec<_>>>()?;
        Ok(PyTuple::new(py, parts)?.into_any())
    } else if let Ok(list) = argument.cast::<PyList>() {
        let parts = list
            .iter()
            .map(|part| replaced(&part, next))
            .collect::<PyResult<Vec<_>>>()?;
        Ok(PyList::new(py, parts)?.into_any())
    } else {
        Ok(argument.clone())
    }
}

/// The arguments of a call: the arrays among them, and their kind.
#[derive(Default)]
struct Arguments {
    values: SmallVec<[Value; 4]>,
    kind: Kind,
}

impl Arguments {
    /// Adds arguments. Returns whether all are arrays, numbers, strings, or sequences of these.
    fn add_all<'py>(&mut self, objects: impl ExactSizeIterator<Item = Bound<'py, PyAny>>) -> bool {
        self.kind.extend([1, objects.len() as u64]);
        let mut objects = objects;
        objects.all(|object| self.add(&object))
    }

    /// Adds arguments by name.
    fn add_named(&mut self, arguments: &Bound<'_, PyDict>) -> bool {
        self.kind.extend([2, arguments.len() as u64]);
        arguments
            .iter()
            .all(|(name, argument)| self.add(&name) && self.add(&argument))
    }

    fn add(&mut self, object: &Bound<'_, PyAny>) -> bool {
        if let Ok(array) = object.cast::<PyArray>() {
            let value = array.get().value();
            self.kind.extend([3, value.dtype() as u64, value.ndim() as u64]);
            self.kind.extend(value.shape().iter().map(|&extent| extent as u64));
            self.values.push(value);
        } else if object.is_none() {
            self.kind.push(4);
        } else if let Ok(truth) = object.cast_exact::<PyBool>() {
            self.kind.extend([5, u64::from(truth.is_true())]);
        } else if let Ok(number) = object.cast_exact::<PyFloat>() {
            self.kind.extend([6, number.value().to_bits()]);
        } else if let Ok(number) = object.cast_exact::<PyInt>() {
            match number.extract::<i64>() {
                Ok(number) => self.kind.extend([7, number.cast_unsigned()]),
                Err(_) => return false,
            }
        } else if let Ok(text) = object.cast_exact::<PyString>() {
            match text.to_cow() {
                Ok(text) => {
                    self.kind.extend([8, text.len() as u64]);
                    self.kind.extend(text.bytes().map(u64::from));
                }
                Err(_) => return false,
            }
        } else if let Ok(tuple) = object.cast_exact::<PyTuple>() {
            return self.add_all(tuple.iter());
        } else if let Ok(list) = object.cast_exact::<PyList>() {
            self.kind.push(9);
            return self.add_all(list.iter());
        } else {
            return false;
        }
        true
    }
}

/// Whether compiled functions run each time.
#[pyfunction]
fn _disable_compile(disabled: bool) {
    DISABLED.store(disabled, Ordering::Relaxed);
}

/// Adds the class of compiled functions.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<CompiledFunction>()?;
    module.add_function(wrap_pyfunction!(_disable_compile, module)?)
}
