//! What the files beside the weights say that concerns every model alike.

mod generation;
mod quantisation;

use std::collections::BTreeMap;

pub use generation::GenerationConfig;
pub(crate) use generation::token_ids;
pub(crate) use quantisation::read as quantisation;

/// MLX's affine quantisation, as config.json has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantisation {
    /// Bits per value: 4 or 8.
    pub bits: u8,
    /// Values that share a scale and a bias: 32, 64 or 128.
    pub group_size: u16,
    /// Layers (by their tensors' names without `.weight`) that differ: their bits and group size,
    /// or `None` for a layer that was left as it was.
    pub overrides: BTreeMap<String, Option<(u8, u16)>>,
}

impl Quantisation {
    /// Bits and group size of a layer (the name of its weight without `.weight`), or `None` if it
    /// was not quantised.
    pub fn of(&self, layer: &str) -> Option<(u8, u16)> {
        match self.overrides.get(layer) {
            Some(own) => *own,
            None => Some((self.bits, self.group_size)),
        }
    }
}
