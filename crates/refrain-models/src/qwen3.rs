use crate::blocks::QkNorm;
use crate::llama;
use crate::transformer::Style;

/// Qwen3, dense (Qwen team 2025, arXiv:2505.09388): a Llama whose queries and keys are normalised
/// head by head before they are rotated.
pub const STYLE: Style = Style {
    qk_norm: QkNorm::Heads,
    ..llama::STYLE
};
