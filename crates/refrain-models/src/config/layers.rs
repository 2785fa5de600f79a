//! Per-layer settings: sliding windows and rotary embeddings.

use refrain_formats::{Error, Metadata};

pub use super::key_names::{SLIDING_WINDOW, SLIDING_WINDOW_PATTERN};
use super::limits::MAX_LAYERS;

/// Attention settings of one layer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LayerAttention {
    /// Sliding window: number of last positions that a token sees, including its own; `None` for all.
    pub window: Option<usize>,
    /// Rotary embedding of queries and keys.
    pub rope: LayerRope,
}

/// Rotary embedding of one layer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LayerRope {
    /// None (NoPE, arXiv 2305.19466).
    None,
    /// The model's base and scaling.
    #[default]
    Global,
    /// The base of local layers, without scaling.
    Local,
}

/// Activation of an MLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// x · sigmoid(x).
    Silu,
    /// GELU, tanh approximation.
    GeluTanh,
    /// g · sigmoid(1.702 g) · (up + 1), with g clamped to at most 7 and up to ±7 (OpenAI 2025, arXiv:2508.10925).
    ClampedSwiglu,
}

/// Reads the sliding window. In GGUF, 0 means none.
///
/// # Errors
/// If the value is invalid.
pub fn window(metadata: &Metadata<'_>) -> Result<Option<usize>, Error> {
    if metadata.is_gguf() && metadata.number(SLIDING_WINDOW)? == Some(0.0) {
        Ok(None)
    } else {
        metadata.count(SLIDING_WINDOW)
    }
}

/// Reads which layers have the window `window`: those that the file lists, else those for which `default` returns true.
/// `rope` is their rotary embedding.
///
/// # Errors
/// If a value is invalid.
pub fn windowed_layers(
    metadata: &Metadata<'_>,
    layers: usize,
    window: Option<usize>,
    rope: LayerRope,
    default: impl Fn(usize) -> bool,
) -> Result<Vec<LayerAttention>, Error> {
    let layers = layers.min(MAX_LAYERS);
    let listed = listed(metadata, layers)?;
    if listed.iter().flatten().any(|local| *local) && window.is_none() && !metadata.is_gguf() {
        return Err(metadata.error("layer_types has \"sliding_attention\" layers, but there is no sliding_window"));
    }
    if metadata.is_gguf() && window.is_none() {
        return Ok(Vec::new());
    }
    let attention = |layer: usize| match &listed {
        Some(listed) => listed.get(layer).copied().unwrap_or(false),
        None => default(layer),
    };
    let attention = |layer: usize| {
        if attention(layer) {
            LayerAttention { window, rope }
        } else {
            LayerAttention::default()
        }
    };
    Ok(trim_defaults((0..layers).map(attention).collect()))
}

/// Removes trailing layers with default settings.
pub fn trim_defaults(mut layers: Vec<LayerAttention>) -> Vec<LayerAttention> {
    while layers.last() == Some(&LayerAttention::default()) {
        layers.pop();
    }
    layers
}

/// Reads which layers are local, from `layer_types`, or from GGUF's pattern if that is a list.
///
/// # Errors
/// If a value is invalid.
pub fn listed(metadata: &Metadata<'_>, layers: usize) -> Result<Option<Vec<bool>>, Error> {
    if metadata.is_gguf() {
        if !metadata.is_list(SLIDING_WINDOW_PATTERN) {
            return Ok(None);
        }
        let flags = metadata.numbers(SLIDING_WINDOW_PATTERN)?.unwrap_or_default();
        return Ok(Some(flags.iter().take(layers).map(|&flag| flag != 0.0).collect()));
    }
    let Some(kinds) = metadata.per_layer("layer_types", layers)? else {
        return Ok(None);
    };
    let kinds = kinds.iter().map(|kind| match kind.as_str() {
        Some("full_attention") => Ok(false),
        Some("sliding_attention") => Ok(true),
        _ => Err(metadata.unsupported(format!(
            "layers of type {kind} are not supported (supported: \"full_attention\", \"sliding_attention\")"
        ))),
    });
    kinds.collect::<Result<_, _>>().map(Some)
}
