use crate::blocks::QkNorm;
use crate::transformer::Style;

/// Llama (Touvron et al. 2023, arXiv:2302.13971), to Llama 3.3: norms before the blocks. Mistral (Jiang et
/// al. 2023, arXiv:2310.06825) differs in its window, Qwen2 and 2.5 (Qwen team 2024, arXiv:2407.10671,
/// arXiv:2412.15115) in the biases of q, k and v, SmolLM3 (Hugging Face 2025) in layers without positions
/// (Yang et al. 2025, arXiv:2501.18795); all of them are in the configuration.
pub const STYLE: Style = Style {
    before_attention: Some("input_layernorm"),
    after_attention: None,
    before_mlp: Some("post_attention_layernorm"),
    after_mlp: None,
    qk_norm: QkNorm::None,
    fused: false,
};
