//! Hybrid models in the layouts of transformers, their publishers and mlx-lm.

use refrain_formats::{Encoding, Key, RowOrder, TensorInfo};
use refrain_models::config::{DeltaNetConfig, MoeConfig, MoeStyle, RouterConfig};
use refrain_models::{Checkpoint, ModelConfig};
use refrain_write::convert::convert;
use serde_json::json;

use crate::convert::{options, recipe};
use crate::support::{fixtures, safetensors_raw};

fn open(fixture: &str) -> Checkpoint {
    Checkpoint::open(&fixtures().join(fixture)).unwrap()
}

/// Returns the attention or linear-attention tensors of layer `number`.
fn mixer(config: &ModelConfig, number: usize) -> Vec<(&'static str, Vec<usize>)> {
    let (hidden, inner) = (config.hidden_size, config.attention.heads * config.attention.head_dim);
    let nets = config.delta_net.as_ref().unwrap();
    let (heads, values) = (nets.value_heads, nets.value_heads * nets.value_dim);
    if config.is_recurrent(number) {
        vec![
            ("linear_attn.A_log", vec![heads]),
            ("linear_attn.dt_bias", vec![heads]),
            ("linear_attn.conv1d.weight", vec![nets.channels(), nets.conv_kernel]),
            ("linear_attn.norm.weight", vec![nets.value_dim]),
            ("linear_attn.in_proj_qkv.weight", vec![nets.channels(), hidden]),
            ("linear_attn.in_proj_z.weight", vec![values, hidden]),
            ("linear_attn.in_proj_a.weight", vec![heads, hidden]),
            ("linear_attn.in_proj_b.weight", vec![heads, hidden]),
            ("linear_attn.out_proj.weight", vec![hidden, values]),
        ]
    } else {
        vec![
            ("self_attn.q_norm.weight", vec![config.attention.head_dim]),
            ("self_attn.k_norm.weight", vec![config.attention.head_dim]),
            ("self_attn.q_proj.weight", vec![2 * inner, hidden]),
            (
                "self_attn.k_proj.weight",
                vec![config.attention.kv_heads * config.attention.head_dim, hidden],
            ),
            (
                "self_attn.v_proj.weight",
                vec![config.attention.kv_heads * config.attention.head_dim, hidden],
            ),
            ("self_attn.o_proj.weight", vec![hidden, inner]),
        ]
    }
}

/// Returns the tensors of a mixture's router and shared expert.
fn around_the_experts(config: &ModelConfig, sizes: &MoeConfig) -> Vec<(&'static str, Vec<usize>)> {
    let (hidden, shared) = (config.hidden_size, sizes.shared_intermediate_size.unwrap());
    vec![
        ("mlp.gate.weight", vec![sizes.experts, hidden]),
        ("mlp.shared_expert.gate_proj.weight", vec![shared, hidden]),
        ("mlp.shared_expert.up_proj.weight", vec![shared, hidden]),
        ("mlp.shared_expert.down_proj.weight", vec![hidden, shared]),
        ("mlp.shared_expert_gate.weight", vec![1, hidden]),
    ]
}

/// Checks that every layer has its tensors and `experts`, and nothing else.
fn check(fixture: &str, offset: f32, experts: impl Fn(usize, [usize; 3]) -> Vec<(String, Vec<usize>)>) {
    let checkpoint = open(fixture);
    let config = checkpoint.config();
    assert_eq!((config.family.name, config.norm.offset), ("qwen3_5_moe_text", offset));
    let sizes = config.feed_forward.moe.as_ref().unwrap();
    let mut count = 3;
    for number in 0..config.layers {
        let own = [mixer(config, number), around_the_experts(config, sizes)].concat();
        let own = own.into_iter().map(|(part, shape)| (part.to_owned(), shape));
        let tensors: Vec<_> = own
            .chain(experts(
                number,
                [sizes.experts, sizes.intermediate_size, config.hidden_size],
            ))
            .collect();
        count += 2 + tensors.len();
        for (part, shape) in tensors {
            checkpoint
                .expect(&format!("model.layers.{number}.{part}"), &shape)
                .unwrap();
        }
    }
    assert_eq!(checkpoint.tensors().count(), count, "{fixture} has other tensors");
}

