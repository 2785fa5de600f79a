//! Small checkpoints built in memory.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use refrain_formats::Error;
use refrain_models::Checkpoint;
use safetensors::tensor::{Dtype, TensorView};

/// Returns the directory of the fixtures made by transformers, gguf and MLX.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures")
}

/// Returns the `config.json` of a tiny Llama with a few keys changed (null removes one).
pub fn config(changes: serde_json::Value) -> String {
    let mut config = serde_json::json!({
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
        "vocab_size": 40, "max_position_embeddings": 128, "eos_token_id": 2
    });
    let object = config.as_object_mut().unwrap();
    for (key, value) in changes.as_object().unwrap() {
        if value.is_null() {
            object.remove(key)
        } else {
            object.insert(key.clone(), value.clone())
        };
    }
    config.to_string()
}

/// One tensor to write: name, type, shape, bytes.
pub type Raw = (&'static str, Dtype, Vec<usize>, Vec<u8>);

/// Returns a safetensors file.
pub fn safetensors(tensors: &[Raw]) -> Vec<u8> {
    let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
        let view = TensorView::new(*dtype, shape.clone(), bytes).unwrap();
        (name.to_string(), view)
    });
    ::safetensors::serialize(views, None).unwrap()
}

/// Returns a safetensors file with the given header text and data.
pub fn safetensors_raw(header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

/// Opens a directory checkpoint of these files.
pub fn open(files: &[(&str, Vec<u8>)]) -> Result<Checkpoint, Error> {
    let files = files.iter().map(|(name, bytes)| (*name, Cow::Owned(bytes.clone())));
    Checkpoint::from_files(files)
}

/// Opens a directory checkpoint with the default configuration and this weight file.
pub fn open_weights(weights: Vec<u8>) -> Result<Checkpoint, Error> {
    open(&[
        ("config.json", config(serde_json::json!({})).into_bytes()),
        ("model.safetensors", weights),
    ])
}

/// Returns the message of an expected error.
pub fn message<T>(result: Result<T, Error>) -> String {
    match result {
        Ok(_) => panic!("expected an error"),
        Err(error) => error.to_string(),
    }
}

/// A metadata value of a GGUF file.
pub enum Meta {
    U32(u32),
    F32(f32),
    Bool(bool),
    Text(&'static str),
    Texts(Vec<String>),
    F32s(Vec<f32>),
    I32s(Vec<i32>),
}

/// Builds a GGUF file.
pub struct GgufBuilder {
    pub version: u32,
    pub metadata: Vec<(&'static str, Meta)>,
    /// Name, shape (outermost first), type number, bytes.
    pub tensors: Vec<(&'static str, Vec<u64>, u32, Vec<u8>)>,
}

impl GgufBuilder {
    /// A tiny model of an architecture, without tensors or tokenizer.
    pub fn new(architecture: &'static str) -> Self {
        let key = |suffix: &str| -> &'static str { Box::leak(format!("{architecture}.{suffix}").into_boxed_str()) };
        GgufBuilder {
            version: 3,
            metadata: vec![
                ("general.architecture", Meta::Text(architecture)),
                (key("embedding_length"), Meta::U32(64)),
                (key("block_count"), Meta::U32(1)),
                (key("feed_forward_length"), Meta::U32(96)),
                (key("attention.head_count"), Meta::U32(2)),
                (key("attention.head_count_kv"), Meta::U32(1)),
                (key("context_length"), Meta::U32(128)),
                (key("vocab_size"), Meta::U32(40)),
                (key("rope.freq_base"), Meta::F32(10000.0)),
            ],
            tensors: Vec::new(),
        }
    }

    /// Replaces or adds a metadata value.
    pub fn set(mut self, key: &'static str, value: Meta) -> Self {
        self.metadata.retain(|(known, _)| *known != key);
        self.metadata.push((key, value));
        self
    }

    /// Removes a metadata value.
    pub fn without(mut self, key: &str) -> Self {
        self.metadata.retain(|(known, _)| *known != key);
        self
    }

    pub fn tensor(mut self, name: &'static str, shape: &[u64], kind: u32, bytes: Vec<u8>) -> Self {
        self.tensors.push((name, shape.to_vec(), kind, bytes));
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            text(&mut out, key);
            value.write(&mut out);
        }
        let mut offset = 0u64;
        for (name, shape, kind, bytes) in &self.tensors {
            text(&mut out, name);
            out.extend((shape.len() as u32).to_le_bytes());
            for axis in shape.iter().rev() {
                out.extend(axis.to_le_bytes());
            }
            out.extend(kind.to_le_bytes());
            out.extend(offset.to_le_bytes());
            offset = (offset + bytes.len() as u64).next_multiple_of(32);
        }
        for (_, _, _, bytes) in &self.tensors {
            out.resize(out.len().next_multiple_of(32), 0);
            out.extend(bytes);
        }
        out
    }

    pub fn open(&self) -> Result<Checkpoint, Error> {
        Checkpoint::from_gguf_bytes(self.bytes())
    }
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

impl Meta {
    fn write(&self, out: &mut Vec<u8>) {
        let array = |out: &mut Vec<u8>, item: u32, count: usize| {
            out.extend(9u32.to_le_bytes());
            out.extend(item.to_le_bytes());
            out.extend((count as u64).to_le_bytes());
        };
        match self {
            Meta::U32(value) => {
                out.extend(4u32.to_le_bytes());
                out.extend(value.to_le_bytes());
            }
            Meta::F32(value) => {
                out.extend(6u32.to_le_bytes());
                out.extend(value.to_le_bytes());
            }
            Meta::Bool(value) => {
                out.extend(7u32.to_le_bytes());
                out.push(u8::from(*value));
            }
            Meta::Text(value) => {
                out.extend(8u32.to_le_bytes());
                text(out, value);
            }
            Meta::Texts(values) => {
                array(out, 8, values.len());
                values.iter().for_each(|value| text(out, value));
            }
            Meta::F32s(values) => {
                array(out, 6, values.len());
                values.iter().for_each(|value| out.extend(value.to_le_bytes()));
            }
            Meta::I32s(values) => {
                array(out, 5, values.len());
                values.iter().for_each(|value| out.extend(value.to_le_bytes()));
            }
        }
    }
}
