//! What llama.cpp wants to know of a model, as GGUF metadata.

use super::gguf::{ALIGNMENT, MetadataEntries, MetadataValue};
use super::{Item, ListedTensor};
use crate::Encoding;
use crate::config::{Architecture, LayerRope, ModelConfig, RopeScaling};
use crate::gguf::{LONG_FACTORS, ROPE_FACTORS, SHORT_FACTORS};

/// Everything but the tokenizer. `file_type` is llama.cpp's number of the mixture of encodings.
pub(crate) fn metadata(name: &str, file_type: u32, config: &ModelConfig) -> MetadataEntries {
    let architecture = config.architecture.gguf_name();
    let own = |key: &str| format!("{architecture}.{key}");
    let count = |value: usize| MetadataValue::U32(value as u32);
    let mut metadata = vec![
        (
            "general.architecture".to_owned(),
            MetadataValue::Text(architecture.to_owned()),
        ),
        ("general.type".to_owned(), MetadataValue::Text("model".to_owned())),
        ("general.name".to_owned(), MetadataValue::Text(name.to_owned())),
        ("general.alignment".to_owned(), MetadataValue::U32(ALIGNMENT as u32)),
        ("general.file_type".to_owned(), MetadataValue::U32(file_type)),
        ("general.quantization_version".to_owned(), MetadataValue::U32(2)),
        (own("block_count"), count(config.layers)),
        (own("context_length"), count(config.max_position)),
        (own("embedding_length"), count(config.hidden_size)),
        (own("feed_forward_length"), count(config.intermediate_size)),
        (own("attention.head_count"), count(config.heads)),
        (own("attention.head_count_kv"), count(config.kv_heads)),
        (own("attention.key_length"), count(config.head_dim)),
        (own("attention.value_length"), count(config.head_dim)),
        (
            own("attention.layer_norm_rms_epsilon"),
            MetadataValue::F32(config.rms_norm_eps),
        ),
        (own("rope.dimension_count"), count(config.rope_dims)),
        (own("rope.freq_base"), MetadataValue::F32(config.rope_theta as f32)),
        (own("vocab_size"), count(config.vocab_size)),
    ];
    metadata
        .extend(rope_scaling(&config.rope_scaling).map(|(key, value)| (own(&format!("rope.scaling.{key}")), value)));
    if let Some(cap) = config.logit_cap {
        metadata.push((own("final_logit_softcapping"), MetadataValue::F32(cap)));
    }
    metadata.extend(windows(config).map(|(key, value)| (own(key), value)));
    metadata
}

/// How the rotary frequencies are stretched, where it takes no more than numbers.
fn rope_scaling(scaling: &RopeScaling) -> impl Iterator<Item = (&'static str, MetadataValue)> {
    let number = |value: f64| MetadataValue::F32(value as f32);
    let kind = |name: &str| ("type", MetadataValue::Text(name.to_owned()));
    let keys = match scaling {
        RopeScaling::Linear { factor } => vec![kind("linear"), ("factor", number(*factor))],
        RopeScaling::Yarn {
            factor,
            original_max_position,
            beta_fast,
            beta_slow,
            attention_factor,
            ..
        } => vec![
            kind("yarn"),
            ("factor", number(*factor)),
            (
                "original_context_length",
                MetadataValue::U32(*original_max_position as u32),
            ),
            ("yarn_beta_fast", number(*beta_fast)),
            ("yarn_beta_slow", number(*beta_slow)),
            // Readers multiply it by what the paper gives.
            (
                "attn_factor",
                number(attention_factor / (1.0 + 0.1 * factor.max(1.0).ln())),
            ),
        ],
        RopeScaling::LongRope {
            original_max_position,
            attention_factor,
            ..
        } => vec![
            (
                "original_context_length",
                MetadataValue::U32(*original_max_position as u32),
            ),
            ("attn_factor", number(*attention_factor)),
        ],
        RopeScaling::None | RopeScaling::Llama3 { .. } | RopeScaling::Factors(_) | RopeScaling::Dynamic { .. } => {
            vec![]
        }
    };
    keys.into_iter()
}

/// Which layers have windows, in the families whose files say so.
fn windows(config: &ModelConfig) -> impl Iterator<Item = (&'static str, MetadataValue)> {
    let layers = Vec::from_iter((0..config.layers).map(|number| config.layer_attention(number)));
    let local = Vec::from_iter(layers.iter().map(|layer| layer.window.is_some()));
    let window = layers.iter().find_map(|layer| layer.window);
    let mut keys = Vec::new();
    if let Some(window) = window
        && matches!(
            config.architecture,
            Architecture::Phi3 | Architecture::Gemma3 | Architecture::Olmo2 | Architecture::Olmo3
        )
    {
        keys.push(("attention.sliding_window", MetadataValue::U32(window as u32)));
        let period = local.iter().position(|local| !local).map_or(0, |first| first + 1);
        let periodic = period > 0 && (0..local.len()).all(|n| local[n] != (n + 1).is_multiple_of(period));
        match config.architecture {
            Architecture::Phi3 => {}
            // llama.cpp takes one number here.
            Architecture::Gemma3 if periodic => {
                keys.push(("attention.sliding_window_pattern", MetadataValue::U32(period as u32)));
            }
            _ => keys.push(("attention.sliding_window_pattern", MetadataValue::Bools(local))),
        }
    }
    if layers.iter().any(|layer| layer.rope == LayerRope::Local) && config.local_rope_theta != config.rope_theta {
        keys.push(("rope.freq_base_swa", MetadataValue::F32(config.local_rope_theta as f32)));
    }
    keys.into_iter()
}

/// What llama.cpp's converter writes for a model without a tokenizer.
pub(crate) fn no_tokenizer(config: &ModelConfig) -> MetadataEntries {
    let mut metadata = vec![(
        "tokenizer.ggml.model".to_owned(),
        MetadataValue::Text("none".to_owned()),
    )];
    for (role, ids) in [("bos", &config.bos_ids), ("eos", &config.eos_ids)] {
        if let Some(&id) = ids.first() {
            metadata.push((format!("tokenizer.ggml.{role}_token_id"), MetadataValue::U32(id)));
        }
    }
    metadata
}

/// The tensors of what the rotary frequencies are divided by, if the model's scaling asks for any.
pub(crate) fn rope_items(config: &ModelConfig) -> Vec<Item<'static>> {
    if let RopeScaling::LongRope { short, long, .. } = &config.rope_scaling {
        return vec![rope_item(LONG_FACTORS, long), rope_item(SHORT_FACTORS, short)];
    }
    let divisors = rope_divisors(config);
    divisors
        .iter()
        .map(|divisors| rope_item(ROPE_FACTORS, divisors))
        .collect()
}

fn rope_item(name: &str, divisors: &[f32]) -> Item<'static> {
    let part = ListedTensor {
        name: name.to_owned(),
        encoding: Encoding::F32,
        shape: vec![divisors.len()],
        bytes: 4 * divisors.len() as u64,
    };
    let bytes = divisors.iter().flat_map(|divisor| divisor.to_le_bytes()).collect();
    Item::bytes(part, bytes)
}

/// What the rotary frequencies are divided by (`rope_freqs.weight`), if the model's scaling asks for
/// it: those with fewer than `low_freq_factor` turns in the original context by `factor`, those with
/// more than `high_freq_factor` turns by 1, and in between by the reciprocal of the two reciprocals'
/// mean, weighted by the turns (Llama 3.1's rule).
pub(crate) fn rope_divisors(config: &ModelConfig) -> Option<Vec<f32>> {
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
