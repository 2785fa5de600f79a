//! Error messages of corrupt GGUF files.

use refrain_models::Checkpoint;

use crate::support::{GgufBuilder, Meta, message};

/// Opens each of these files, and compares the error.
fn check(cases: &[(Vec<u8>, &str)]) {
    for (bytes, expected) in cases {
        let found = message(Checkpoint::from_gguf_bytes(bytes.clone()));
        assert!(found.contains(expected), "{found:?} lacks {expected:?}");
        assert!(found.starts_with("embedded model: "), "{found}");
    }
}

fn valid() -> GgufBuilder {
    GgufBuilder::new("llama")
}

fn with_tensor() -> GgufBuilder {
    valid().tensor("t", &[2, 32], 0, vec![0; 256])
}

#[test]
fn rejects_corrupt_headers() {
    let mut version = with_tensor();
    version.version = 1;
    let mut big_endian = with_tensor();
    big_endian.version = 3u32.swap_bytes();
    check(&[
        (
            version.bytes(),
            "is of GGUF version 1, but only versions 2 and 3 are supported",
        ),
        (big_endian.bytes(), "is a big-endian GGUF file, which is not supported"),
        (b"GGML....".to_vec(), "is not a GGUF file: its first four bytes are not"),
        (vec![], "is truncated: it ends within its first four bytes at byte 0"),
        (
            changed(with_tensor(), 8, u64::MAX),
            "claims 18446744073709551615 tensors, but the rest of the file can hold at most",
        ),
        (
            changed(with_tensor(), 16, 1 << 60),
            "claims 1152921504606846976 metadata values",
        ),
        (
            changed(with_tensor(), 24, 1 << 40),
            "claims 1099511627776 bytes of text",
        ),
        (
            valid().set("general.alignment", Meta::U32(24)).bytes(),
            "metadata general.alignment is 24, not a small power of two",
        ),
    ]);
}

#[test]
fn descriptive_text_may_be_in_any_encoding() {
    let latin1 = |key: &'static str| {
        let mut bytes = with_tensor().set(key, Meta::Text("Mod#le")).bytes();
        let at = bytes.windows(6).position(|text| text == b"Mod#le").unwrap();
        bytes[at + 3] = 0xe8;
        Checkpoint::from_gguf_bytes(bytes)
    };
    let named = latin1("general.name").unwrap();
    assert_eq!(named.files().model_name(), Some("Mod\u{fffd}le"));
    assert!(latin1("quantize.imatrix.file").is_ok());
    let found = message(latin1("tokenizer.chat_template"));
    assert!(
        found.contains("metadata tokenizer.chat_template is not UTF-8 text"),
        "{found}"
    );
}

#[test]
fn rejects_corrupt_tensors() {
    check(&[
        (
            valid().tensor("t", &[2, 32], 12, vec![0; 256]).bytes(),
            "tensor t: its rows of 32 values are not whole Q4_K blocks of 256",
        ),
        (
            valid().tensor("t", &[1, 256], 21, vec![0; 256]).bytes(),
            "tensor t: is of type IQ3_S, which is not supported (supported: F32, F16, BF16, F64, Q4_0, Q4_1, Q5_0, Q5_1, \
             Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4)",
        ),
        (
            valid().tensor("t", &[2, 32], 999, vec![0; 256]).bytes(),
            "tensor t: is of type number 999 (unknown)",
        ),
        (
            valid().tensor("t", &[2, 33], 8, vec![0; 256]).bytes(),
            "tensor t: its rows of 33 values are not whole Q8_0 blocks of 32",
        ),
        (
            valid().tensor("t", &[1 << 62, 32], 0, vec![0; 256]).bytes(),
            "tensor t: its shape [4611686018427387904, 32] is too large",
        ),
        (
            valid().tensor("t", &[1, 1, 1, 1, 1], 0, vec![0; 4]).bytes(),
            "tensor t: has 5 axes, more than the 4 allowed",
        ),
        (
            valid().tensor("t", &[4, 32], 0, vec![0; 256]).bytes(),
            "tensor t: its 512 bytes at offset 0 lie outside of the file, which has 256 bytes of data",
        ),
        (
            with_tensor().tensor("t", &[1], 0, vec![0; 4]).bytes(),
            "tensor t: is duplicated",
        ),
        (
            valid()
                .tensor("a", &[16], 0, vec![0; 32])
                .tensor("b", &[8], 0, vec![0; 32])
                .bytes(),
            "tensor b: its bytes overlap those of a",
        ),
    ]);
}

