//! Helpers that all kernel families share: GLSL assembly, arguments, strided traversal, and workarounds for drivers.

pub(crate) mod arguments;
pub(crate) mod dot;
pub mod fragments;
pub mod glsl;
pub(crate) mod iterations;
pub(crate) mod largest;
pub(crate) mod order;
pub(crate) mod rows;
pub(crate) mod text;
pub(crate) mod threads;
pub(crate) mod tickets;
pub(crate) mod walk;
