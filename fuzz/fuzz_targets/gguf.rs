//! A GGUF file: metadata, tensors, tokenizer and chat template.

#![no_main]

use refrain_models::Checkpoint;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    refrain_fuzz::exercise(Checkpoint::from_gguf_bytes(input.to_vec()));
});
