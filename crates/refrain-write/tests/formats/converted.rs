//! Real tokenizers in GGUF form: `tokenizer.json` is turned into metadata, and the ids are compared with
//! transformers'.

use std::collections::HashMap;
use std::path::Path;

use refrain_text::TokenizerFiles;
use serde::Deserialize;

use crate::fetched::fetched;
use crate::support::{GgufBuilder, Meta, fixtures};

#[derive(Deserialize)]
struct TokenizerJson {
    model: ConvertedModel,
    added_tokens: Vec<Added>,
}

#[derive(Deserialize)]
struct ConvertedModel {
    vocab: HashMap<String, u32>,
    merges: Vec<Merge>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Merge {
    Joined(String),
    Pair(String, String),
}

#[derive(Deserialize)]
struct Added {
    id: u32,
    content: String,
    special: bool,
}

#[derive(Deserialize)]
struct Expected {
    text: String,
    ids: Vec<u32>,
    plain_ids: Vec<u32>,
}

/// Returns a GGUF file without weights that holds a byte-level tokenizer with the pre-tokenizer `pre`.
fn convert(source: &Path, pre: &'static str) -> GgufBuilder {
    let json: TokenizerJson = serde_json::from_slice(&std::fs::read(source).unwrap()).unwrap();
    let mut tokens: HashMap<u32, (String, i32)> = HashMap::new();
    for (token, id) in json.model.vocab {
        tokens.insert(id, (token, 1));
    }
    for added in json.added_tokens {
        let kind = if added.special { 3 } else { 4 };
        tokens.insert(added.id, (added.content, kind));
    }
    let count = tokens.keys().max().unwrap() + 1;
    let unused = |id: u32| (format!("[PAD{id}]"), 5);
    let (tokens, kinds) = (0..count)
        .map(|id| tokens.remove(&id).unwrap_or_else(|| unused(id)))
        .unzip();
    let merges = json.model.merges.into_iter().map(|merge| match merge {
        Merge::Joined(merge) => merge,
        Merge::Pair(left, right) => format!("{left} {right}"),
    });
    GgufBuilder::new("llama")
        .set("tokenizer.ggml.model", Meta::Text("gpt2"))
        .set("tokenizer.ggml.pre", Meta::Text(pre))
        .set("tokenizer.ggml.add_bos_token", Meta::Bool(false))
        .set("tokenizer.ggml.tokens", Meta::Texts(tokens))
        .set("tokenizer.ggml.token_type", Meta::I32s(kinds))
        .set("tokenizer.ggml.merges", Meta::Texts(merges.collect()))
}

/// Compares the ids of every text with those of transformers, except for the tokens that the family adds: `around`
/// counts those at each end.
fn check(name: &str, pre: &'static str, around: (usize, usize)) {
    let Some(source) = fetched(&format!("tokenizers/{name}/tokenizer.json")) else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vocabulary.gguf");
    std::fs::write(&path, convert(&source, pre).bytes()).unwrap();
    let tokenizer = TokenizerFiles::open(&path).unwrap().tokenizer().unwrap();
    let expected = fixtures().join("tokenizers").join(name).join("expected.json");
    let cases: Vec<Expected> = serde_json::from_slice(&std::fs::read(expected).unwrap()).unwrap();
    assert!(!cases.is_empty(), "{name}: no texts");
    for case in cases {
        let expected = &case.ids[around.0..case.ids.len() - around.1];
        assert_eq!(
            tokenizer.encode_rendered(&case.text).unwrap(),
            expected,
            "{:?}",
            case.text
        );
        assert_eq!(
            tokenizer.encode(&case.text, false).unwrap(),
            case.plain_ids,
            "{:?}",
            case.text
        );
    }
}

macro_rules! families {
    ($($test:ident $pre:literal $around:expr;)*) => {
        $(#[test]
        fn $test() {
            check(stringify!($test), $pre, $around);
        })*
    };
}

families! {
    command_r_plus "command-r" (1, 2);
    deepseek_v3 "deepseek-v3" (0, 0);
    gpt2 "gpt-2" (0, 0);
    llama3_2 "llama-bpe" (1, 0);
    mistral_nemo "tekken" (1, 0);
    qwen2_5 "qwen2" (0, 0);
}
