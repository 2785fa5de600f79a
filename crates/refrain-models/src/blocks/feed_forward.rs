use refrain::Array;

use super::{Mixture, Mlp, MlpStyle};
use crate::config::ModelConfig;
use crate::tensors::Table;
use crate::{Error, Loader};

/// What computes each token by itself.
pub enum FeedForward {
    /// One network.
    Mlp(Box<Mlp>),
    /// A mixture of experts.
    Mixture(Box<Mixture>),
}

impl FeedForward {
    /// Its tensors in layer `number`.
    pub fn tensors(layer: &mut Table, config: &ModelConfig, number: usize, style: MlpStyle) {
        match config.layer_mixture(number) {
            Some(mixture) => Mixture::tensors(layer, config, mixture),
            None => Mlp::tensors(layer, config, style),
        }
    }

    /// The mixture that the configuration asks for, or one network, of layer `number`.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn load(loader: &Loader<'_>, number: usize, style: MlpStyle) -> Result<FeedForward, Error> {
        let layer = format!("model.layers.{number}");
        Ok(match loader.config.layer_mixture(number) {
            Some(mixture) => FeedForward::Mixture(Box::new(Mixture::load(loader, &layer, mixture)?)),
            None => FeedForward::Mlp(Box::new(Mlp::load(loader, &format!("{layer}.mlp"), style)?)),
        })
    }

    /// x `[T, hidden]` → `[T, hidden]`.
    pub fn forward(&self, x: &Array) -> Array {
        match self {
            FeedForward::Mlp(mlp) => mlp.forward(x),
            FeedForward::Mixture(mixture) => mixture.forward(x),
        }
    }
}
