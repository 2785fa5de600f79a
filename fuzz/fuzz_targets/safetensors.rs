//! The weights of a checkpoint directory.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    refrain_fuzz::exercise(refrain_fuzz::open(&[
        ("config.json", refrain_fuzz::CONFIG),
        ("model.safetensors", input),
    ]));
});
