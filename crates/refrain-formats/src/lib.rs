//! Checkpoints on disk: safetensors, MLX quantisation, GGUF, tokenizers, chat templates
