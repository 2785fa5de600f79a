//! Writes hyperparameters as GGUF metadata for llama.cpp.

use refrain_formats::{ALIGNMENT, MetadataEntries, MetadataValue};

use super::key_names::MTP_LAYERS;
use super::layers::{SLIDING_WINDOW, SLIDING_WINDOW_PATTERN};
use super::rope_gguf::{LONG_FACTORS, ROPE_FACTORS, SHORT_FACTORS};
use super::{LayerRope, ModelConfig, RopeScaling};

/// Returns all metadata except the tokenizer. `file_type` is llama.cpp's number of the quantisation mix.
pub fn metadata(name: &str, file_type: u32, config: &ModelConfig) -> MetadataEntries {
    let architecture = config.family.gguf.unwrap_or(config.family.name);
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
        (own("block_count"), count(config.layers + config.mtp_layers)),
        (own("context_length"), count(config.max_position)),
        (own("embedding_length"), count(config.hidden_size)),
        (own("feed_forward_length"), count(config.feed_forward.intermediate_size)),
        (own("attention.head_count"), count(config.attention.heads)),
        (own("attention.head_count_kv"), count(config.attention.kv_heads)),
        (own("attention.key_length"), count(config.attention.head_dim)),
        (own("attention.value_length"), count(config.attention.value_dim)),
        (own(config.family.eps.gguf), MetadataValue::F32(config.norm.eps)),
        (own("rope.dimension_count"), count(config.positions.dims)),
        (own("rope.freq_base"), MetadataValue::F32(config.positions.theta as f32)),
        (own("vocab_size"), count(config.vocab_size)),
    ];
    metadata.extend(
        rope_scaling(&config.positions.scaling).map(|(key, value)| (own(&format!("rope.scaling.{key}")), value)),
    );
    let local = (0..config.layers).any(|layer| config.layer_attention(layer).rope == LayerRope::Local);
    if local && config.positions.local_theta != config.positions.theta {
        let theta = MetadataValue::F32(config.positions.local_theta as f32);
        metadata.push((own("rope.freq_base_swa"), theta));
    }
    if config.mtp_layers > 0 {
        metadata.push((own(MTP_LAYERS.gguf), count(config.mtp_layers)));
    }
    metadata.extend(
        (config.family.gguf_metadata)(config)
            .into_iter()
            .map(|(key, value)| (own(key), value)),
    );
    metadata
}

/// Metadata of the rotary scaling, for scalings that need no tensor.
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
            // Readers multiply this by the paper's factor.
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

/// Metadata of one family, by key without the architecture prefix.
pub type FamilyMetadata = Vec<(&'static str, MetadataValue)>;

/// The window, for families with a window in all layers.
pub fn window(config: &ModelConfig) -> FamilyMetadata {
    let window = config.window().map(|window| MetadataValue::U32(window as u32));
    window.into_iter().map(|window| (SLIDING_WINDOW.gguf, window)).collect()
}

/// The window, and a list of the layers with it.
pub fn window_list(config: &ModelConfig) -> FamilyMetadata {
    let mut keys = window(config);
    if !keys.is_empty() {
        keys.push((SLIDING_WINDOW_PATTERN.gguf, MetadataValue::Bools(local(config))));
    }
    keys
}

/// The window, and the period of layers without it; a list if the layers are not periodic.
pub fn window_pattern(config: &ModelConfig) -> FamilyMetadata {
    let mut keys = window(config);
    let local = local(config);
    let period = config.first_without_window().map_or(0, |first| first + 1);
    let periodic = period > 0 && (0..local.len()).all(|n| local[n] != (n + 1).is_multiple_of(period));
    if !keys.is_empty() {
        // llama.cpp reads a single number here.
        keys.push((
            SLIDING_WINDOW_PATTERN.gguf,
            if periodic {
                MetadataValue::U32(period as u32)
            } else {
                MetadataValue::Bools(local)
            },
        ));
    }
    keys
}

fn local(config: &ModelConfig) -> Vec<bool> {
    let windowed = |layer| config.layer_attention(layer).window.is_some();
    (0..config.layers).map(windowed).collect()
}

/// The metadata that llama.cpp's converter writes for a model without a tokenizer.
pub fn no_tokenizer(config: &ModelConfig) -> MetadataEntries {
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

/// Returns the tensors of rotary frequency divisors, if the scaling has any.
pub fn rope_factors(config: &ModelConfig) -> Vec<(&'static str, Vec<f32>)> {
    if let RopeScaling::LongRope { short, long, .. } = &config.positions.scaling {
        return vec![(LONG_FACTORS, long.clone()), (SHORT_FACTORS, short.clone())];
    }
    let divisors = rope_divisors(config).into_iter();
    divisors.map(|divisors| (ROPE_FACTORS, divisors)).collect()
}

/// Returns the rotary frequency divisors (`rope_freqs.weight`), if the scaling has any. Llama 3.1's rule: `factor`
/// for pairs with fewer than `low_freq_factor` rotations in the original context, 1 for those with more than
/// `high_freq_factor`. Between them it is the reciprocal of the interpolated reciprocals, weighted by the rotations.
pub fn rope_divisors(config: &ModelConfig) -> Option<Vec<f32>> {
    let (factor, low_freq_factor, high_freq_factor, original_max_position) = match &config.positions.scaling {
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
        let frequency = config
            .positions
            .theta
            .powf(-2.0 * pair as f64 / config.positions.dims as f64);
        let turns = original_max_position * frequency / std::f64::consts::TAU;
        let kept = ((turns - low_freq_factor) / (high_freq_factor - low_freq_factor)).clamp(0.0, 1.0);
        (1.0 / ((1.0 - kept) / factor + kept)) as f32
    };
    Some((0..config.positions.dims / 2).map(divisor).collect())
}
