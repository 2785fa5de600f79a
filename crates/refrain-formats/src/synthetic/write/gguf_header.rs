//! What comes before the weights in a GGUF file (version 3): counts, metadata, list of tensors.
//! All is little-endian; a string is its length in 8 bytes, then UTF-8.

use crate::Encoding;
use crate::config::{ModelConfig, RopeScaling};

/// Tensors begin at multiples of this many bytes after the header.
pub(super) const ALIGNMENT: u64 = 32;

/// A tensor in the header's list.
pub(super) struct Entry {
    pub name: String,
    /// Outermost axis first.
    pub shape: Vec<usize>,
    pub encoding: Encoding,
    pub bytes: u64,
}

/// One metadata value.
enum Value {
    U32(u32),
    F32(f32),
    Text(String),
}

/// The header, padded to where the first tensor begins.
pub(super) fn header(name: &str, matrices: Encoding, config: &ModelConfig, entries: &[Entry]) -> Vec<u8> {
    let metadata = metadata(name, matrices, config);
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3u32.to_le_bytes());
    bytes.extend((entries.len() as u64).to_le_bytes());
    bytes.extend((metadata.len() as u64).to_le_bytes());
    for (key, value) in metadata {
        put_text(&mut bytes, &key);
        put_value(&mut bytes, &value);
    }
    let mut offset = 0;
    for entry in entries {
        put_text(&mut bytes, &entry.name);
        bytes.extend((entry.shape.len() as u32).to_le_bytes());
        for &axis in entry.shape.iter().rev() {
            bytes.extend((axis as u64).to_le_bytes());
        }
        bytes.extend(type_number(entry.encoding).to_le_bytes());
        bytes.extend(u64::to_le_bytes(offset));
        offset = (offset + entry.bytes).next_multiple_of(ALIGNMENT);
    }
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT as usize), 0);
    bytes
}

/// Everything that llama.cpp wants to know of a model.
fn metadata(name: &str, matrices: Encoding, config: &ModelConfig) -> Vec<(String, Value)> {
    let architecture = config.architecture.name();
    let own = |key: &str| format!("{architecture}.{key}");
    let count = |value: usize| Value::U32(value as u32);
    let file_type = match matrices {
        Encoding::Q8_0 => 7,
        _ => 2,
    };
    let mut metadata = vec![
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
        // What llama.cpp's converter writes for a model without a tokenizer.
        ("tokenizer.ggml.model".to_owned(), Value::Text("none".to_owned())),
    ];
    for (role, ids) in [("bos", &config.bos_ids), ("eos", &config.eos_ids)] {
        if let Some(&id) = ids.first() {
            metadata.push((format!("tokenizer.ggml.{role}_token_id"), Value::U32(id)));
        }
    }
    metadata
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

fn put_value(bytes: &mut Vec<u8>, value: &Value) {
    match value {
        Value::U32(number) => {
            bytes.extend(4u32.to_le_bytes());
            bytes.extend(number.to_le_bytes());
        }
        Value::F32(number) => {
            bytes.extend(6u32.to_le_bytes());
            bytes.extend(number.to_le_bytes());
        }
        Value::Text(text) => {
            bytes.extend(8u32.to_le_bytes());
            put_text(bytes, text);
        }
    }
}

/// The number of an encoding in the format's list of types.
fn type_number(encoding: Encoding) -> u32 {
    match encoding {
        Encoding::Q4_0 => 2,
        Encoding::Q8_0 => 8,
        _ => 0,
    }
}

/// What the rotary frequencies are divided by (`rope_freqs.weight`), if the model's scaling asks for
/// it: those with fewer than `low_freq_factor` turns in the original context by `factor`, those with
/// more than `high_freq_factor` turns by 1, and in between by the reciprocal of the two reciprocals'
/// mean, weighted by the turns (Llama 3.1's rule).
pub(super) fn rope_divisors(config: &ModelConfig) -> Option<Vec<f32>> {
    let RopeScaling::Llama3 {
        factor,
        low_freq_factor,
        high_freq_factor,
        original_max_position,
    } = config.rope_scaling
    else {
        return None;
    };
    let divisor = |pair: usize| {
        let frequency = config.rope_theta.powf(-2.0 * pair as f64 / config.rope_dims as f64);
        let turns = original_max_position * frequency / std::f64::consts::TAU;
        let kept = ((turns - low_freq_factor) / (high_freq_factor - low_freq_factor)).clamp(0.0, 1.0);
        (1.0 / ((1.0 - kept) / factor + kept)) as f32
    };
    Some((0..config.rope_dims / 2).map(divisor).collect())
}
