//! Configuration that is common to all models: sampling defaults and quantisation.

mod generation;
mod quantisation;

use std::collections::BTreeMap;

pub use generation::GenerationConfig;
pub(crate) use generation::token_ids;
pub(crate) use quantisation::read as quantisation;
use refrain_quant::QuantRecord;

/// MLX's quantisation, as in `config.json`.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantisation {
    /// The format of most layers.
    pub format: &'static QuantRecord,
    /// Layers with another format, by tensor name without `.weight`; `None` for layers that are not quantised.
    pub overrides: BTreeMap<String, Option<&'static QuantRecord>>,
}

impl Quantisation {
    /// Format of a layer (its weight's name without `.weight`); `None` if it is not quantised.
    pub fn of(&self, layer: &str) -> Option<&'static QuantRecord> {
        match self.overrides.get(layer) {
            Some(own) => *own,
            None => Some(self.format),
        }
    }
}
