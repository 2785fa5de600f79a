//! Configuration that is common to all models: sampling defaults and quantisation.

mod generation;
mod quantisation;

use std::collections::BTreeMap;

pub use generation::GenerationConfig;
pub(crate) use generation::token_ids;
pub(crate) use quantisation::read as quantisation;
use refrain_quant::QuantRecord;

use crate::small_floats::SmallFloats;

/// How MLX stores the weights of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerFormat {
    /// Quantised in a format that kernels read.
    Quantised(&'static QuantRecord),
    /// Floats of a few bits.
    Floats(SmallFloats),
}

impl LayerFormat {
    /// Value of `mode` in `config.json`; `None` if MLX does not have the format.
    pub fn mode(self) -> Option<&'static str> {
        match self {
            LayerFormat::Quantised(record) => record.mode,
            LayerFormat::Floats(floats) => Some(floats.mode()),
        }
    }

    /// Bits per value.
    pub fn bits(self) -> u32 {
        match self {
            LayerFormat::Quantised(record) => record.format.bits,
            LayerFormat::Floats(floats) => floats.bits(),
        }
    }

    /// Values that share a scale.
    pub fn group(self) -> u32 {
        match self {
            LayerFormat::Quantised(record) => record.format.group,
            LayerFormat::Floats(floats) => floats.group(),
        }
    }
}

/// MLX's quantisation, as in `config.json`.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantisation {
    /// The format of most layers.
    pub format: LayerFormat,
    /// Layers with another format, by tensor name without `.weight`; `None` for layers that are not quantised.
    pub overrides: BTreeMap<String, Option<LayerFormat>>,
}

impl Quantisation {
    /// Format of a layer (its weight's name without `.weight`); `None` if it is not quantised.
    pub fn of(&self, layer: &str) -> Option<LayerFormat> {
        match self.overrides.get(layer) {
            Some(own) => *own,
            None => Some(self.format),
        }
    }
}
