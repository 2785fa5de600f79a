//! Shared code of the fuzz targets.

use refrain_formats::Error;
use refrain_models::Checkpoint;
use refrain_text::{Conversation, Tokenizer};

/// A minimal configuration that accepts any weights.
pub const CONFIG: &[u8] = br#"{"model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 40,
    "max_position_embeddings": 128, "eos_token_id": 2}"#;

/// A safetensors file without tensors.
pub const NO_TENSORS: &[u8] = b"\x08\0\0\0\0\0\0\0{}      ";

/// Splits an input into the contents of several files, separated by NUL bytes. Missing parts are empty.
pub fn parts<const N: usize>(input: &[u8]) -> [&[u8]; N] {
    let mut parts = input.splitn(N, |byte| *byte == 0);
    std::array::from_fn(|_| parts.next().unwrap_or_default())
}

/// Opens an in-memory checkpoint directory of these files.
pub fn open(files: &[(&str, &[u8])]) -> Result<Checkpoint, Error> {
    Checkpoint::from_files(files.iter().map(|(name, bytes)| (*name, bytes.to_vec())))
}

/// Reads everything of an opened checkpoint.
pub fn exercise(checkpoint: Result<Checkpoint, Error>) {
    let Ok(checkpoint) = checkpoint else { return };
    for info in checkpoint.tensors() {
        let tensor = checkpoint.tensor(&info.name).expect("listed tensors exist");
        let _ = tensor.dequantise();
    }
    if let Ok(tokenizer) = checkpoint.tokenizer() {
        exercise_tokenizer(&tokenizer, "ab ba\n <s>1234 é▁");
    }
    let _ = checkpoint.special_tokens();
    if let Ok(Some(template)) = checkpoint.chat_template() {
        let _ = template.render(&Conversation::from_prompt(Some("be kind"), "hi"), true);
    }
}

/// Encodes `text` and decodes the ids, at once and as a stream.
pub fn exercise_tokenizer(tokenizer: &Tokenizer, text: &str) {
    let _ = tokenizer.encode(text, false);
    let Ok(ids) = tokenizer.encode(text, true) else { return };
    let _ = tokenizer.decode(&ids, true);
    let mut stream = tokenizer.decode_stream(false);
    for id in ids {
        let _ = stream.step(id);
    }
    let _ = stream.finish();
}

/// A tokenizer with a token for each byte.
pub fn byte_tokenizer() -> Tokenizer {
    // The byte-level alphabet of GPT-2: bytes without a visible letter get letters from U+0100 on.
    let mut shifted = (0x100..).filter_map(char::from_u32);
    let letter = |byte: u8| match byte {
        b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => char::from(byte),
        _ => shifted.next().expect("there are letters enough"),
    };
    let letters: Vec<char> = (0..=255).map(letter).collect();
    let vocabulary: serde_json::Map<String, serde_json::Value> = letters
        .iter()
        .zip(0..256)
        .map(|(letter, id)| (letter.to_string(), id.into()))
        .collect();
    let byte_level = serde_json::json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
        "use_regex": false});
    let file = serde_json::json!({"version": "1.0", "added_tokens": [], "normalizer": null,
        "pre_tokenizer": byte_level, "post_processor": null, "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []}});
    let file = file.to_string();
    let files: [(&str, &[u8]); 3] = [
        ("config.json", CONFIG),
        ("model.safetensors", NO_TENSORS),
        ("tokenizer.json", file.as_bytes()),
    ];
    let checkpoint = open(&files).expect("the files are valid");
    checkpoint.tokenizer().expect("the tokenizer is valid")
}