#[test]
fn reads_separate_fused_and_mlx_experts() {
    check("qwen3.5-moe-bf16", 1.0, |_, [count, inner, hidden]| {
        let parts = [
            ("gate_proj", [inner, hidden]),
            ("up_proj", [inner, hidden]),
            ("down_proj", [hidden, inner]),
        ];
        (0..count)
            .flat_map(|e| parts.map(|(part, shape)| (format!("mlp.experts.{e}.{part}.weight"), shape.to_vec())))
            .collect()
    });
    check("qwen3.5-moe-vision-f16", 1.0, |_, [count, inner, hidden]| {
        vec![
            ("mlp.experts.gate_up_proj".to_owned(), vec![count, 2 * inner, hidden]),
            ("mlp.experts.down_proj".to_owned(), vec![count, hidden, inner]),
        ]
    });
    check("qwen3.5-moe-mlx4", 0.0, |_, [count, inner, hidden]| {
        vec![
            ("mlp.experts.gate_proj".to_owned(), vec![count, inner, hidden]),
            ("mlp.experts.up_proj".to_owned(), vec![count, inner, hidden]),
            ("mlp.experts.down_proj".to_owned(), vec![count, hidden, inner]),
        ]
    });
}

#[test]
fn reads_separate_mlx_and_gguf_experts_of_qwen3() {
    for (fixture, together) in [
        ("qwen3-moe-bf16", false),
        ("qwen3-moe-mlx4", true),
        ("qwen3-moe-gguf-q8_0/model.gguf", true),
    ] {
        let checkpoint = open(fixture);
        let config = checkpoint.config();
        let sizes = config.feed_forward.moe.as_ref().unwrap();
        let (inner, hidden) = (sizes.intermediate_size, config.hidden_size);
        for (part, [rows, columns]) in [
            ("gate_proj", [inner, hidden]),
            ("up_proj", [inner, hidden]),
            ("down_proj", [hidden, inner]),
        ] {
            let experts = "model.layers.1.mlp.experts";
            (if together {
                checkpoint.expect(&format!("{experts}.{part}"), &[sizes.experts, rows, columns])
            } else {
                checkpoint.expect(&format!("{experts}.2.{part}.weight"), &[rows, columns])
            })
            .unwrap();
        }
        assert_eq!(sizes.shared_intermediate_size, None);
        assert!(sizes.router.renormalise, "{fixture}");
    }
    assert!(
        !open("qwen3-moe-f32")
            .config()
            .feed_forward
            .moe
            .as_ref()
            .unwrap()
            .router
            .renormalise
    );
}

#[test]
fn layers_keep_their_own_mlx_bits() {
    let checkpoint = open("qwen3.5-moe-mlx4");
    let encoding = |name: &str| checkpoint.tensor(name).unwrap().info.encoding;
    let affine = |bits| Encoding::Quantised(refrain_quant::by_name(&format!("mlx{bits}g64")).unwrap());
    assert_eq!(encoding("model.layers.0.mlp.experts.up_proj"), affine(4));
    assert_eq!(encoding("model.layers.0.mlp.gate.weight"), affine(8));
    assert_eq!(encoding("model.layers.0.linear_attn.A_log"), Encoding::F32);
}

#[test]
fn reads_sizes_and_layer_types() {
    let checkpoint = open("qwen3.5-moe-vision-f16");
    let config = checkpoint.config();
    let nets = DeltaNetConfig {
        key_heads: 1,
        value_heads: 3,
        key_dim: 16,
        value_dim: 24,
        conv_kernel: 4,
        layers: vec![true, true, false],
        holds_decay_rates: false,
    };
    assert_eq!(config.delta_net, Some(nets));
    let moe = MoeConfig {
        experts: 5,
        router: RouterConfig::softmax(3),
        intermediate_size: 16,
        shared_intermediate_size: Some(32),
        dense_layers: 0,
        style: &MoeStyle::DEFAULT,
    };
    assert_eq!(config.feed_forward.moe, Some(moe));
    assert_eq!(
        (
            config.positions.dims,
            config.attention.head_dim,
            config.attention_layers()
        ),
        (8, 32, 1)
    );
    assert_eq!(config.positions.theta, 1e7);
}

