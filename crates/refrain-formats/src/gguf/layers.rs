//! How the layers of a GGUF file's model attend.

use super::Gguf;
use crate::Error;
use crate::config::{Architecture, LayerAttention, LayerRope, MAX_LAYERS};

/// How each of `layers` layers attends.
pub(super) fn attention(
    gguf: &Gguf,
    bytes: &[u8],
    key: &dyn Fn(&str) -> String,
    architecture: Architecture,
    layers: usize,
) -> Result<Vec<LayerAttention>, Error> {
    let layers = layers.min(MAX_LAYERS);
    let window = match gguf.metadata.number(&key("attention.sliding_window"))? {
        None | Some(0.0) => None,
        Some(_) => gguf.metadata.count(&key("attention.sliding_window"))?,
    };
    let pattern_key = key("attention.sliding_window_pattern");
    match architecture {
        Architecture::Phi3 => Ok(vec![
            LayerAttention {
                window,
                rope: LayerRope::Global,
            };
            layers
        ]),
        // llama.cpp knows no other interval, and no key for it.
        Architecture::SmolLm3 => {
            let rotated = LayerAttention::default();
            let unrotated = LayerAttention {
                rope: LayerRope::None,
                ..rotated
            };
            Ok(periodic(layers, 4, unrotated, rotated))
        }
        Architecture::Gemma3 | Architecture::Olmo2 if window.is_some() => {
            let local = LayerAttention {
                window,
                rope: LayerRope::Local,
            };
            if gguf
                .metadata
                .array_length(&pattern_key)
                .is_ok_and(|length| length.is_some())
            {
                let flags = gguf.metadata.numbers(&pattern_key, bytes)?.unwrap_or_default();
                return Ok(flags
                    .iter()
                    .take(layers)
                    .map(|&flag| if flag == 0.0 { LayerAttention::default() } else { local })
                    .collect());
            }
            let period = if architecture == Architecture::Gemma3 { 6 } else { 4 };
            let period = gguf.metadata.count(&pattern_key)?.unwrap_or(period);
            Ok(periodic(layers, period, LayerAttention::default(), local))
        }
        _ => Ok(Vec::new()),
    }
}

/// Every `period`th layer is as `last`, the others as `others`.
fn periodic(layers: usize, period: usize, last: LayerAttention, others: LayerAttention) -> Vec<LayerAttention> {
    let attention = |number: usize| match number.is_multiple_of(period) {
        true => last,
        false => others,
    };
    (1..=layers).map(attention).collect()
}
