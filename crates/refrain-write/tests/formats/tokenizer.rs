//! Tokenizers compared with transformers.

use std::path::Path;

use refrain_models::Checkpoint;
use refrain_testing::sample;
use refrain_text::{Tokenizer, TokenizerFiles};
use serde::Deserialize;

use crate::fetched::fetched;
use crate::support::fixtures;

#[derive(Deserialize)]
struct Expected {
    text: String,
    ids: Vec<u32>,
    plain_ids: Vec<u32>,
    decoded: String,
}

/// Encodes and decodes every text of a file of expectations, at once and token by token.
fn check(tokenizer: &Tokenizer, file: &Path) {
    let cases: Vec<Expected> = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert!(cases.len() > 20);
    for case in cases {
        let what = format!("{:?} by {}", case.text, file.display());
        assert_eq!(tokenizer.encode(&case.text, true).unwrap(), case.ids, "{what}");
        assert_eq!(tokenizer.encode(&case.text, false).unwrap(), case.plain_ids, "{what}");
        assert_eq!(tokenizer.decode(&case.ids, true).unwrap(), case.decoded, "{what}");
        let mut stream = tokenizer.decode_stream(true);
        let mut text = String::new();
        for &id in &case.ids {
            text += &stream.step(id).unwrap();
        }
        text += &stream.finish().unwrap();
        assert_eq!(text, case.decoded, "{what}");
    }
}

#[test]
fn encodes_and_decodes_as_transformers_does() {
    if !refrain_testing::drawn(8) {
        return;
    }
    let mut found = vec![];
    for entry in std::fs::read_dir(fixtures().join("tokenizers")).unwrap() {
        let directory = entry.unwrap().path();
        let name = directory.file_name().unwrap().to_str().unwrap();
        let own = directory.join("tokenizer.json").exists();
        let source = if own {
            Some(directory.clone())
        } else {
            fetched(&format!("tokenizers/{name}"))
        };
        found.extend(source.map(|source| (directory, source)));
    }
    assert!(found.len() >= 3);
    found.sort();
    for (directory, source) in sample(found, 8) {
        let tokenizer = TokenizerFiles::open(&source).unwrap().tokenizer().unwrap();
        check(&tokenizer, &directory.join("expected.json"));
    }
}

#[test]
fn gguf_tokenizers_return_the_same_ids() {
    let mut checked = 0;
    for entry in std::fs::read_dir(fixtures()).unwrap() {
        let directory = entry.unwrap().path();
        if directory.join("model.gguf").exists() {
            let checkpoint = Checkpoint::open(&directory.join("model.gguf")).unwrap();
            check(&checkpoint.tokenizer().unwrap(), &directory.join("tokenizations.json"));
            checked += 1;
        }
    }
    assert!(checked >= 5);
}

#[test]
fn streams_emit_only_whole_characters() {
    let source = fixtures().join("tokenizers/small-qwen2");
    let tokenizer = TokenizerFiles::open(&source).unwrap().tokenizer().unwrap();
    let text = "a 😀 日本 é";
    let ids = tokenizer.encode(text, false).unwrap();
    assert!(ids.len() > text.chars().count(), "some characters must be split");
    let mut stream = tokenizer.decode_stream(false);
    let pieces: Vec<String> = ids.iter().map(|&id| stream.step(id).unwrap()).collect();
    assert!(pieces.iter().any(String::is_empty));
    assert!(pieces.iter().all(|piece| !piece.contains('\u{fffd}')), "{pieces:?}");
    assert_eq!(pieces.concat() + &stream.finish().unwrap(), text);

    // A character that is never completed is emitted at the end.
    let start = tokenizer.encode("𒀀", false).unwrap()[0];
    let mut stream = tokenizer.decode_stream(false);
    assert_eq!(stream.step(start).unwrap(), "");
    assert_eq!(stream.finish().unwrap(), "\u{fffd}");
}

#[test]
fn streams_emit_only_the_requested_special_tokens() {
    let source = fixtures().join("tokenizers/small-qwen2");
    let text = "a 😀<|im_start|> b<|im_end|>c";
    let streamed = |tokenizer: Tokenizer| {
        let ids = tokenizer.encode_rendered(text).unwrap();
        let mut stream = tokenizer.decode_stream(true);
        let pieces: Vec<String> = ids.iter().map(|&id| stream.step(id).unwrap()).collect();
        pieces.concat() + &stream.finish().unwrap()
    };
    let tokenizer = || TokenizerFiles::open(&source).unwrap().tokenizer().unwrap();
    assert_eq!(streamed(tokenizer()), "a 😀 bc");
    assert_eq!(
        streamed(tokenizer().show_special(&["<|im_start|>thought"])),
        "a 😀<|im_start|> bc"
    );
}

#[test]
fn unknown_ids_are_errors_but_have_no_text_in_streams() {
    let source = fixtures().join("tokenizers/small-qwen2");
    let tokenizer = TokenizerFiles::open(&source).unwrap().tokenizer().unwrap();
    let id = 1_000_000;
    assert_eq!(tokenizer.token(id), None);
    let found = tokenizer.decode(&[0, id], false).unwrap_err().to_string();
    assert!(
        found.starts_with("tokenizer: token id 1000000 is not in the vocabulary of "),
        "{found}"
    );
    let mut stream = tokenizer.decode_stream(false);
    let ids = tokenizer.encode("𒀀 a", false).unwrap();
    let padded = ids.iter().flat_map(|&own| [id, own, id]);
    let text: String = padded.map(|id| stream.step(id).unwrap()).collect();
    assert_eq!(text + &stream.finish().unwrap(), "𒀀 a");
}
