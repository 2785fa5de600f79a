//! The table of a model's tensors: their names in each kind of file, their shapes, and the order of their rows.

use refrain_formats::{RowOrder, TensorOrder};

use crate::config::ModelConfig;

/// One tensor of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorRow {
    /// Its name in Hugging Face's files.
    pub name: String,
    /// Its name in GGUF files.
    pub gguf: String,
    /// Its shape, outermost axis first.
    pub shape: Vec<usize>,
    /// In which order GGUF files have its rows.
    pub rows: RowOrder,
    /// In which order they have its columns.
    pub columns: RowOrder,
    /// In which order directories of transformers have them, where they are not quantised.
    pub in_directory: RowOrder,
    /// Whether the configuration calls for it: of biases and output heads the names are known of all models.
    pub needed: bool,
}

impl TensorRow {
    /// In which order GGUF files have it.
    pub fn in_gguf(&self) -> TensorOrder {
        TensorOrder {
            rows: self.rows,
            columns: self.columns,
        }
    }

    /// The shape that GGUF files give it: a matrix of one row is a vector there.
    pub fn gguf_shape(&self) -> Vec<usize> {
        match self.shape[..] {
            [1, columns] => vec![columns],
            _ => self.shape.clone(),
        }
    }
}

/// What a part is called by Hugging Face and in GGUF.
pub type Names = [&'static str; 2];

/// Lists the tensors of a model.
pub struct Table {
    rows: Vec<TensorRow>,
    place: [String; 2],
}

impl Table {
    /// What every decoder has: the embedding, the last norm, the output head.
    pub fn new(config: &ModelConfig) -> Table {
        let mut table = Table {
            rows: Vec::new(),
            place: [String::new(), String::new()],
        };
        let matrix = [config.vocab_size, config.hidden_size];
        table.add(["model.embed_tokens.weight", "token_embd.weight"], &matrix);
        table.add(["model.norm.weight", "output_norm.weight"], &[config.hidden_size]);
        table.add(["lm_head.weight", "output.weight"], &matrix).needed = !config.tie_word_embeddings;
        table
    }

    /// What follows is a part of layer `number`.
    pub fn layer(&mut self, number: usize) -> &mut Table {
        self.place = [format!("model.layers.{number}."), format!("blk.{number}.")];
        self
    }

    /// A tensor by its whole names.
    pub fn add(&mut self, names: [&str; 2], shape: &[usize]) -> &mut TensorRow {
        let [name, gguf] = names;
        let [own, own_gguf] = &self.place;
        self.rows.push(TensorRow {
            name: format!("{own}{name}"),
            gguf: format!("{own_gguf}{gguf}"),
            shape: shape.to_vec(),
            rows: RowOrder::AsStored,
            columns: RowOrder::AsStored,
            in_directory: RowOrder::AsStored,
            needed: true,
        });
        let last = self.rows.len() - 1;
        &mut self.rows[last]
    }

    /// A norm's weights.
    pub fn norm(&mut self, names: Names, n: usize) {
        self.part(names, ".weight", &[n]);
    }

    /// A projection `[outputs, inputs]`, whose rows GGUF has in the order `rows`, with biases where `bias`.
    pub fn linear(&mut self, names: Names, shape: [usize; 2], bias: bool, rows: RowOrder) {
        self.part(names, ".weight", &shape).rows = rows;
        let biases = self.part(names, ".bias", &shape[..1]);
        (biases.rows, biases.needed) = (rows, bias);
    }

    /// A tensor whose names end alike.
    pub fn part(&mut self, [name, gguf]: [&str; 2], ending: &str, shape: &[usize]) -> &mut TensorRow {
        let row = self.add([name, gguf], shape);
        row.name += ending;
        row.gguf += ending;
        row
    }

    /// All of it.
    pub fn rows(self) -> Vec<TensorRow> {
        self.rows
    }
}
