use crate::llama;
use crate::transformer::Style;

/// Phi-3 (Abdin et al. 2024, arXiv:2404.14219): a Llama with q, k and v in one tensor, and gate and up in
/// another.
pub const STYLE: Style = Style {
    fused: true,
    ..llama::STYLE
};
