//! What llama.cpp wants to know of a model, as GGUF metadata.

use super::gguf::{ALIGNMENT, Metadata, Value};
use super::{Item, Part};
use crate::Encoding;
use crate::config::{ModelConfig, RopeScaling};
use crate::gguf::ROPE_FACTORS;

/// Everything but the tokenizer. `file_type` is llama.cpp's number of the mixture of encodings.
pub(crate) fn metadata(name: &str, file_type: u32, config: &ModelConfig) -> Metadata {
    let architecture = config.architecture.gguf_name();
    let own = |key: &str| format!("{architecture}.{key}");
    let count = |value: usize| Value::U32(value as u32);
    vec![
        ("general.architecture".to_owned(), Value::Text(architecture.to_owned())),
        ("general.type".to_owned(), Value::Text("model".to_owned())),
        ("general.name".to_owned(), Value::Text(name.to_owned())),
        ("general.alignment".to_owned(), Value::U32(ALIGNMENT as u32)),
        ("general.file_type".to_owned(), Value::U32(file_type)),
        ("general.quantization_version".to_owned(), Value::U32(2)),
        (own("block_count"), count(config.layers)),
        (own("context_length"), count(config.max_position)),
        (own("embedding_length"), count(config.hidden_size)),
        (own("feed_forward_length"), count(config.intermediate_size)),
        (own("attention.head_count"), count(config.heads)),
        (own("attention.head_count_kv"), count(config.kv_heads)),
        (own("attention.key_length"), count(config.head_dim)),
        (own("attention.value_length"), count(config.head_dim)),
        (own("attention.layer_norm_rms_epsilon"), Value::F32(config.rms_norm_eps)),
        (own("rope.dimension_count"), count(config.rope_dims)),
        (own("rope.freq_base"), Value::F32(config.rope_theta as f32)),
        (own("vocab_size"), count(config.vocab_size)),
    ]
}

/// What llama.cpp's converter writes for a model without a tokenizer.
pub(crate) fn no_tokenizer(config: &ModelConfig) -> Metadata {
    let mut metadata = vec![("tokenizer.ggml.model".to_owned(), Value::Text("none".to_owned()))];
    for (role, ids) in [("bos", &config.bos_ids), ("eos", &config.eos_ids)] {
        if let Some(&id) = ids.first() {
            metadata.push((format!("tokenizer.ggml.{role}_token_id"), Value::U32(id)));
        }
    }
    metadata
}

/// The tensor of what the rotary frequencies are divided by, if the model's scaling asks for one.
pub(crate) fn rope_item(config: &ModelConfig) -> Option<Item<'static>> {
    let divisors = rope_divisors(config)?;
    let part = Part {
        name: ROPE_FACTORS.to_owned(),
        encoding: Encoding::F32,
        shape: vec![divisors.len()],
        bytes: 4 * divisors.len() as u64,
    };
    let bytes = divisors.iter().flat_map(|divisor| divisor.to_le_bytes()).collect();
    Some(Item::bytes(part, bytes))
}

/// What the rotary frequencies are divided by (`rope_freqs.weight`), if the model's scaling asks for
/// it: those with fewer than `low_freq_factor` turns in the original context by `factor`, those with
/// more than `high_freq_factor` turns by 1, and in between by the reciprocal of the two reciprocals'
/// mean, weighted by the turns (Llama 3.1's rule).
fn rope_divisors(config: &ModelConfig) -> Option<Vec<f32>> {
    let (factor, low_freq_factor, high_freq_factor, original_max_position) = match &config.rope_scaling {
        RopeScaling::Factors(factors) => return Some(factors.clone()),
        RopeScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_max_position,
        } => (*factor, *low_freq_factor, *high_freq_factor, *original_max_position),
        _ => return None,
    };
    let divisor = |pair: usize| {
        let frequency = config.rope_theta.powf(-2.0 * pair as f64 / config.rope_dims as f64);
        let turns = original_max_position * frequency / std::f64::consts::TAU;
        let kept = ((turns - low_freq_factor) / (high_freq_factor - low_freq_factor)).clamp(0.0, 1.0);
        (1.0 / ((1.0 - kept) / factor + kept)) as f32
    };
    Some((0..config.rope_dims / 2).map(divisor).collect())
}
