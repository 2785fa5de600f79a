use refrain::nn::RmsNorm;
use refrain::{Array, DType, fast};

use crate::tensors::{Names, Table};
use crate::{Error, Loader};

/// The kinds of norms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormKind {
    /// x / √(mean(x²) + eps) · weight (Zhang & Sennrich 2019, arXiv:1910.07467).
    Rms,
    /// (x − mean(x)) / √(var(x) + eps) · weight + bias (Ba et al. 2016, arXiv:1607.06450).
    Layer,
    /// The same without a bias.
    LayerWithoutBias,
}

/// A norm over the last axis.
pub enum BlockNorm {
    /// Of the mean square.
    Rms(RmsNorm),
    /// Of the variance: the RMS norm of what is left without the mean, and perhaps a bias.
    Layer {
        /// Its weight.
        scaled: RmsNorm,
        /// `[n]`.
        bias: Option<Array>,
    },
    /// Of the variance of each head, with a weight for each.
    Heads {
        /// `[heads, n]`.
        weight: Array,
        /// Added to the variance.
        eps: f32,
    },
}

impl BlockNorm {
    /// `{name}.weight` `[n]`, and `{name}.bias` where the kind has one.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn load(loader: &Loader<'_>, kind: NormKind, name: &str, n: usize) -> Result<BlockNorm, Error> {
        let scaled = loader.whole(name, n)?;
        Ok(match kind {
            NormKind::Rms => BlockNorm::Rms(scaled),
            NormKind::Layer => BlockNorm::Layer {
                scaled,
                bias: Some(loader.vector(&format!("{name}.bias"), n)?),
            },
            NormKind::LayerWithoutBias => BlockNorm::Layer { scaled, bias: None },
        })
    }

    /// `{name}.weight` `[heads, n]`: each head less its mean, by its variance.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn of_heads(loader: &Loader<'_>, name: &str, shape: [usize; 2]) -> Result<BlockNorm, Error> {
        Ok(BlockNorm::Heads {
            weight: loader.array(&format!("{name}.weight"), &shape)?,
            eps: loader.config.norm.eps,
        })
    }

    /// Its tensors.
    pub fn tensors(table: &mut Table, kind: NormKind, names: Names, n: usize) {
        table.norm(names, n);
        if kind == NormKind::Layer {
            table.part(names, ".bias", &[n]);
        }
    }

    /// x `[.., n]` → the same.
    pub fn forward(&self, x: &Array) -> Array {
        let centred = || x - &x.mean(&[-1]).expand_dims(-1);
        match self {
            BlockNorm::Rms(norm) => norm.forward(x),
            BlockNorm::Layer { scaled, bias } => {
                let normed = fast::rms_norm(&centred(), Some(&scaled.weight), scaled.eps);
                match bias {
                    Some(bias) => normed + bias,
                    None => normed,
                }
            }
            BlockNorm::Heads { weight, eps } => fast::rms_norm(&centred(), None, *eps) * weight,
        }
    }
}

impl Loader<'_> {
    /// The norm of the mean square with weight `{name}.weight` `[n]`, to which families that store weights less one have the
    /// one added.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn norm(&self, name: &str, n: usize) -> Result<BlockNorm, Error> {
        BlockNorm::load(self, NormKind::Rms, name, n)
    }

    /// The same with its weight as it is stored.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn plain_norm(&self, name: &str, n: usize) -> Result<BlockNorm, Error> {
        Ok(BlockNorm::Rms(self.stored(name, n)?))
    }

    fn whole(&self, name: &str, n: usize) -> Result<RmsNorm, Error> {
        let mut norm = self.stored(name, n)?;
        if self.config.norm.offset != 0.0 {
            norm.weight = norm.weight.astype(DType::F32) + self.config.norm.offset;
            norm.weight.eval()?;
        }
        Ok(norm)
    }

    fn stored(&self, name: &str, n: usize) -> Result<RmsNorm, Error> {
        Ok(RmsNorm {
            weight: self.vector(&format!("{name}.weight"), n)?,
            eps: self.config.norm.eps,
        })
    }
}