#[test]
fn gguf_delta_nets_match_and_interleave_value_heads() {
    let checkpoint = open("qwen3.5-gguf-q8_0/model.gguf");
    let config = checkpoint.config();
    let nets = DeltaNetConfig {
        key_heads: 2,
        value_heads: 4,
        key_dim: 16,
        value_dim: 32,
        conv_kernel: 4,
        layers: vec![true, true, false],
        holds_decay_rates: true,
    };
    assert_eq!((config.delta_net.as_ref(), config.norm.offset), (Some(&nets), 0.0));
    assert_eq!(
        (config.positions.dims, config.attention.head_dim, config.layers),
        (8, 32, 3)
    );
    // Columns are read in order if a head's columns are whole blocks; otherwise they stay as stored.
    let order = |checkpoint: &Checkpoint| {
        let name = "model.layers.0.linear_attn.out_proj.weight";
        checkpoint.tensor(name).unwrap().column_order()
    };
    assert_eq!(order(&checkpoint), RowOrder::AsStored);
    let moe = open("qwen3.5-moe-gguf-q8_0/model.gguf");
    let nets = moe.config().delta_net.as_ref().unwrap();
    assert_eq!(order(&moe), nets.tiled(0, 16));
    assert_ne!(order(&moe), RowOrder::AsStored);
    let gate = "model.layers.0.mlp.shared_expert_gate.weight";
    moe.expect(gate, &[1, 32]).unwrap();
}

#[test]
fn ignores_multi_token_prediction_layers() {
    let checkpoint = open("qwen3.5-gguf-q8_0/model.gguf");
    assert!(checkpoint.tensors().all(|info| info.name.starts_with("model.")));
    let metadata = checkpoint.files().metadata().unwrap();
    let number = |key| metadata.number(Key::gguf(key)).unwrap();
    assert_eq!(
        (number("block_count"), number("nextn_predict_layers")),
        (Some(4.0), Some(1.0))
    );
}

/// Checkpoints with such a layer convert to GGUF, where it is one more block, and back; mlx-lm's have none.
#[test]
fn multi_token_prediction_layers_are_converted() {
    let is_head = |info: &&TensorInfo| info.name.starts_with("mtp.");
    for fixture in ["qwen3.5-mtp-f16", "qwen3.5-moe-mtp-bf16"] {
        let source = open(fixture);
        let count = source.tensors().filter(is_head).count();
        assert!(source.config().mtp_layers == 1 && count >= 15, "{count}");
        let folder = tempfile::tempdir().unwrap();
        let convert_to = |source: &Checkpoint, name: &str, format: &str| {
            let path = folder.path().join(name);
            let report = convert(source, &path, &options(recipe(format))).unwrap();
            (Checkpoint::open(&path).unwrap(), report)
        };
        let (gguf, _) = convert_to(&source, "model.gguf", "f16");
        let metadata = gguf.files().metadata().unwrap();
        let number = |key| metadata.number(Key::gguf(key)).unwrap();
        assert_eq!(
            (number("block_count"), number("nextn_predict_layers")),
            (Some(5.0), Some(1.0))
        );
        let shape = |name: &str| metadata.tensor_shape(name).map(<[usize]>::to_vec);
        assert_eq!(shape("blk.4.nextn.eh_proj.weight"), Some(vec![32, 64]));
        for part in ["nextn.enorm", "nextn.hnorm", "nextn.shared_head_norm", "attn_norm"] {
            assert_eq!(shape(&format!("blk.4.{part}.weight")), Some(vec![32]), "{part}");
        }
        assert_eq!((gguf.config().layers, gguf.config().mtp_layers), (4, 1));
        let (back, _) = convert_to(&gguf, "back", "f16");
        assert_eq!((back.config().layers, back.config().mtp_layers), (4, 1));
        for name in [
            "mtp.fc.weight",
            "mtp.norm.weight",
            "mtp.layers.0.self_attn.q_norm.weight",
        ] {
            let [old, new] = [&source, &back].map(|checkpoint| checkpoint.tensor(name).unwrap().dequantise().unwrap());
            let most = old.iter().zip(&new).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(most < 1e-2, "{fixture} {name}: {most}");
        }
        let (mlx, report) = convert_to(&source, "mlx", "mlx8-g32");
        assert_eq!((mlx.config().mtp_layers, mlx.tensors().filter(is_head).count()), (0, 0));
        assert!(
            report.notes.iter().any(|note| note.contains("prediction head")),
            "{:?}",
            report.notes
        );
    }
}

