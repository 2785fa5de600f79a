//! No input may cause a panic, or allocations larger than the input can justify.

use proptest::prelude::*;
use refrain_models::Checkpoint;
use refrain_text::{ChatTemplate, Conversation};
use serde_json::json;

use crate::support::{GgufBuilder, Meta, config, fixtures, open, open_weights, safetensors, safetensors_raw};

/// A valid GGUF file with a tokenizer, to be corrupted.
fn valid_gguf() -> Vec<u8> {
    GgufBuilder::new("llama")
        .set("tokenizer.ggml.model", Meta::Text("llama"))
        .set(
            "tokenizer.ggml.tokens",
            Meta::Texts(["a", "b", "ab", "▁"].map(str::to_owned).to_vec()),
        )
        .set("tokenizer.ggml.scores", Meta::F32s(vec![0.0, -1.0, -2.0, -3.0]))
        .set("tokenizer.ggml.token_type", Meta::I32s(vec![1, 1, 1, 1]))
        .set("tokenizer.chat_template", Meta::Text("{{ messages }}"))
        .tensor("blk.0.attn_q.weight", &[64, 64], 8, vec![0; 4352])
        .tensor("rope_freqs.weight", &[16], 0, vec![0; 64])
        .bytes()
}

/// The files of a checkpoint in two shards, to be corrupted.
fn sharded() -> Vec<(&'static str, Vec<u8>)> {
    use safetensors::tensor::Dtype;
    let [one, two] = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    let index = json!({
        "metadata": {"total_size": 32},
        "weight_map": {"model.norm.weight": one, "lm_head.weight": two},
    });
    vec![
        ("config.json", config(json!({})).into_bytes()),
        ("model.safetensors.index.json", index.to_string().into_bytes()),
        (
            one,
            safetensors(&[("model.norm.weight", Dtype::F32, vec![2, 3], vec![0; 24])]),
        ),
        (
            two,
            safetensors(&[("lm_head.weight", Dtype::BF16, vec![4], vec![0; 8])]),
        ),
    ]
}

/// Opens a checkpoint and reads everything that can be read.
fn exercise(checkpoint: Result<Checkpoint, refrain_formats::Error>) {
    let Ok(checkpoint) = checkpoint else { return };
    for info in checkpoint.tensors() {
        let _ = checkpoint.tensor(&info.name).unwrap().dequantise();
    }
    if let Ok(tokenizer) = checkpoint.tokenizer() {
        let ids = tokenizer.encode("ab ba <s>", true);
        let _ = ids.and_then(|ids| tokenizer.decode(&ids, true));
    }
    let _ = checkpoint.chat_template();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn arbitrary_bytes_are_not_a_checkpoint(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        exercise(Checkpoint::from_gguf_bytes(bytes.clone()));
        exercise(Checkpoint::from_gguf_bytes([b"GGUF\x03\0\0\0".as_slice(), &bytes].concat()));
        exercise(open_weights(bytes.clone()));
        exercise(open(&[("config.json", bytes)]));
    }

    #[test]
    fn survives_corrupt_gguf_files(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        word in (any::<prop::sample::Index>(), prop_oneof![
            Just(u64::MAX), Just(1 << 63), Just(1 << 40), Just(1 << 31), any::<u64>(),
        ]),
        use_word in any::<bool>(),
    ) {
        let mut bytes = valid_gguf();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if use_word {
            let at = word.0.index(bytes.len() - 8);
            bytes[at..at + 8].copy_from_slice(&word.1.to_le_bytes());
        }
        exercise(Checkpoint::from_gguf_bytes(bytes));
    }

    #[test]
    fn survives_corrupt_safetensors_files(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        use safetensors::tensor::Dtype;
        let mut bytes = safetensors(&[
            ("a", Dtype::F32, vec![2, 3], vec![0; 24]),
            ("b", Dtype::BF16, vec![4], vec![0; 8]),
        ]);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        exercise(open_weights(bytes));
    }

    #[test]
    fn survives_corrupt_indices_and_shards(
        file in 0..4usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
        missing in prop::option::weighted(0.1, 0..4usize),
    ) {
        let mut files = sharded();
        let bytes = &mut files[file].1;
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if is_cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Some(missing) = missing {
            files.remove(missing);
        }
        exercise(open(&files));
    }

    #[test]
    fn survives_arbitrary_indices(
        index in prop_oneof![
            any::<String>().prop_map(|text| json!(text)),
            prop::collection::vec((".{0,12}", ".{0,12}"), 0..4).prop_map(|map| {
                json!({"weight_map": map.into_iter().collect::<std::collections::BTreeMap<_, _>>()})
            }),
            any::<i64>().prop_map(|number| json!({"weight_map": {"a": number}})),
            Just(json!({"weight_map": {"a": "config.json"}})),
            Just(json!({"weight_map": {"a": "../model-00001-of-00002.safetensors"}})),
            Just(json!({"weight_map": {"a": "."}})),
            Just(json!({"weight_map": {}})),
            Just(json!({"metadata": {"total_size": -1}})),
        ],
    ) {
        let mut files = sharded();
        files[1].1 = index.to_string().into_bytes();
        exercise(open(&files));
    }

    #[test]
    fn survives_arbitrary_headers(
        dtype in prop_oneof![Just("F32"), Just("F4"), Just("C64"), Just("U8"), Just("?")],
        shape in prop::collection::vec(any::<u64>(), 0..4),
        start in any::<u64>(),
        end in any::<u64>(),
    ) {
        let header = json!({"t": {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}});
        exercise(open_weights(safetensors_raw(&header.to_string(), &[0; 64])));
    }

    #[test]
    fn survives_arbitrary_configurations(
        key in prop_oneof![
            Just("hidden_size"), Just("num_attention_heads"), Just("num_key_value_heads"),
            Just("head_dim"), Just("vocab_size"), Just("rope_theta"), Just("rope_scaling"),
            Just("rope_parameters"), Just("quantization"), Just("eos_token_id"),
            Just("rms_norm_eps"), Just("partial_rotary_factor"), Just("layer_types"),
        ],
        value in prop_oneof![
            any::<i64>().prop_map(|v| json!(v)),
            any::<f64>().prop_map(|v| json!(v)),
            ".{0,8}".prop_map(|v| json!(v)),
            any::<u64>().prop_map(|v| json!({"bits": v, "group_size": v, "factor": v, "type": "llama3"})),
            any::<i64>().prop_map(|v| json!([v, null, [v]])),
        ],
    ) {
        let mut changes = json!({});
        changes[key] = value;
        exercise(open(&[
            ("config.json", config(changes).into_bytes()),
            ("model.safetensors", safetensors(&[])),
        ]));
    }

    #[test]
    fn survives_arbitrary_templates(
        parts in prop::collection::vec(prop_oneof![
            Just("{% for m in messages %}"), Just("{% endfor %}"), Just("{% if"), Just(" %}"),
            Just("{{ "), Just(" }}"), Just("m.content"), Just("'%s' % ("), Just(")"), Just("[::-1]"),
            Just("'"), Just("{#"), Just("{%"), Just("%}"), Just(" | tojson(indent=2)"), Just("é"),
            Just("{% generation %}"), Just("{% endgeneration %}"), Just(".split('x')[-1]"),
        ], 0..12),
    ) {
        let template = ChatTemplate::new(parts.concat(), Default::default());
        let _ = template.render(&Conversation::from_prompt(None, "hi"), true);
    }
}

