//! What the files beside the weights say that concerns every model alike.

mod generation;
mod quantisation;

use std::collections::BTreeMap;

pub use generation::GenerationConfig;
pub(crate) use generation::token_ids;
pub(crate) use quantisation::read as quantisation;
use refrain_quant::QuantRecord;

/// MLX's quantisation, as config.json has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantisation {
    /// The format of most layers.
    pub format: &'static QuantRecord,
    /// Layers (by their tensors' names without `.weight`) that differ: their format,
    /// or `None` for a layer that was left as it was.
    pub overrides: BTreeMap<String, Option<&'static QuantRecord>>,
}

impl Quantisation {
    /// The format of a layer (the name of its weight without `.weight`), or `None` if it
    /// was not quantised.
    pub fn of(&self, layer: &str) -> Option<&'static QuantRecord> {
        match self.overrides.get(layer) {
            Some(own) => *own,
            None => Some(self.format),
        }
    }
}
