//! The supported model families, one file each. A file defines names, hyperparameters, tensors, model code, and the
//! metadata that is written back.

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

/// All supported families. If several share a name in GGUF files, the first one reads them.
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

impl Family {
    /// Returns the family that reads GGUF files of this family's name: the first with that name.
    pub fn gguf_family(&'static self) -> &'static Family {
        let mut known = FAMILIES.iter();
        known.find(|family| family.gguf == self.gguf).copied().unwrap_or(self)
    }
}