/// Returns the next of a fixed sequence of pseudo-random numbers below `bound`.
fn draw(state: &mut u64, bound: usize) -> usize {
    *state = state
        .wrapping_mul(6364136223846793005)
        .wrapping_add(1442695040888963407);
    ((*state >> 33) % bound.max(1) as u64) as usize
}

#[test]
fn survives_corrupt_templates() {
    let hostile = [
        "{% set messages = messages + messages %}",
        "{% for m in messages * 9999 %}",
        " ~ messages * 99999",
        "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
        "|map('map')",
        "[::-1]",
        "((((",
        "{%",
        "%}",
        "'",
        "\u{10ffff}",
        "{% endfor %}",
    ];
    let mut sources = Vec::new();
    for entry in std::fs::read_dir(fixtures().join("templates")).unwrap() {
        sources.extend(std::fs::read_to_string(entry.unwrap().path().join("template.jinja")));
    }
    sources.sort();
    assert!(sources.len() > 5);
    let mut state = 7;
    let conversation = Conversation::from_prompt(Some("be kind"), "hi");
    for _ in 0..600 {
        let mut damaged: Vec<char> = sources[draw(&mut state, sources.len())].chars().collect();
        for _ in 0..1 + draw(&mut state, 4) {
            let (from, to) = (draw(&mut state, damaged.len()), draw(&mut state, damaged.len()));
            match draw(&mut state, 4) {
                0 => drop(damaged.drain(from.min(to)..from.max(to).min(from.min(to) + 20))),
                1 => {
                    let copied = damaged[from.min(to)..from.max(to)].to_vec();
                    damaged.splice(to..to, copied);
                }
                2 => damaged.swap(from, to),
                _ => drop(damaged.splice(from..from, hostile[draw(&mut state, hostile.len())].chars())),
            }
        }
        let source: String = damaged.into_iter().collect();
        match ChatTemplate::new(source.as_str(), Default::default()).render(&conversation, true) {
            Ok(text) => assert!(text.len() <= 32 << 20, "{source}"),
            Err(error) => assert!(!error.to_string().contains("engine panicked"), "{source}"),
        }
    }
}
