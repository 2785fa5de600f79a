use crate::blocks::QkNorm;
use crate::transformer::Style;

/// OLMo 2 (OLMo team 2025, arXiv:2501.00656): norms after the blocks, before they join the residual
/// stream, and of the queries and keys over all heads together. OLMo 3 differs in its windows.
pub const STYLE: Style = Style {
    before_attention: None,
    after_attention: Some("post_attention_layernorm"),
    before_mlp: None,
    after_mlp: Some("post_feedforward_layernorm"),
    qk_norm: QkNorm::Projection,
    fused: false,
};
