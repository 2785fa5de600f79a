//! `tokenizer.json`, and after NUL bytes `tokenizer_config.json` and a text.

#![no_main]

use libfuzzer_sys::Corpus;

libfuzzer_sys::fuzz_target!(|input: &[u8]| -> Corpus {
    let [tokenizer, config, text] = refrain_fuzz::parts(input);
    let mut files = vec![
        ("config.json", refrain_fuzz::CONFIG),
        ("model.safetensors", refrain_fuzz::NO_TENSORS),
        ("tokenizer.json", tokenizer),
    ];
    if !config.is_empty() {
        files.push(("tokenizer_config.json", config));
    }
    let Ok(checkpoint) = refrain_fuzz::open(&files) else {
        return Corpus::Reject;
    };
    let _ = checkpoint.special_tokens();
    let _ = checkpoint.chat_template();
    if let Ok(tokenizer) = checkpoint.tokenizer() {
        let text = String::from_utf8_lossy(text);
        refrain_fuzz::exercise_tokenizer(&tokenizer, &text);
        // Long enough that several small growth steps could make it very long.
        refrain_fuzz::exercise_tokenizer(&tokenizer, &text.repeat(1 + 4096 / (1 + text.len())));
    }
    Corpus::Keep
});
