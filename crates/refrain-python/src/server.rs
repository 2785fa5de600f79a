//! The server that `refrain.load` and `refrain.serve` start within the process.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use refrain_hub::Watcher;
use refrain_server::{ServerListener, ServerOptions};

use crate::control::check_process;
use crate::model::{self, Failure, ModelSettings};

/// Passes a download's progress to a Python function of the bytes that are here, and of all.
struct PythonWatcher(Option<Py<PyAny>>);

impl Watcher for PythonWatcher {
    fn progress(&self, done: u64, total: u64) {
        if let Some(function) = &self.0 {
            // What it raises has nowhere to go: downloads report from threads of their own.
            Python::attach(|py| drop(function.call1(py, (done, total))));
        }
    }
}

/// A model in an engine, and the server that requests reach it by. Stops when it is dropped.
#[pyclass(name = "_Server", module = "refrain", frozen)]
pub struct PyServer {
    address: String,
    stop: Mutex<Option<Sender<()>>>,
    thread: Mutex<Option<JoinHandle<std::io::Result<()>>>>,
}

#[pymethods]
impl PyServer {
    /// Loads a model and serves it at `host` and `port`, or at the Unix socket `socket`.
    #[new]
    #[pyo3(signature = (model, *, device, context, parallel, kv_type, host, port, socket, api_keys, progress))]
    #[expect(clippy::too_many_arguments, reason = "named arguments of a Python function")]
    fn new(
        py: Python<'_>,
        model: String,
        device: String,
        context: Option<usize>,
        parallel: Option<usize>,
        kv_type: Option<String>,
        host: String,
        port: u16,
        socket: Option<String>,
        api_keys: Vec<String>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<PyServer> {
        check_process()?;
        let cache = kv_type.map(|types| types.parse()).transpose();
        let settings = ModelSettings {
            device,
            context,
            parallel,
            cache: cache.map_err(PyValueError::new_err::<String>)?,
        };
        let watcher = PythonWatcher(progress);
        let server = py.detach(move || {
            // An address in use fails before a model is loaded.
            let listener = match &socket {
                Some(path) => ServerListener::at_socket(Path::new(path))?,
                None => ServerListener::at(SocketAddr::new(host.parse::<IpAddr>()?, port))?,
            };
            let checkpoint = model::open(&model, &watcher)?;
            let served = model::serve(&model, checkpoint, &settings)?;
            let address = listener.to_string();
            let options = ServerOptions {
                api_keys,
                ..ServerOptions::default()
            };
            let (stop, stopped) = channel();
            let thread = std::thread::Builder::new().name("refrain".to_owned()).spawn(move || {
                // The sender is dropped to stop.
                let wait = move || {
                    let _ = stopped.recv();
                };
                refrain_server::serve(listener, vec![served], &options, wait)
            })?;
            Ok(PyServer {
                address,
                stop: Mutex::new(Some(stop)),
                thread: Mutex::new(Some(thread)),
            })
        });
        server.map_err(|error: Failure| PyRuntimeError::new_err(error.to_string()))
    }

    /// Where it listens: a URL, or the path of a Unix socket after `unix:`.
    #[getter]
    fn address(&self) -> &str {
        &self.address
    }

    /// Waits until the server ends.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else {
            return Ok(());
        };
        match py.detach(move || thread.join()) {
            Ok(ended) => ended.map_err(PyErr::from),
            Err(_) => Err(PyRuntimeError::new_err("the server ended unexpectedly")),
        }
    }

    /// Refuses new requests, waits for those that run, and frees the model.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.wait(py)
    }
}

/// Adds the class.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyServer>()
}
