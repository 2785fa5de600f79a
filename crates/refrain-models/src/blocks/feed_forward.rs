//! The feed-forward part of a layer: an MLP or a mixture of experts.

use refrain::Array;

use super::{Mlp, MlpStyle, Moe};
use crate::config::ModelConfig;
use crate::tensors::TensorTable;
use crate::{Error, Loader};

/// Feed-forward part of a layer.
pub enum FeedForward {
    /// A dense MLP.
    Mlp(Box<Mlp>),
    /// A mixture of experts.
    Moe(Box<Moe>),
}

impl FeedForward {
    /// Lists the tensors of layer `number`.
    pub fn tensors(layer: &mut TensorTable, config: &ModelConfig, number: usize, style: MlpStyle) {
        match config.layer_moe(number) {
            Some(moe) => Moe::tensors(layer, config, moe),
            None => Mlp::tensors(layer, config, style),
        }
    }

    /// Loads the mixture of experts or MLP of layer `number`, as configured.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn load(loader: &Loader<'_>, number: usize, style: MlpStyle) -> Result<FeedForward, Error> {
        let layer = loader.config.layer_name(number);
        Ok(match loader.config.layer_moe(number) {
            Some(moe) => FeedForward::Moe(Box::new(Moe::load(loader, &layer, moe)?)),
            None => FeedForward::Mlp(Box::new(Mlp::load(loader, &format!("{layer}.mlp"), style)?)),
        })
    }

    /// x `[T, hidden]` → `[T, hidden]`.
    pub fn forward(&self, x: &Array) -> Array {
        match self {
            FeedForward::Mlp(mlp) => mlp.forward(x),
            FeedForward::Moe(moe) => moe.forward(x),
        }
    }
}
