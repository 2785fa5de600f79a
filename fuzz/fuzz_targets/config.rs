//! `config.json`, and after a NUL byte `generation_config.json`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let [config, generation] = refrain_fuzz::parts(input);
    let mut files = vec![("config.json", config), ("model.safetensors", refrain_fuzz::NO_TENSORS)];
    if !generation.is_empty() {
        files.push(("generation_config.json", generation));
    }
    refrain_fuzz::exercise(refrain_fuzz::open(&files));
});
