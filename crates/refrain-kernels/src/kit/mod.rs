//! What families are written with: texts of kernels, their arguments, walks over strided operands, and what
//! drivers and matrix cores demand.

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
