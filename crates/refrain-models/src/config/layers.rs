//! What differs between the layers of a model, or between families.

use refrain_formats::{Error, Key, Metadata};

use super::MAX_LAYERS;

/// How one layer attends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LayerAttention {
    /// The last positions that a token sees, its own included; `None` for all of them.
    pub window: Option<usize>,
    /// How the layer's queries and keys are rotated.
    pub rope: LayerRope,
}

/// How one layer's queries and keys are rotated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LayerRope {
    /// Not at all (NoPE, arXiv 2305.19466).
    None,
    /// With the model's base and scaling.
    #[default]
    Global,
    /// With the base of local layers, unscaled.
    Local,
}

/// The function of a gated feed-forward network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// x · sigmoid(x).
    Silu,
    /// GELU by way of tanh.
    GeluTanh,
    /// g · sigmoid(1.702 g), times up + 1, of g of at most 7 and up within ±7 (OpenAI 2025, arXiv:2508.10925).
    ClampedSwiglu,
}

/// How many positions layers with a window see.
pub const WINDOW: Key = Key::new("sliding_window", "attention.sliding_window");
/// Every how many layers there is one without a window; in GGUF also a list of those with one.
pub const PATTERN: Key = Key::new("sliding_window_pattern", "attention.sliding_window_pattern");

/// The window that files speak of; where GGUF says 0, there is none.
///
/// # Errors
/// If the file says what cannot be.
pub fn window(metadata: &Metadata<'_>) -> Result<Option<usize>, Error> {
    if metadata.is_gguf() && metadata.number(WINDOW)? == Some(0.0) {
        Ok(None)
    } else {
        metadata.count(WINDOW)
    }
}

/// Layers with the window that is in force, if one is: those that the file lists, or else those of which `usual` says
/// so; `rope` is how they are rotated.
///
/// # Errors
/// If the file says what cannot be.
pub fn with_window(
    metadata: &Metadata<'_>,
    layers: usize,
    window: Option<usize>,
    rope: LayerRope,
    usual: impl Fn(usize) -> bool,
) -> Result<Vec<LayerAttention>, Error> {
    let layers = layers.min(MAX_LAYERS);
    let listed = listed(metadata, layers)?;
    if listed.iter().flatten().any(|local| *local) && window.is_none() && !metadata.is_gguf() {
        return Err(
            metadata.error("layer_types names layers of type \"sliding_attention\", but no sliding_window is in force")
        );
    }
    if metadata.is_gguf() && window.is_none() {
        return Ok(Vec::new());
    }
    let attention = |layer: usize| match &listed {
        Some(listed) => listed.get(layer).copied().unwrap_or(false),
        None => usual(layer),
    };
    let attention = |layer: usize| {
        if attention(layer) {
            LayerAttention { window, rope }
        } else {
            LayerAttention::default()
        }
    };
    Ok(without_usual_end((0..layers).map(attention).collect()))
}

/// A list without the layers at its end that are as by default.
pub fn without_usual_end(mut layers: Vec<LayerAttention>) -> Vec<LayerAttention> {
    while layers.last() == Some(&LayerAttention::default()) {
        layers.pop();
    }
    layers
}

/// Which layers the file says to be local: `layer_types`, or GGUF's pattern where it is a list.
///
/// # Errors
/// If the file says what cannot be.
pub fn listed(metadata: &Metadata<'_>, layers: usize) -> Result<Option<Vec<bool>>, Error> {
    if metadata.is_gguf() {
        if !metadata.is_list(PATTERN) {
            return Ok(None);
        }
        let flags = metadata.numbers(PATTERN)?.unwrap_or_default();
        return Ok(Some(flags.iter().take(layers).map(|&flag| flag != 0.0).collect()));
    }
    let Some(kinds) = metadata.for_layers("layer_types", layers)? else {
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
