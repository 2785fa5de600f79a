//! Checks that a converted checkpoint computes the same as its source.

use std::path::Path;

use refrain_formats::{CheckpointFiles, Error, Format};
use refrain_models::config::write_gguf::rope_divisors;
use refrain_models::config::{DeltaNetConfig, LayerRope, RopeScaling, all_close};
use refrain_models::{Checkpoint, FAMILIES, ModelConfig};

use super::experts;

/// Opens the converted checkpoint. The family of `source` need not be a registered one.
pub(super) fn reopen(source: &Checkpoint, path: &Path) -> Result<Checkpoint, Error> {
    let mut families = FAMILIES.to_vec();
    families.extend((!families.contains(&source.config().family)).then_some(source.config().family));
    Checkpoint::read(CheckpointFiles::open(path)?, &families)
}

/// Compares the converted checkpoint with its source. Losses that rarely matter become notes.
///
/// # Errors
/// If the new format cannot represent the model.
pub(super) fn check(source: &Checkpoint, written: &Checkpoint, notes: &mut Vec<String>) -> Result<(), Error> {
    let (old, new) = (source.config(), written.config());
    let lost_settings = lost_settings(old, new);
    if !lost_settings.is_empty() {
        return Err(Error::Conversion(format!(
            "{}: the new format cannot represent: {}",
            source.name(),
            lost_settings.join(", ")
        )));
    }
    let windows = |config: &ModelConfig| Vec::from_iter((0..config.layers).map(|n| config.layer_attention(n).window));
    let shortest = (windows(old).into_iter().zip(windows(new)))
        .filter(|(old, new)| old != new)
        .filter_map(|(old, _)| old)
        .min();
    if let Some(window) = shortest.filter(|window| *window < old.max_position) {
        notes.push(format!(
            "the new format cannot represent this model's sliding window of {window} tokens: longer texts will be \
             continued differently"
        ));
    }
    for info in source.tensors() {
        let there = written.tensor(&info.name).is_some();
        let dropped =
            info.name.ends_with("rotary_emb.inv_freq") || (old.tie_word_embeddings && info.name == "lm_head.weight");
        let dropped = dropped || (old.is_mtp(&info.name) && written.format() == Format::Mlx);
        if !there && !dropped && !experts::is_expert_tensor(&info.name) {
            return Err(Error::MissingTensor {
                checkpoint: written.name().to_owned(),
                tensor: info.name.clone(),
            });
        }
    }
    Ok(())
}

/// Returns the names of the settings that changed.
fn lost_settings(old: &ModelConfig, new: &ModelConfig) -> Vec<&'static str> {
    let close = |a: f64, b: f64| (a - b).abs() <= 1e-6 * a.abs().max(b.abs());
    let both = |get: fn(&ModelConfig) -> f64| close(get(old), get(new));
    let counts = |get: fn(&ModelConfig) -> usize| get(old) == get(new);
    let checks = [
        ("hidden_size", counts(|c| c.hidden_size)),
        ("intermediate_size", counts(|c| c.feed_forward.intermediate_size)),
        ("num_hidden_layers", counts(|c| c.layers)),
        ("num_attention_heads", counts(|c| c.attention.heads)),
        ("num_key_value_heads", counts(|c| c.attention.kv_heads)),
        ("head_dim", counts(|c| c.attention.head_dim)),
        ("v_head_dim", counts(|c| c.attention.value_dim)),
        ("vocab_size", counts(|c| c.vocab_size)),
        ("max_position_embeddings", counts(|c| c.max_position)),
        ("rms_norm_eps", both(|c| c.norm.eps.into())),
        (
            "rotary embeddings",
            counts(|c| c.positions.dims) && same_rotation(old, new),
        ),
        (
            "tie_word_embeddings",
            old.tie_word_embeddings == new.tie_word_embeddings,
        ),
        ("attention_bias", old.attention.bias == new.attention.bias),
        (
            "attention_bias (output)",
            old.attention.output_bias == new.attention.output_bias,
        ),
        ("mlp_bias", old.feed_forward.bias == new.feed_forward.bias),
        ("attention scale", both(|c| c.attention.scale.into())),
        ("embedding scale", both(|c| c.multipliers.embedding.into())),
        ("residual scale", both(|c| c.multipliers.residual.into())),
        (
            "logit scale",
            both(|c| (c.multipliers.logit_scale / c.multipliers.logit_divisor).into()),
        ),
        ("use_qk_norm", old.attention.qk_norm == new.attention.qk_norm),
        ("hidden_act", old.feed_forward.activation == new.feed_forward.activation),
        ("mixture of experts", old.feed_forward.moe == new.feed_forward.moe),
        ("linear attention", same_linear_attention(old, new)),
        (
            "final_logit_softcapping",
            both(|c| c.multipliers.logit_cap.unwrap_or(0.0).into()),
        ),
        (
            "rotary embeddings per layer",
            (0..old.layers).all(|n| same_rope(old, new, n)),
        ),
        (
            "sliding windows per layer",
            (0..old.layers).all(|n| window_kept_or_dropped(old, new, n)),
        ),
    ];
    checks
        .into_iter()
        .filter(|(_, kept)| !kept)
        .map(|(name, _)| name)
        .collect()
}

/// Whether linear-attention layers are unchanged, apart from how their decays are stored.
fn same_linear_attention(old: &ModelConfig, new: &ModelConfig) -> bool {
    let rates = |config: &ModelConfig| config.delta_net.as_ref().is_some_and(|nets| nets.holds_decay_rates);
    let stored = |nets: &DeltaNetConfig| DeltaNetConfig {
        holds_decay_rates: rates(new),
        ..nets.clone()
    };
    old.delta_net.as_ref().map(stored) == new.delta_net
}

/// Whether a layer rotates its queries and keys as before.
fn same_rope(old: &ModelConfig, new: &ModelConfig, layer: usize) -> bool {
    let [a, b] = [old, new].map(|config| config.layer_attention(layer).rope);
    let plain = |config: &ModelConfig| {
        config.positions.scaling == RopeScaling::None && config.positions.local_theta == config.positions.theta
    };
    match (a, b) {
        (LayerRope::Local, LayerRope::Local) => (old.positions.local_theta - new.positions.local_theta).abs() < 1e-3,
        (LayerRope::None, _) | (_, LayerRope::None) => a == b,
        _ => a == b || (plain(old) && plain(new)),
    }
}

fn window_kept_or_dropped(old: &ModelConfig, new: &ModelConfig, layer: usize) -> bool {
    let [a, b] = [old, new].map(|config| config.layer_attention(layer).window);
    a == b || b.is_none()
}

/// Whether both rotate by the same angles in layers without a base of their own.
pub(super) fn same_rotation(old: &ModelConfig, new: &ModelConfig) -> bool {
    let divisors = |config: &ModelConfig| match &config.positions.scaling {
        RopeScaling::None => Some(vec![1.0; config.positions.dims / 2]),
        RopeScaling::Linear { factor } => Some(vec![*factor as f32; config.positions.dims / 2]),
        _ => rope_divisors(config),
    };
    if (old.positions.theta - new.positions.theta).abs() > 1e-6 * old.positions.theta {
        return false;
    }
    match (divisors(old), divisors(new)) {
        (Some(a), Some(b)) => all_close(&a, &b),
        _ => old.positions.scaling.is_close(&new.positions.scaling),
    }
}
