//! The tensors of a model of any size.

use crate::{Architecture, ModelConfig};

type Tensors = Vec<(String, Vec<usize>)>;

/// Names and shapes of a model's tensors.
pub(super) fn shapes(config: &ModelConfig) -> Tensors {
    let hidden = config.hidden_size;
    let mut shapes = vec![
        ("model.embed_tokens.weight".to_owned(), vec![config.vocab_size, hidden]),
        ("model.norm.weight".to_owned(), vec![hidden]),
    ];
    if !config.tie_word_embeddings {
        shapes.push(("lm_head.weight".to_owned(), vec![config.vocab_size, hidden]));
    }
    for number in 0..config.layers {
        let norms = ["input_layernorm.weight", "post_attention_layernorm.weight"];
        let norms = norms.map(|name| (name.to_owned(), vec![hidden]));
        let mixer = match config.is_recurrent(number) {
            true => delta_net(config),
            false => attention(config),
        };
        let parts = norms.into_iter().chain(mixer).chain(feed_forward(config));
        shapes.extend(parts.map(|(part, shape)| (format!("model.layers.{number}.{part}"), shape)));
    }
    shapes
}

fn named<const N: usize>(name: &str, parts: [(&str, Vec<usize>); N]) -> Tensors {
    parts
        .into_iter()
        .map(|(part, shape)| (format!("{name}.{part}"), shape))
        .collect()
}

fn attention(config: &ModelConfig) -> Tensors {
    let (hidden, head) = (config.hidden_size, config.head_dim);
    let (queries, keys) = (config.heads * head, config.kv_heads * head);
    // With each query goes a gate.
    let gated = config.architecture == Architecture::Qwen3_5Moe;
    let mut tensors = named(
        "self_attn",
        [
            ("q_proj.weight", vec![if gated { 2 * queries } else { queries }, hidden]),
            ("k_proj.weight", vec![keys, hidden]),
            ("v_proj.weight", vec![keys, hidden]),
            ("o_proj.weight", vec![hidden, queries]),
        ],
    );
    if matches!(config.architecture, Architecture::Qwen3 | Architecture::Qwen3_5Moe) {
        tensors.extend(named(
            "self_attn",
            [("q_norm.weight", vec![head]), ("k_norm.weight", vec![head])],
        ));
    }
    tensors
}

fn delta_net(config: &ModelConfig) -> Tensors {
    let Some(nets) = &config.delta_nets else {
        return Vec::new();
    };
    let (hidden, heads, values) = (config.hidden_size, nets.value_heads, nets.value_heads * nets.value_dim);
    named(
        "linear_attn",
        [
            ("A_log", vec![heads]),
            ("dt_bias", vec![heads]),
            ("conv1d.weight", vec![nets.channels(), nets.taps]),
            ("norm.weight", vec![nets.value_dim]),
            ("in_proj_qkv.weight", vec![nets.channels(), hidden]),
            ("in_proj_z.weight", vec![values, hidden]),
            ("in_proj_a.weight", vec![heads, hidden]),
            ("in_proj_b.weight", vec![heads, hidden]),
            ("out_proj.weight", vec![hidden, values]),
        ],
    )
}

fn feed_forward(config: &ModelConfig) -> Tensors {
    let gated = |name: &str, inner: usize| {
        let hidden = config.hidden_size;
        named(
            name,
            [
                ("gate_proj.weight", vec![inner, hidden]),
                ("up_proj.weight", vec![inner, hidden]),
                ("down_proj.weight", vec![hidden, inner]),
            ],
        )
    };
    let Some(mixture) = &config.mixture else {
        return gated("mlp", config.intermediate_size);
    };
    let (hidden, inner, experts) = (config.hidden_size, mixture.intermediate_size, mixture.experts);
    let router = named(
        "mlp",
        [
            ("gate.weight", vec![experts, hidden]),
            ("shared_expert_gate.weight", vec![1, hidden]),
            ("experts.down_proj", vec![experts, hidden, inner]),
        ],
    );
    let gate_up = match config.quantisation {
        // As mlx-lm has them.
        Some(_) => ["experts.gate_proj", "experts.up_proj"]
            .map(|part| (format!("mlp.{part}"), vec![experts, inner, hidden]))
            .to_vec(),
        None => vec![("mlp.experts.gate_up_proj".to_owned(), vec![experts, 2 * inner, hidden])],
    };
    let shared = gated("mlp.shared_expert", mixture.shared_intermediate_size);
    [router, gate_up, shared].concat()
}
