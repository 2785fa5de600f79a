//! The extension module `refrain._core`: MLX's arrays and functions for Python, and a server within the process
//! (`server.rs`), which `refrain.load` asks.
//!
//! It binds `refrain-mlx`, function by function, and decides nothing itself: it converts arguments, raises errors as
//! the exceptions that MLX raises, and lets other Python threads run while arrays are computed. What needs no Rust is
//! Python, in `python/refrain/mlx`: how the module takes the place of `mlx.core`, streams, printing, and functions
//! that are composed of others.

mod array;
mod compiled;
mod control;
mod convert;
mod create;
mod creation;
mod dtype;
mod elements;
mod elementwise;
mod error;
mod fast;
mod gather;
mod indexing;
mod interchange;
mod layers;
mod linalg;
mod linear;
mod model;
mod operators;
mod products;
mod random;
mod reductions;
mod server;
mod shapes;

use pyo3::prelude::*;
use pyo3::types::PyModule;

/// A program makes and drops some thousand small allocations for each token.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Arrays and functions for `refrain.mlx`.
#[pymodule(gil_used = true)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<array::PyArray>()?;
    dtype::register(module)?;
    create::register(module)?;
    creation::register(module)?;
    elementwise::register(module)?;
    reductions::register(module)?;
    shapes::register(module)?;
    gather::register(module)?;
    products::register(module)?;
    linear::register(module)?;
    layers::register(module)?;
    indexing::register(module)?;
    interchange::register(module)?;
    compiled::register(module)?;
    control::register(module)?;
    error::register(module)?;
    server::register(module)?;
    let py = module.py();
    for (name, register) in [
        ("fast", fast::register as fn(&Bound<'_, PyModule>) -> PyResult<()>),
        ("linalg", linalg::register),
        ("random", random::register),
    ] {
        let submodule = PyModule::new(py, name)?;
        register(&submodule)?;
        module.add_submodule(&submodule)?;
    }
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
