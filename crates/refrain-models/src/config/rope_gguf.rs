//! Reads the rotary scaling of a GGUF file.

use refrain_formats::{Error, Key, Metadata};

use super::RopeScaling;
use super::key_names::CONTEXT_LENGTH;

/// Tensor with the divisors of the rotary frequencies.
pub(crate) const ROPE_FACTORS: &str = "rope_freqs.weight";
/// Divisors for contexts up to the original length, and for longer ones.
pub(crate) const SHORT_FACTORS: &str = "rope_factors_short.weight";
pub(crate) const LONG_FACTORS: &str = "rope_factors_long.weight";

/// Whether a tensor holds rotary factors.
pub(crate) fn holds_factors(name: &str) -> bool {
    [ROPE_FACTORS, SHORT_FACTORS, LONG_FACTORS].contains(&name)
}

/// Reads the scaling from metadata and factor tensors.
pub(crate) fn scaling(metadata: &Metadata<'_>) -> Result<RopeScaling, Error> {
    let own = |key| metadata.number(Key::gguf(key));
    let factor = match own("rope.scaling.factor")? {
        Some(factor) => Some(factor),
        None => own("rope.scale_linear")?,
    };
    let original = || -> Result<f64, Error> {
        match own("rope.scaling.original_context_length")? {
            Some(original) => Ok(original),
            None => Ok(metadata.required(CONTEXT_LENGTH)? as f64),
        }
    };
    let attention_factor = own("rope.scaling.attn_factor")?.unwrap_or(1.0);
    if let (Some(short), Some(long)) = (metadata.floats(SHORT_FACTORS)?, metadata.floats(LONG_FACTORS)?) {
        return Ok(RopeScaling::LongRope {
            short,
            long,
            original_max_position: original()? as usize,
            attention_factor,
        });
    }
    if let Some(factors) = metadata.floats(ROPE_FACTORS)? {
        return Ok(RopeScaling::Factors(factors));
    }
    let missing = || metadata.missing(Key::gguf("rope.scaling.factor"));
    match metadata.text(Key::gguf("rope.scaling.type"))? {
        Some("none") => Ok(RopeScaling::None),
        None if factor.is_none() => Ok(RopeScaling::None),
        Some("linear") | None => Ok(RopeScaling::Linear {
            factor: factor.ok_or_else(missing)?,
        }),
        Some("yarn") => {
            let factor = factor.ok_or_else(missing)?;
            Ok(RopeScaling::Yarn {
                factor,
                original_max_position: original()?,
                beta_fast: own("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
                beta_slow: own("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
                truncate: true,
                attention_factor: attention_factor * (1.0 + 0.1 * factor.max(1.0).ln()),
            })
        }
        Some("longrope") => Err(metadata.error(format!(
            "rope scaling \"longrope\" requires both tensors {SHORT_FACTORS} and {LONG_FACTORS}"
        ))),
        Some(other) => Err(metadata.unsupported(format!(
            "rope scaling {other:?} is not supported (supported: none, linear, yarn, longrope, rope factors)"
        ))),
    }
}
