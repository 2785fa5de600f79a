//! How a GGUF file stretches the rotary frequencies.

use super::Gguf;
use crate::config::RopeScaling;
use crate::{Encoding, Error};

/// The tensor that holds the divisors of the rotary frequencies.
pub(crate) const ROPE_FACTORS: &str = "rope_freqs.weight";
/// The same for contexts up to the original one, and for longer ones.
pub(crate) const SHORT_FACTORS: &str = "rope_factors_short.weight";
pub(crate) const LONG_FACTORS: &str = "rope_factors_long.weight";

/// Whether a tensor belongs to the positions rather than to a layer.
pub(super) fn holds_factors(name: &str) -> bool {
    [ROPE_FACTORS, SHORT_FACTORS, LONG_FACTORS].contains(&name)
}

pub(super) fn scaling(gguf: &Gguf, bytes: &[u8], key: &dyn Fn(&str) -> String) -> Result<RopeScaling, Error> {
    let metadata = &gguf.metadata;
    let own = |suffix: &str| metadata.number(&key(&format!("rope.scaling.{suffix}")));
    let factor = match own("factor")? {
        Some(factor) => Some(factor),
        None => metadata.number(&key("rope.scale_linear"))?,
    };
    let original = || -> Result<f64, Error> {
        match own("original_context_length")? {
            Some(original) => Ok(original),
            None => Ok(metadata.needed_count(&key("context_length"))? as f64),
        }
    };
    let attention_factor = own("attn_factor")?.unwrap_or(1.0);
    if let (Some(short), Some(long)) = (
        factors(gguf, bytes, SHORT_FACTORS)?,
        factors(gguf, bytes, LONG_FACTORS)?,
    ) {
        return Ok(RopeScaling::LongRope {
            short,
            long,
            original_max_position: original()? as usize,
            attention_factor,
        });
    }
    if let Some(factors) = factors(gguf, bytes, ROPE_FACTORS)? {
        return Ok(RopeScaling::Factors(factors));
    }
    let missing = || gguf.error(format!("metadata {} is missing", key("rope.scaling.factor")));
    match metadata.string(&key("rope.scaling.type"))? {
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
                beta_fast: own("yarn_beta_fast")?.unwrap_or(32.0),
                beta_slow: own("yarn_beta_slow")?.unwrap_or(1.0),
                truncate: true,
                attention_factor: attention_factor * (1.0 + 0.1 * factor.max(1.0).ln()),
            })
        }
        Some("longrope") => Err(gguf.error(format!(
            "rope scaling \"longrope\" needs the tensors {SHORT_FACTORS} and {LONG_FACTORS}, which are not both there"
        ))),
        Some(other) => Err(gguf.unsupported(format!(
            "rope scaling {other:?} is not supported (supported: none, linear, yarn, longrope, rope factors)"
        ))),
    }
}

/// The values of a tensor of factors, if it is there.
fn factors(gguf: &Gguf, bytes: &[u8], name: &str) -> Result<Option<Vec<f32>>, Error> {
    let Some(factors) = gguf.tensors.iter().find(|entry| entry.name == name) else {
        return Ok(None);
    };
    if factors.encoding != Encoding::F32 {
        let reason = format!("is stored as {}, not F32", factors.encoding);
        return Err(Error::tensor(&gguf.file, name, reason));
    }
    // Converters write them before the weights, so that they lie in the first part of a split model.
    let own = bytes.get(factors.range.clone()).filter(|_| factors.file == 0);
    let Some(own) = own else {
        let reason = "lies in another part of the model than the first, which is not supported";
        return Err(Error::tensor(&gguf.file, name, reason));
    };
    let (values, _) = own.as_chunks::<4>();
    let values = values.iter().map(|value| f32::from_le_bytes(*value));
    Ok(Some(values.collect()))
}
