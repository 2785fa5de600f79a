//! Error messages of missing or broken tokenizers.

use refrain_text::TokenizerFiles;
use serde_json::{Value, json};

use crate::support::{GgufBuilder, Meta, config, message, open, safetensors};

/// A directory with these files.
fn directory(files: &[(&str, String)]) -> (tempfile::TempDir, TokenizerFiles) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("tokenizer_config.json"), "{}").unwrap();
    for (name, text) in files {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    let files = TokenizerFiles::open(directory.path()).unwrap();
    (directory, files)
}

/// A word-level tokenizer of two words with these added tokens.
fn tokenizer(added: serde_json::Value) -> String {
    json!({
        "version": "1.0", "truncation": {"direction": "Right", "max_length": 1,
            "strategy": "LongestFirst", "stride": 0},
        "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "a"}
    })
    .to_string()
}

fn added(id: u32, content: &str) -> serde_json::Value {
    json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
           "normalized": false, "special": true})
}

#[test]
fn rejects_broken_tokenizers() {
    let cases = [
        (vec![], "there is no tokenizer.json"),
        (vec![("tokenizer.json", String::new())], "tokenizer.json: is empty"),
        (
            vec![("tokenizer.json", "{".to_owned())],
            "tokenizer.json: is broken: EOF",
        ),
        (
            vec![("tokenizer.json", "{}".to_owned())],
            "tokenizer.json: is broken: Model missing",
        ),
        (
            vec![("tokenizer.json", tokenizer(json!([added(5, "<x>")])))],
            "added token \"<x>\" should have id 5, but its place in the vocabulary gives it 2",
        ),
        (
            vec![
                ("tokenizer.json", tokenizer(json!([]))),
                ("tokenizer_config.json", "[]".to_owned()),
            ],
            "tokenizer_config.json: is a JSON list, not an object",
        ),
        (
            vec![
                ("tokenizer.json", tokenizer(json!([]))),
                (
                    "tokenizer_config.json",
                    json!({"added_tokens_decoder": {"7": {}}}).to_string(),
                ),
            ],
            "tokenizer_config.json: added_tokens_decoder: token 7 has no content",
        ),
    ];
    for (files, expected) in cases {
        let (_directory, files) = directory(&files);
        let found = message(files.tokenizer());
        assert!(found.contains(expected), "{found:?} lacks {expected:?}");
    }
    // The library would panic if a decoder is not JSON.
    let text = tokenizer(json!([])).replace(r#""decoder":null"#, r#""decoder":{1: 2}"#);
    let (_directory, files) = directory(&[("tokenizer.json", text)]);
    let found = message(files.tokenizer());
    assert!(
        found.contains("tokenizer.json: is broken: key must be a string"),
        "{found}"
    );
    let empty = tempfile::tempdir().unwrap();
    let found = message(TokenizerFiles::open(empty.path()));
    assert!(
        found.contains("holds none of tokenizer.json, tokenizer_config.json"),
        "{found}"
    );
    let found = message(TokenizerFiles::open(&empty.path().join("nowhere")));
    assert!(found.starts_with("cannot read "), "{found}");
}

#[test]
fn rejects_tokenizers_with_unbounded_growth() {
    let double = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"});
    let steps = |count: usize| vec![double.clone(); count];
    let with = |part: &str, value: serde_json::Value| {
        let mut whole: serde_json::Value = serde_json::from_str(&tokenizer(json!([added(2, "a<x>")]))).unwrap();
        // Added tokens of this kind are normalized while the file is read.
        whole["added_tokens"][0]["normalized"] = json!(true);
        whole[part] = value;
        directory(&[("tokenizer.json", whole.to_string())])
    };
    let large = json!({"type": "Replace", "pattern": {"Regex": "a"}, "content": "a".repeat(80 << 20)});
    let hostile = [
        (
            "normalizer",
            json!({"type": "Sequence", "normalizers": steps(40)}),
            "make texts up to 1099511627776 times",
        ),
        ("normalizer", large, "make texts up to 83886081 times as long"),
        (
            "decoder",
            json!({"type": "Sequence", "decoders": steps(40)}),
            "its decoder makes texts up to",
        ),
    ];
    for (part, value, expected) in hostile {
        let (_directory, files) = with(part, value);
        let found = message(files.tokenizer());
        assert!(found.contains(expected), "{found:.300?} lacks {expected:?}");
    }
    let (_directory, files) = with("normalizer", json!({"type": "Sequence", "normalizers": steps(10)}));
    let tokenizer = files.tokenizer().unwrap();
    assert!(tokenizer.encode("a b", true).is_ok());
    let found = message(tokenizer.encode(&"a".repeat(1 << 20), true));
    assert!(found.contains("a text of 1048576 bytes is too long"), "{found}");
}

#[test]
fn ignores_truncation_settings() {
    let text = tokenizer(json!([added(2, "<x>")]));
    let config = json!({"eos_token": "<x>"}).to_string();
    let (_directory, files) = directory(&[("tokenizer.json", text), ("tokenizer_config.json", config)]);
    let tokenizer = files.tokenizer().unwrap();
    assert_eq!(tokenizer.encode("a b a<x>b", true).unwrap(), [0, 1, 0, 2, 1]);
    assert_eq!(tokenizer.eos_ids(), [2]);
    assert_eq!(tokenizer.id("<x>"), Some(2));
    assert_eq!(tokenizer.vocab_size(), 3);
}

#[test]
fn end_tokens_are_always_control_tokens() {
    let tokens = ["<", "|", ">", "<|im_end|>", "</s>"].map(str::to_owned).to_vec();
    let kinds = vec![1, 1, 1, 1, 4];
    let file = GgufBuilder::new("llama")
        .set("tokenizer.ggml.model", Meta::Text("gpt2"))
        .set("tokenizer.ggml.pre", Meta::Text("gpt-2"))
        .set("tokenizer.ggml.tokens", Meta::Texts(tokens))
        .set("tokenizer.ggml.token_type", Meta::I32s(kinds))
        .set("tokenizer.ggml.merges", Meta::Texts(vec![]));
    let tokenizer = file.open().unwrap().tokenizer().unwrap();
    assert_eq!(tokenizer.encode("<|im_end|></s>", true).unwrap(), [3, 4]);
    assert_eq!(tokenizer.encode("<|>", false).unwrap(), [0, 1, 2]);
    assert!(!tokenizer.encode("</s>", false).unwrap().contains(&4));
    assert_eq!(tokenizer.eos_ids(), [3, 4]);
}

#[test]
fn end_tokens_are_known_by_name() {
    let ends = |tokens: &[&str], eos: u32| {
        let file = GgufBuilder::new("llama")
            .set("tokenizer.ggml.model", Meta::Text("gpt2"))
            .set("tokenizer.ggml.pre", Meta::Text("gpt-2"))
            .set(
                "tokenizer.ggml.tokens",
                Meta::Texts(tokens.iter().map(|token| (*token).to_owned()).collect()),
            )
            .set("tokenizer.ggml.token_type", Meta::I32s(vec![3; tokens.len()]))
            .set("tokenizer.ggml.merges", Meta::Texts(vec![]))
            .set("tokenizer.ggml.eos_token_id", Meta::U32(eos));
        file.open().unwrap().tokenizer().unwrap().eos_ids().to_vec()
    };
    assert_eq!(ends(&["<s>", "[EOT]", "[EOS]", "<x>"], 3), [3, 1, 2]);
    assert_eq!(ends(&["<eos>", "<turn|>", "</s>", "<|tool_response>"], 0), [0, 1, 3]);
    // gpt-oss: <|end|> ends a message. Some files name it as the end of a turn.
    let harmony = ["<|start|>", "<|end|>", "<|return|>", "<|call|>"];
    assert_eq!(ends(&harmony, 2), [2, 3]);
    assert_eq!(ends(&harmony, 1), [2, 3]);
    assert_eq!(ends(&["<|user|>", "<|end|>"], 1), [1]);
}

#[test]
fn a_directory_takes_the_end_tokens_of_all_its_files() {
    let tokens = ["<a>", "<b>", "<c>", "<|im_end|>", "<|eot_id|>"];
    let added: Vec<Value> = tokens
        .iter()
        .enumerate()
        .map(|(at, token)| added(2 + at as u32, token))
        .collect();
    let text = tokenizer(Value::Array(added));
    let files = |generation: &str| {
        let config = config(json!({"eos_token_id": 2}));
        open(&[
            ("config.json", config.into_bytes()),
            ("generation_config.json", generation.as_bytes().to_vec()),
            ("tokenizer.json", text.clone().into_bytes()),
            ("tokenizer_config.json", br#"{"eos_token": "<c>"}"#.to_vec()),
            ("model.safetensors", safetensors(&[])),
        ])
    };
    let ends = |generation| files(generation).unwrap().tokenizer().unwrap().eos_ids().to_vec();
    assert_eq!(ends(r#"{"eos_token_id": [3]}"#), [3, 2, 4, 5, 6]);
    assert_eq!(ends("{}"), [2, 4, 5, 6]);
}

#[test]
fn phi_3_special_tokens_strip_the_white_space_after_them() {
    let ids = |last_token: &str| {
        let tokens = ["<unk>", "<s>", "</s>", "▁", "a", "▁a", "\n", "<|user|>", last_token];
        let file = GgufBuilder::new("phi3")
            .set("tokenizer.ggml.model", Meta::Text("llama"))
            .set("tokenizer.ggml.tokens", Meta::Texts(tokens.map(str::to_owned).to_vec()))
            .set("tokenizer.ggml.scores", Meta::F32s(vec![0.0; 9]))
            .set("tokenizer.ggml.token_type", Meta::I32s(vec![2, 3, 3, 1, 1, 1, 1, 3, 3]));
        let tokenizer = file.open().unwrap().tokenizer().unwrap();
        tokenizer.encode("<|user|> \na</s> <s> a", true).unwrap()
    };
    // The tokenizer adds the space before a word.
    assert_eq!(ids("<|placeholder1|>"), [7, 5, 2, 1, 3, 5]);
    assert_eq!(ids("<|other|>"), [7, 3, 3, 6, 4, 2, 3, 3, 1, 3, 5]);
}

#[test]
fn rejects_broken_tokenizers_in_gguf_files() {
    let base = || {
        let tokens = ["a", "b", "ab", "<e>"].map(str::to_owned).to_vec();
        GgufBuilder::new("llama")
            .set("tokenizer.ggml.model", Meta::Text("gpt2"))
            .set("tokenizer.ggml.pre", Meta::Text("gpt-2"))
            .set("tokenizer.ggml.tokens", Meta::Texts(tokens))
            .set("tokenizer.ggml.token_type", Meta::I32s(vec![1, 1, 1, 3]))
            .set("tokenizer.ggml.merges", Meta::Texts(vec!["a b".to_owned()]))
            .set("tokenizer.ggml.bos_token_id", Meta::U32(3))
            .set("tokenizer.ggml.add_bos_token", Meta::Bool(true))
    };
    let good = base().open().unwrap().tokenizer().unwrap();
    assert_eq!(good.encode("abab<e>", true).unwrap(), [3, 2, 2, 3]);
    assert_eq!(good.bos_id(), Some(3));
    let texts = |texts: &[&str]| Meta::Texts(texts.iter().map(|text| (*text).to_owned()).collect());
    let cases = [
        (
            base().without("tokenizer.ggml.model"),
            "has no tokenizer (metadata tokenizer.ggml.model)",
        ),
        (
            base().without("tokenizer.ggml.tokens"),
            "has no tokenizer (metadata tokenizer.ggml.tokens)",
        ),
        (base().without("tokenizer.ggml.merges"), "its tokenizer has no merges"),
        (
            base().set("tokenizer.ggml.model", Meta::Text("rwkv")),
            r#"tokenizer "rwkv" is not supported (supported: gpt2, llama, gemma4)"#,
        ),
        (
            base().set("tokenizer.ggml.model", Meta::Text("t5")),
            r#"tokenizer "t5" (Unigram) is not supported (supported: gpt2, llama, gemma4)"#,
        ),
        (
            base().set("tokenizer.ggml.model", Meta::Text("no_vocab")),
            r#"has no vocabulary (tokenizer.ggml.model is "no_vocab"), so text cannot be tokenized; commands that take token ids"#,
        ),
        (
            base().set("tokenizer.ggml.model", Meta::Text("llama")),
            "its tokenizer has no scores",
        ),
        (
            base().set("tokenizer.ggml.pre", Meta::Text("klingon")),
            r#"pre-tokenizer "klingon" is not supported (supported: default, llama-bpe,"#,
        ),
        (
            base().set("tokenizer.ggml.merges", texts(&["ab"])),
            "its tokenizer's merges are not pairs",
        ),
        (
            base().set("tokenizer.ggml.merges", texts(&["a z"])),
            "broken tokenizer: ",
        ),
        (
            base()
                .set("tokenizer.ggml.tokens", texts(&["a", "b", "a", "c"]))
                .set("tokenizer.ggml.merges", texts(&[])),
            r#"tokens 0 and 2 are both "a""#,
        ),
        (
            base()
                .set("tokenizer.ggml.model", Meta::Text("llama"))
                .set("tokenizer.ggml.scores", Meta::F32s(vec![0.0])),
            "metadata tokenizer.ggml.scores has 1 entries for 4 tokens",
        ),
    ];
    for (gguf, expected) in cases {
        let found = message(gguf.open().and_then(|checkpoint| checkpoint.tokenizer()));
        assert!(found.contains(expected), "{found:?} lacks {expected:?}");
    }
    let found = message(base().set("tokenizer.ggml.token_type", Meta::I32s(vec![1])).open());
    assert!(
        found.contains("tokenizer.ggml.token_type has 1 entries for 4 tokens"),
        "{found}"
    );
}
