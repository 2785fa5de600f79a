//! Weights of products: rows of floats or of quantised values, on the CPU and as operands.

mod quant_matrix;
mod quant_rows;
mod rows;

pub(crate) use quant_matrix::{QuantMatrix, quant_run};
pub use quant_rows::QuantRows;
pub(crate) use rows::multiply;
pub use rows::{SliceRows, StoredRows, WeightRows};
