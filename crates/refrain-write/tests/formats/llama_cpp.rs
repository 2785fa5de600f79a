//! llama.cpp's vocabularies: the token ids that it publishes, and what is refused.

use std::path::Path;

use refrain_text::TokenizerFiles;

use crate::fetched::fetched;
use crate::support::message;

/// Compares the ids of every text of one vocabulary, without added or special tokens.
fn check(directory: &Path, name: &str) {
    let path = directory.join(format!("ggml-vocab-{name}.gguf"));
    let texts = std::fs::read_to_string(path.with_extension("gguf.inp")).unwrap();
    let expected = std::fs::read_to_string(path.with_extension("gguf.out")).unwrap();
    let texts: Vec<&str> = texts.split("\n__ggml_vocab_test__\n").collect();
    let expected: Vec<&str> = expected.lines().collect();
    assert!(expected.len() > 40);
    let tokenizer = TokenizerFiles::open(&path).unwrap().tokenizer().unwrap();
    let mut wrong = Vec::new();
    for (text, ids) in texts.iter().zip(&expected) {
        let ids: Vec<u32> = ids.split_whitespace().map(|id| id.parse().unwrap()).collect();
        let found = tokenizer.encode(text, false).unwrap();
        if found != ids {
            wrong.push((text, found, ids));
        }
    }
    assert!(
        wrong.is_empty(),
        "{name}: {} of {} texts: {wrong:?}",
        wrong.len(),
        expected.len()
    );
}

macro_rules! published {
    ($($test:ident $name:literal)*) => {
        $(#[test]
        fn $test() {
            if let Some(directory) = fetched("llama.cpp") {
                check(&directory, $name);
            }
        })*
    };
}

mod ids_match_llama_cpp_for {
    use super::check;
    use crate::fetched::fetched;

    published! {
        command_r "command-r"
        deepseek_coder "deepseek-coder"
        deepseek_llm "deepseek-llm"
        falcon "falcon"
        gemma_4 "gemma-4"
        gpt_2 "gpt-2"
        llama_bpe "llama-bpe"
        llama_spm "llama-spm"
        mpt "mpt"
        phi_3 "phi-3"
        qwen2 "qwen2"
        qwen35 "qwen35"
        refact "refact"
        starcoder "starcoder"
    }
}

#[test]
fn refuses_word_piece() {
    let Some(directory) = fetched("llama.cpp") else { return };
    let files = TokenizerFiles::open(&directory.join("ggml-vocab-bert-bge.gguf")).unwrap();
    let found = message(files.tokenizer());
    assert!(
        found.contains(r#"tokenizer "bert" (WordPiece) is not supported"#),
        "{found}"
    );
}
