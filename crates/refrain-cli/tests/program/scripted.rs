//! Tiny checkpoints that say a given text, token for token.
//!
//! A checkpoint is a Llama of one layer whose output head is a table: each token of a script is followed by the next
//! one. A memory of the tokens before (uniform attention) tells the second occurrence of a token from the first.

use std::collections::BTreeMap;
use std::fs;
use std::iter;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

/// One token of a script.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Piece {
    /// An added token by its name.
    Token(&'static str),
    /// A text that is one token.
    Text(&'static str),
}

pub use Piece::{Text, Token};

/// A checkpoint to write.
pub struct Script {
    /// Last token of the prompt: an added token, or one byte.
    pub start: Piece,
    /// What the model says behind it.
    pub says: Vec<Piece>,
    /// Further texts. The first piece of each is the prompt's last token, by which the template chooses the text.
    pub more: Vec<Vec<Piece>>,
    pub template: String,
    /// Further added tokens that are special.
    pub special: Vec<&'static str>,
    /// Further added tokens that are text.
    pub plain: Vec<&'static str>,
    pub eos: &'static str,
    /// Further end tokens in the configuration files.
    pub ends: Vec<&'static str>,
    /// Number of tokens, prompt included, around which tokens repeat.
    pub middle: usize,
}

impl Default for Script {
    fn default() -> Self {
        Script {
            start: Text("t"),
            says: Vec::new(),
            more: Vec::new(),
            template: "{% for m in messages %}{{ m.content }}{% endfor %}".to_owned(),
            special: Vec::new(),
            plain: Vec::new(),
            eos: "<|end_of_it|>",
            ends: Vec::new(),
            middle: 100,
        }
    }
}

/// A written checkpoint; dropping it removes it.
pub struct Scripted {
    folder: TempDir,
    ids: BTreeMap<&'static str, usize>,
}

impl Scripted {
    pub fn path(&self) -> &str {
        self.folder.path().to_str().unwrap()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the id of an added token.
    pub fn id(&self, token: &str) -> usize {
        self.ids[token]
    }

    pub fn change_json(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut value = serde_json::from_slice(&fs::read(self.file(name)).unwrap()).unwrap();
        change(&mut value);
        write_json(self.folder.path(), name, &value);
    }
}

const HEAD_WIDTH: usize = 64;
const FEED_FORWARD: usize = 64;

/// The character that a byte has in a byte-level vocabulary.
fn letter(byte: u8) -> char {
    let is_seen = |byte: u8| matches!(byte, 33..=126 | 0xa1..=0xac | 0xae..);
    if is_seen(byte) {
        return char::from(byte);
    }
    let hidden_before = (0..byte).filter(|byte| !is_seen(*byte)).count();
    char::from_u32(256 + hidden_before as u32).unwrap()
}

fn write_json(folder: &Path, name: &str, value: &Value) {
    fs::write(folder.join(name), value.to_string()).unwrap();
}

/// A matrix of zeros but for what is set.
struct Matrix {
    columns: usize,
    values: Vec<f32>,
}

impl Matrix {
    fn new(rows: usize, columns: usize) -> Self {
        let values = vec![0.0; rows * columns];
        Matrix { columns, values }
    }

    fn raise(&mut self, row: usize, column: usize, to: f64) {
        let value = &mut self.values[row * self.columns + column];
        *value = value.max(to as f32);
    }
}

impl Script {
    /// Writes the checkpoint.
    pub fn write(&self) -> Scripted {
        let folder = tempfile::tempdir().unwrap();
        let mut vocabulary: BTreeMap<String, usize> =
            (0..=255).map(|byte| (letter(byte).to_string(), byte.into())).collect();
        let chains: Vec<Vec<Piece>> = iter::once([&[self.start], &self.says[..]].concat())
            .chain(self.more.iter().cloned())
            .collect();
        for piece in chains.iter().flatten() {
            if let Text(text) = piece {
                let next = vocabulary.len();
                vocabulary.entry(text.bytes().map(letter).collect()).or_insert(next);
            }
        }
        let mut ids: BTreeMap<&'static str, usize> = BTreeMap::new();
        let said = chains.iter().flatten().filter_map(|piece| match piece {
            Token(name) => Some(*name),
            Text(_) => None,
        });
        let others = self.special.iter().chain(&self.ends).chain(&self.plain).copied();
        let mut added = Vec::new();
        for name in ["<pad>", self.eos].into_iter().chain(others).chain(said) {
            ids.entry(name).or_insert_with(|| {
                added.push(name);
                vocabulary.len() + added.len() - 1
            });
        }
        let number = |piece: &Piece| match piece {
            Token(name) => ids[name],
            Text(text) => vocabulary[&text.bytes().map(letter).collect::<String>()],
        };
        let row = |chain: &Vec<Piece>| {
            let mut row: Vec<usize> = chain.iter().map(number).collect();
            row.push(ids[self.eos]);
            row.dedup();
            row
        };
        let rows: Vec<Vec<usize>> = chains.iter().map(row).collect();
        self.write_weights(folder.path(), &rows, vocabulary.len() + ids.len());
        let ends: Vec<usize> = [self.eos].iter().chain(&self.ends).map(|name| ids[name]).collect();
        self.write_config(folder.path(), vocabulary.len() + ids.len(), &ends);
        let content: Vec<Value> = (added.iter())
            .map(|name| {
                json!({"id": ids[name], "content": name, "special": !self.plain.contains(name), "single_word": false,
                       "lstrip": false, "rstrip": false, "normalized": false})
            })
            .collect();
        let byte_level =
            json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
        let model = json!({"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocabulary, "merges": []});
        let tokenizer = json!({"version": "1.0", "truncation": null, "padding": null, "normalizer": null,
            "pre_tokenizer": byte_level, "post_processor": null, "decoder": byte_level, "added_tokens": content,
            "model": model});
        write_json(folder.path(), "tokenizer.json", &tokenizer);
        let config = json!({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": self.eos, "pad_token": "<pad>"});
        write_json(folder.path(), "tokenizer_config.json", &config);
        fs::write(folder.path().join("chat_template.jinja"), &self.template).unwrap();
        Scripted { folder, ids }
    }

    fn write_config(&self, folder: &Path, count: usize, ends: &[usize]) {
        let config = json!({"model_type": "llama", "hidden_size": width(count), "num_hidden_layers": 1,
            "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": HEAD_WIDTH,
            "intermediate_size": FEED_FORWARD, "vocab_size": count, "max_position_embeddings": 8192,
            "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": false,
            "torch_dtype": "float32", "eos_token_id": ends});
        write_json(folder, "config.json", &config);
        let generation = json!({"do_sample": false, "temperature": 0.0, "eos_token_id": ends});
        write_json(folder, "generation_config.json", &generation);
    }

    fn write_weights(&self, folder: &Path, rows: &[Vec<usize>], count: usize) {
        let width = width(count);
        let mut followers: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for pair in rows.iter().flat_map(|row| row.windows(2)) {
            followers.entry(pair[0]).or_default().push(pair[1]);
        }
        // The memory tells the occurrences of a token within one text from each other, not those of two texts.
        let is_one_text = rows.len() == 1 || followers.values().all(|next| next.len() == 1);
        assert!(is_one_text, "a piece occurs twice in a script of several texts");
        let root = (width as f64).sqrt();
        let mut head = Matrix::new(count, width);
        let (mut values, mut outputs) = (Matrix::new(HEAD_WIDTH, width), Matrix::new(width, HEAD_WIDTH));
        let mut features: BTreeMap<usize, usize> = BTreeMap::new();
        for (token, next) in &followers {
            let next = if next.iter().all(|other| *other == next[0]) {
                &next[..1]
            } else {
                &next[..]
            };
            for (place, follower) in next.iter().enumerate() {
                let score = if next.len() == 1 {
                    80.0
                } else {
                    60.0 - 8.0 * place as f64
                };
                head.raise(*follower, *token, score / root);
                if place > 0 {
                    let seen = next[place - 1];
                    let count_of_features = features.len();
                    let feature = *features.entry(seen).or_insert(count_of_features);
                    values.raise(feature, seen, 1.0);
                    outputs.raise(count + feature, feature, 1.0);
                    head.raise(*follower, count + feature, 16.0 * self.middle as f64 / width as f64);
                }
            }
        }
        let mut embedding = Matrix::new(count, width);
        (0..count).for_each(|token| embedding.raise(token, token, 1.0));
        let ones = || Matrix {
            columns: 1,
            values: vec![1.0; width],
        };
        let layer = |name: &str| format!("model.layers.0.{name}.weight");
        let tensors = [
            ("model.embed_tokens.weight".to_owned(), embedding),
            ("lm_head.weight".to_owned(), head),
            ("model.norm.weight".to_owned(), ones()),
            (layer("input_layernorm"), ones()),
            (layer("post_attention_layernorm"), ones()),
            (layer("self_attn.q_proj"), Matrix::new(HEAD_WIDTH, width)),
            (layer("self_attn.k_proj"), Matrix::new(HEAD_WIDTH, width)),
            (layer("self_attn.v_proj"), values),
            (layer("self_attn.o_proj"), outputs),
            (layer("mlp.gate_proj"), Matrix::new(FEED_FORWARD, width)),
            (layer("mlp.up_proj"), Matrix::new(FEED_FORWARD, width)),
            (layer("mlp.down_proj"), Matrix::new(width, FEED_FORWARD)),
        ];
        let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
        for (name, matrix) in tensors {
            let start = data.len();
            matrix.values.iter().for_each(|value| data.extend(value.to_le_bytes()));
            let rows = matrix.values.len() / matrix.columns;
            let shape = if name.contains("norm") {
                vec![rows]
            } else {
                vec![rows, matrix.columns]
            };
            let entry = json!({"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]});
            header.insert(name, entry);
        }
        let header = Value::Object(header).to_string().into_bytes();
        let length = (header.len() as u64).to_le_bytes();
        fs::write(folder.join("model.safetensors"), [&length[..], &header, &data].concat()).unwrap();
    }
}

/// Width of the hidden state: a feature for each token, and for each memory.
fn width(count: usize) -> usize {
    (count + HEAD_WIDTH).next_multiple_of(64)
}
