//! The families of models, a file each: names, hyperparameters, tensors, model code, and what is written back.

mod cohere;
mod deepseek;
mod gemma3;
mod glm4_moe;
mod gpt_oss;
mod granite;
mod llama;
mod mistral;
mod olmo2;
mod phi3;
mod qwen2;
mod qwen3;
mod qwen3_5;
mod qwen3_moe;
mod smollm3;
mod starcoder2;

use crate::family::Family;

/// All that there are. Where several have one name in GGUF files, the first takes it.
pub const FAMILIES: &[&Family] = &[
    &qwen3::QWEN3,
    &qwen3_moe::QWEN3_MOE,
    &llama::LLAMA,
    &qwen2::QWEN2,
    &mistral::MISTRAL,
    &smollm3::SMOLLM3,
    &olmo2::OLMO2,
    &olmo2::OLMO3,
    &phi3::PHI3,
    &gemma3::GEMMA3,
    &granite::GRANITE,
    &starcoder2::STARCODER2,
    &gpt_oss::GPT_OSS,
    &glm4_moe::GLM4_MOE,
    &cohere::COHERE,
    &cohere::COHERE2,
    &deepseek::DEEPSEEK_V2,
    &deepseek::DEEPSEEK_V3,
    &qwen3_5::QWEN3_5,
    &qwen3_5::QWEN3_5_MOE,
];
