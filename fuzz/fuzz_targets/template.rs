//! A chat template, and after a NUL byte the conversation to render. `fuzz/run` limits its memory and time.

#![no_main]

use std::collections::BTreeMap;

use refrain_text::{ChatTemplate, Conversation};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let [template, conversation] = refrain_fuzz::parts(input);
    let special = BTreeMap::from([("bos_token".to_owned(), "<s>".to_owned())]);
    let template = ChatTemplate::new(String::from_utf8_lossy(template), special);
    let conversation = Conversation::from_json(&String::from_utf8_lossy(conversation))
        .unwrap_or_else(|_| Conversation::from_prompt(Some("be kind"), "hi"));
    for add_generation_prompt in [true, false] {
        match template.render(&conversation, add_generation_prompt) {
            Ok(text) => assert!(text.len() <= 32 << 20),
            Err(error) => assert!(!error.to_string().contains("engine panicked"), "{error}"),
        }
    }
});
