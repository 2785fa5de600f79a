//! One entry of the list of tensors.

use refrain_formats::{RowOrder, TensorOrder};

/// A tensor of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorRow {
    /// Hugging Face name.
    pub name: String,
    /// GGUF name.
    pub gguf: String,
    /// Shape, outermost axis first.
    pub shape: Vec<usize>,
    /// Row order in GGUF files.
    pub gguf_rows: RowOrder,
    /// Column order in GGUF files.
    pub gguf_columns: RowOrder,
    /// Row order in directories of transformers, if not quantised.
    pub hf_rows: RowOrder,
    /// Whether the configuration requires it. Optional biases and output heads are listed for all models.
    pub required: bool,
}

impl TensorRow {
    /// Row and column order in GGUF files.
    pub fn gguf_order(&self) -> TensorOrder {
        TensorOrder {
            rows: self.gguf_rows,
            columns: self.gguf_columns,
        }
    }

    /// Shape in GGUF files, where a matrix of one row is a vector.
    pub fn gguf_shape(&self) -> Vec<usize> {
        match self.shape[..] {
            [1, columns] => vec![columns],
            _ => self.shape.clone(),
        }
    }
}