#[test]
fn an_incomplete_multi_token_prediction_layer_is_left_out() {
    let header = json!({ "mtp.fc.weight": {"dtype": "F16", "shape": [1, 1], "data_offsets": [0, 2]} });
    let files = [
        ("config.json", config(&json!({"mtp_num_hidden_layers": 1})).into_bytes()),
        ("model.safetensors", safetensors_raw(&header.to_string(), &[0, 0])),
    ];
    assert_eq!(Checkpoint::from_files(files).unwrap().config().mtp_layers, 0);
}

#[test]
fn mlx_norm_weights_include_their_offset_without_recurrent_layers() {
    for (experts, offset) in [("switch_mlp.up_proj.weight", 0.0), ("experts.gate_up_proj", 1.0)] {
        let name = format!("model.layers.0.mlp.{experts}");
        let header = json!({ name: {"dtype": "F16", "shape": [1, 1, 1], "data_offsets": [0, 2]} });
        let config = config(&json!({"layer_types": ["full_attention", "full_attention"]}));
        let files = [
            ("config.json", config.into_bytes()),
            ("model.safetensors", safetensors_raw(&header.to_string(), &[0, 0])),
        ];
        let checkpoint = Checkpoint::from_files(files).unwrap();
        assert_eq!(checkpoint.config().norm.offset, offset, "{experts}");
    }
}

/// A configuration of this family with the keys in `changed`.
fn config(changed: &serde_json::Value) -> String {
    let mut config = json!({
        "model_type": "qwen3_5_moe_text", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
        "vocab_size": 100, "layer_types": ["linear_attention", "full_attention"],
    });
    config
        .as_object_mut()
        .unwrap()
        .extend(changed.as_object().unwrap().clone());
    config.to_string()
}

/// Returns the error of a configuration of this family with the keys in `changed`.
fn error_of(changed: &serde_json::Value) -> String {
    let config = config(changed);
    let files = [("config.json", config)];
    let files = files.map(|(name, text)| (name, text.into_bytes()));
    Checkpoint::from_files(files).unwrap_err().to_string()
}

#[test]
fn rejects_invalid_sizes() {
    for (changed, expected) in [
        (
            json!({"linear_num_value_heads": 24}),
            "linear_num_value_heads (24) is not a multiple of linear_num_key_heads",
        ),
        (
            json!({"linear_conv_kernel_dim": 99}),
            "linear_conv_kernel_dim is 99, which is not between 1 and 16",
        ),
        (
            json!({"num_experts": 4}),
            "num_experts_per_tok is 8, which is not between 1 and 4",
        ),
        (
            json!({"moe_intermediate_size": 0}),
            "moe_intermediate_size is 0, not a positive count",
        ),
        (
            json!({"layer_types": ["full_attention"]}),
            "layer_types lists 1 layers of 2",
        ),
        (
            json!({"layer_types": ["mamba", "mamba"]}),
            "layers of type \"mamba\" are not supported",
        ),
        (
            json!({"partial_rotary_factor": 1.5}),
            "rotary embeddings cover 384 of 256",
        ),
        (
            json!({"norm_topk_prob": false}),
            "norm_topk_prob false is not supported",
        ),
        (json!({}), "there is no .safetensors file"),
    ] {
        let found = error_of(&changed);
        assert!(found.contains(expected), "{changed}: {found}");
    }
}

/// mlx-lm names the text model like the whole, or has no configuration of the whole; its tensors are nested either way.
#[test]
fn text_models_by_mlx_lm_need_no_configuration_of_the_whole() {
    let folder = fixtures().join("qwen3.5-moe-mlx4");
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    let nested: serde_json::Value = serde_json::from_slice(&read("config.json")).unwrap();
    let mut renamed = nested.clone();
    renamed["text_config"]["model_type"] = json!("qwen3_5_moe");
    let mut flat = nested["text_config"].clone();
    flat["model_type"] = json!("qwen3_5_moe");
    flat["quantization"] = nested["quantization"].clone();
    let expected = open("qwen3.5-moe-mlx4");
    for config in [renamed, flat] {
        let files = [
            ("config.json", config.to_string().into_bytes()),
            ("model.safetensors", read("model.safetensors")),
        ];
        let found = Checkpoint::from_files(files).unwrap();
        assert!(found.tensors().eq(expected.tensors()));
        assert_eq!(found.config().quantisation, expected.config().quantisation);
    }
}
