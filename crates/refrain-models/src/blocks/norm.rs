//! Normalisation layers.

use refrain::nn::RmsNorm;
use refrain::{Array, DType, fast};

use crate::tensors::{TensorNames, TensorTable};
use crate::{Error, Loader};

/// Kind of norm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormKind {
    /// x / √(mean(x²) + eps) · weight (Zhang & Sennrich 2019, arXiv:1910.07467).
    Rms,
    /// LayerNorm: (x − mean(x)) / √(var(x) + eps) · weight + bias (Ba et al. 2016, arXiv:1607.06450).
    Layer,
    /// LayerNorm without a bias.
    LayerWithoutBias,
}

/// A norm over the last axis.
pub enum Norm {
    /// RMS norm.
    Rms(RmsNorm),
    /// LayerNorm, computed as the RMS norm of the centred input.
    Layer {
        /// Its weight.
        scaled: RmsNorm,
        /// `[n]`.
        bias: Option<Array>,
    },
    /// LayerNorm of each head, with separate weights per head.
    Heads {
        /// `[heads, n]`.
        weight: Array,
        /// Added to the variance.
        eps: f32,
    },
}

impl Norm {
    /// Loads `{name}.weight` `[n]`, and `{name}.bias` if the kind has a bias.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn load(loader: &Loader<'_>, kind: NormKind, name: &str, n: usize) -> Result<Norm, Error> {
        let scaled = loader.norm_with_offset(name, n)?;
        Ok(match kind {
            NormKind::Rms => Norm::Rms(scaled),
            NormKind::Layer => Norm::Layer {
                scaled,
                bias: Some(loader.vector(&format!("{name}.bias"), n)?),
            },
            NormKind::LayerWithoutBias => Norm::Layer { scaled, bias: None },
        })
    }

    /// Loads `{name}.weight` `[heads, n]` for a LayerNorm of each head.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn per_head(loader: &Loader<'_>, name: &str, shape: [usize; 2]) -> Result<Norm, Error> {
        Ok(Norm::Heads {
            weight: loader.array(&format!("{name}.weight"), &shape)?,
            eps: loader.config.norm.eps,
        })
    }

    /// Lists its tensors.
    pub fn tensors(table: &mut TensorTable, kind: NormKind, names: TensorNames, n: usize) {
        table.norm(names, n);
        if kind == NormKind::Layer {
            table.with_suffix(names, ".bias", &[n]);
        }
    }

    /// x `[.., n]` → same shape.
    pub fn forward(&self, x: &Array) -> Array {
        let centred = || x - &x.mean(&[-1]).expand_dims(-1);
        match self {
            Norm::Rms(norm) => norm.forward(x),
            Norm::Layer { scaled, bias } => {
                let normed = fast::rms_norm(&centred(), Some(&scaled.weight), scaled.eps);
                match bias {
                    Some(bias) => normed + bias,
                    None => normed,
                }
            }
            Norm::Heads { weight, eps } => fast::rms_norm(&centred(), None, *eps) * weight,
        }
    }
}

impl Loader<'_> {
    /// Loads an RMS norm with weight `{name}.weight` `[n]`. Adds 1 to the weights for families that store them minus
    /// 1.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn norm(&self, name: &str, n: usize) -> Result<Norm, Error> {
        Norm::load(self, NormKind::Rms, name, n)
    }

    /// Loads an RMS norm with its weights as stored.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn norm_without_offset(&self, name: &str, n: usize) -> Result<Norm, Error> {
        Ok(Norm::Rms(self.rms_norm(name, n)?))
    }

    fn norm_with_offset(&self, name: &str, n: usize) -> Result<RmsNorm, Error> {
        let mut norm = self.rms_norm(name, n)?;
        if self.config.norm.offset != 0.0 {
            norm.weight = norm.weight.astype(DType::F32) + self.config.norm.offset;
            norm.weight.eval()?;
        }
        Ok(norm)
    }

    fn rms_norm(&self, name: &str, n: usize) -> Result<RmsNorm, Error> {
        Ok(RmsNorm {
            weight: self.vector(&format!("{name}.weight"), n)?,
            eps: self.config.norm.eps,
        })
    }
}
