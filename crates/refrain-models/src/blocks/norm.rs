use refrain::{Array, DType, fast};

use crate::{Error, Loader};

/// RMS norm (Zhang & Sennrich 2019): x / √(mean(x²) + eps) · gain.
pub struct Norm {
    gain: Array,
    eps: f32,
}

impl Norm {
    /// `{name}.weight` `[n]`, to which families that store gains less one have the one added.
    pub fn load(loader: &Loader<'_>, name: &str, n: usize) -> Result<Norm, Error> {
        let mut norm = Norm::plain(loader, name, n)?;
        if loader.config.norm_offset != 0.0 {
            norm.gain = norm.gain.astype(DType::F32) + loader.config.norm_offset;
            norm.gain.eval()?;
        }
        Ok(norm)
    }

    /// `{name}.weight` `[n]` as it is stored.
    pub fn plain(loader: &Loader<'_>, name: &str, n: usize) -> Result<Norm, Error> {
        Ok(Norm {
            gain: loader.vector(&format!("{name}.weight"), n)?,
            eps: loader.config.rms_norm_eps,
        })
    }

    /// x `[.., n]` → the same.
    pub fn forward(&self, x: &Array) -> Array {
        fast::rms_norm(x, Some(&self.gain), self.eps)
    }
}
