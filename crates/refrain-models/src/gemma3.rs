use crate::blocks::QkNorm;
use crate::transformer::Style;

/// Gemma 3's text decoder (Gemma team 2025, arXiv:2503.19786): norms before and after the blocks, and of
/// the queries and keys head by head.
pub const STYLE: Style = Style {
    before_attention: Some("input_layernorm"),
    after_attention: Some("post_attention_layernorm"),
    before_mlp: Some("pre_feedforward_layernorm"),
    after_mlp: Some("post_feedforward_layernorm"),
    qk_norm: QkNorm::Heads,
    fused: false,
};
