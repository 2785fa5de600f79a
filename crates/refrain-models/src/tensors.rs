//! The list of a model's tensors: their names in each file format, shapes, and row order.

mod row;

use refrain_formats::RowOrder;

pub use row::TensorRow;

use crate::config::ModelConfig;

/// Names of a part in Hugging Face files and in GGUF.
pub type TensorNames = [&'static str; 2];

/// Builds the list of a model's tensors.
pub struct TensorTable {
    rows: Vec<TensorRow>,
    prefixes: [String; 2],
}

impl TensorTable {
    /// Starts with the tensors of every decoder: embedding, last norm, output head.
    pub fn new(config: &ModelConfig) -> TensorTable {
        let mut table = TensorTable {
            rows: Vec::new(),
            prefixes: [String::new(), String::new()],
        };
        let matrix = [config.vocab_size, config.hidden_size];
        table.add(["model.embed_tokens.weight", "token_embd.weight"], &matrix);
        table.add(["model.norm.weight", "output_norm.weight"], &[config.hidden_size]);
        table.add(["lm_head.weight", "output.weight"], &matrix).required = !config.tie_word_embeddings;
        table
    }

    /// Sets the prefix of the following tensors to layer `number`.
    pub fn layer(&mut self, config: &ModelConfig, number: usize) -> &mut TensorTable {
        self.under([format!("{}.", config.layer_name(number)), format!("blk.{number}.")])
    }

    /// Sets the prefixes of the following tensors in Hugging Face files and in GGUF.
    pub fn under(&mut self, prefixes: [String; 2]) -> &mut TensorTable {
        self.prefixes = prefixes;
        self
    }

    /// Adds a tensor by its full names.
    pub fn add(&mut self, names: [&str; 2], shape: &[usize]) -> &mut TensorRow {
        let [name, gguf] = names;
        let [own, own_gguf] = &self.prefixes;
        self.rows.push(TensorRow {
            name: format!("{own}{name}"),
            gguf: format!("{own_gguf}{gguf}"),
            shape: shape.to_vec(),
            gguf_rows: RowOrder::AsStored,
            gguf_columns: RowOrder::AsStored,
            hf_rows: RowOrder::AsStored,
            required: true,
        });
        let last = self.rows.len() - 1;
        &mut self.rows[last]
    }

    /// Adds a norm's weights.
    pub fn norm(&mut self, names: TensorNames, n: usize) {
        self.with_suffix(names, ".weight", &[n]);
    }

    /// Adds a projection `[outputs, inputs]` with the GGUF row order `rows`, and its biases, required if `bias`.
    pub fn linear(&mut self, names: TensorNames, shape: [usize; 2], bias: bool, rows: RowOrder) {
        self.with_suffix(names, ".weight", &shape).gguf_rows = rows;
        let biases = self.with_suffix(names, ".bias", &shape[..1]);
        (biases.gguf_rows, biases.required) = (rows, bias);
    }

    /// Adds a tensor with the same suffix in both names.
    pub fn with_suffix(&mut self, [name, gguf]: [&str; 2], ending: &str, shape: &[usize]) -> &mut TensorRow {
        let row = self.add([name, gguf], shape);
        row.name += ending;
        row.gguf += ending;
        row
    }

    /// Returns the list.
    pub fn rows(self) -> Vec<TensorRow> {
        self.rows
    }
}
