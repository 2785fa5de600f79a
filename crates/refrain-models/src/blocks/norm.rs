use refrain::DType;
use refrain::nn::RmsNorm;

use crate::{Error, Loader};

impl Loader<'_> {
    /// The norm with gain `{name}.weight` `[n]`, to which families that store gains less one have the one added.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn norm(&self, name: &str, n: usize) -> Result<RmsNorm, Error> {
        let mut norm = self.plain_norm(name, n)?;
        if self.config.norm_offset != 0.0 {
            norm.gain = norm.gain.astype(DType::F32) + self.config.norm_offset;
            norm.gain.eval()?;
        }
        Ok(norm)
    }

    /// The norm with gain `{name}.weight` `[n]` as it is stored.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn plain_norm(&self, name: &str, n: usize) -> Result<RmsNorm, Error> {
        Ok(RmsNorm {
            gain: self.vector(&format!("{name}.weight"), n)?,
            eps: self.config.rms_norm_eps,
        })
    }
}