#[test]
fn rejects_wrong_metadata() {
    check(&[
        (
            valid().set("general.architecture", Meta::Text("mamba")).bytes(),
            r#"architecture "mamba" is not"#,
        ),
        (
            valid().without("general.architecture").bytes(),
            "metadata general.architecture is missing",
        ),
        (
            valid().without("llama.block_count").bytes(),
            "metadata llama.block_count is missing",
        ),
        (
            valid().set("llama.block_count", Meta::Text("x")).bytes(),
            "metadata llama.block_count is a string, not a positive count",
        ),
        (
            valid().set("llama.attention.head_count", Meta::U32(0)).bytes(),
            "metadata llama.attention.head_count is 0, not a positive count",
        ),
        (
            valid()
                .set("llama.feed_forward_length", Meta::I32s(vec![96, 32]))
                .bytes(),
            "metadata llama.feed_forward_length differs between layers",
        ),
        (
            valid().set("llama.expert_count", Meta::U32(8)).bytes(),
            "metadata llama.expert_count is 8, which is not supported for llama",
        ),
        (
            valid().set("llama.rope.scaling.type", Meta::Text("mrope")).bytes(),
            r#"rope scaling "mrope" is not supported"#,
        ),
        (
            valid().set("llama.rope.scaling.type", Meta::Text("yarn")).bytes(),
            "metadata llama.rope.scaling.factor is missing",
        ),
        (
            valid().set("llama.rope.scaling.type", Meta::Text("longrope")).bytes(),
            "requires both tensors rope_factors_short.weight and rope_factors_long.weight",
        ),
        (
            valid().tensor("rope_freqs.weight", &[3], 0, vec![0; 12]).bytes(),
            "there are 3 rope factors, but 16 frequencies",
        ),
        (
            valid()
                .tensor("blk.0.attn_q.weight", &[40, 64], 0, vec![0; 10240])
                .bytes(),
            "tensor blk.0.attn_q.weight: its 40 rows are not whole heads of 32",
        ),
    ]);
}

/// Returns the file with the eight bytes at `at` replaced.
fn changed(gguf: GgufBuilder, at: usize, value: u64) -> Vec<u8> {
    let mut bytes = gguf.bytes();
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    bytes
}

#[test]
fn rejects_files_truncated_anywhere() {
    let bytes = GgufBuilder::new("qwen3").tensor("t", &[2, 32], 0, vec![0; 256]).bytes();
    assert!(Checkpoint::from_gguf_bytes(bytes.clone()).is_ok());
    for length in 0..bytes.len() {
        assert!(
            Checkpoint::from_gguf_bytes(bytes[..length].to_vec()).is_err(),
            "cut to {length} bytes"
        );
    }
}

#[test]
fn translates_metadata_and_names_to_hugging_face() {
    let gguf = GgufBuilder::new("llama")
        .set("tokenizer.ggml.eos_token_id", Meta::U32(2))
        .set("llama.attention.layer_norm_rms_epsilon", Meta::F32(1e-5))
        .set("llama.rope.scaling.type", Meta::Text("linear"))
        .set("llama.rope.scaling.factor", Meta::F32(2.0))
        .tensor("token_embd.weight", &[40, 64], 0, vec![0; 10240])
        .tensor("blk.0.attn_q.bias", &[64], 0, vec![0; 256]);
    let checkpoint = gguf.open().unwrap();
    let config = checkpoint.config();
    assert_eq!(
        (
            config.layers,
            config.attention.heads,
            config.attention.kv_heads,
            config.attention.head_dim
        ),
        (1, 2, 1, 32)
    );
    assert_eq!((config.vocab_size, config.norm.eps), (40, 1e-5));
    assert_eq!(
        config.positions.scaling,
        refrain_models::config::RopeScaling::Linear { factor: 2.0 }
    );
    assert!(config.tie_word_embeddings && config.attention.bias && !config.feed_forward.bias);
    assert_eq!(checkpoint.generation().eos_ids, [2]);
    let names: Vec<&str> = checkpoint.tensors().map(|info| info.name.as_str()).collect();
    assert_eq!(
        names,
        ["model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.bias"]
    );
}

#[test]
fn reports_missing_weights() {
    let checkpoint = valid().open().unwrap();
    let found = message(checkpoint.expect("model.norm.weight", &[64]));
    assert!(found.contains("embedded model: has no weights"), "{found}");
}

#[test]
fn unimplemented_metadata_is_accepted_only_with_its_neutral_value() {
    let opened = |key: &'static str, value: Meta| GgufBuilder::new("llama").set(key, value).open();
    for (key, harmless, harmful) in [
        ("llama.attention.scale", 0.0, 0.25),
        ("llama.attention.max_alibi_bias", 0.0, 8.0),
        ("llama.embedding_scale", 1.0, 12.0),
        ("llama.residual_scale", 1.0, 0.5),
        ("llama.logit_scale", 1.0, 16.0),
        ("llama.attn_logit_softcapping", 0.0, 50.0),
        ("llama.final_logit_softcapping", 0.0, 30.0),
    ] {
        assert!(opened(key, Meta::F32(harmless)).is_ok(), "{key}");
        let found = message(opened(key, Meta::F32(harmful)));
        let expected = format!("metadata {key} is {harmful}, which is not supported for llama");
        assert!(found.contains(&expected), "{found}");
    }
    for (key, harmless) in [("llama.attention.causal", true), ("llama.use_parallel_residual", false)] {
        assert!(opened(key, Meta::Bool(harmless)).is_ok(), "{key}");
        let found = message(opened(key, Meta::Bool(!harmless)));
        assert!(found.contains(&format!("metadata {key} is {}", !harmless)), "{found}");
    }
}
