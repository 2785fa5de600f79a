//! Keys of common hyperparameters in `config.json` and GGUF.

use refrain_formats::Key;

/// Width of the residual stream.
pub const HIDDEN_SIZE: Key = Key::new("hidden_size", "embedding_length");
/// Intermediate size of the MLP.
pub const INTERMEDIATE_SIZE: Key = Key::new("intermediate_size", "feed_forward_length");
/// Number of transformer blocks.
pub const LAYERS: Key = Key::new("num_hidden_layers", "block_count");
/// Number of trailing multi-token prediction layers, which are not part of the model.
pub(crate) const MTP_LAYERS: Key = Key::gguf("nextn_predict_layers");
/// Number of query heads.
pub const HEADS: Key = Key::new("num_attention_heads", "attention.head_count");
/// Number of key and value heads.
pub const KV_HEADS: Key = Key::new("num_key_value_heads", "attention.head_count_kv");
/// Size of a query and key head.
pub const HEAD_DIM: Key = Key::new("head_dim", "attention.key_length");
/// Size of a value head, in GGUF.
pub(crate) const VALUE_HEAD_DIM: Key = Key::gguf("attention.value_length");
/// Vocabulary size.
pub const VOCABULARY: Key = Key::new("vocab_size", "vocab_size");
/// Maximum context length.
pub const CONTEXT_LENGTH: Key = Key::new("max_position_embeddings", "context_length");
/// Epsilon of RMS norms.
pub const EPS: Key = Key::new("rms_norm_eps", "attention.layer_norm_rms_epsilon");
/// Soft cap of the logits.
pub const LOGIT_CAP: Key = Key::new("final_logit_softcapping", "final_logit_softcapping");
/// Size of the sliding window.
pub const SLIDING_WINDOW: Key = Key::new("sliding_window", "attention.sliding_window");
/// Period of layers without a window. In GGUF it may also be a list of the layers with one.
pub const SLIDING_WINDOW_PATTERN: Key = Key::new("sliding_window_pattern", "attention.sliding_window_pattern");
