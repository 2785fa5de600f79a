//! The tokenizer in a GGUF file's metadata.

mod byte_level;
mod character_level;
mod pre_tokenizers;
mod sentence_piece;

use std::collections::BTreeMap;

use tokenizers::processors::template::TemplateProcessing;

pub use pre_tokenizers::name_of as pre_tokenizer_name;

use super::Gguf;
use crate::{ChatTemplate, Error, Tokenizer};

/// Values of `tokenizer.ggml.model` of files without a vocabulary.
const NO_VOCABULARY: [&str; 2] = ["no_vocab", "none"];

/// Tokens that end a turn or a text in one family or another. A GGUF file names one or two of
/// them; models end with others as well, which Hugging Face lists in `generation_config.json`.
const END_TOKENS: [&str; 9] = [
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<|EOT|>",
    "</s>",
];

/// A token of Phi-3's vocabulary and of no other.
const PHI_3_TOKEN: &str = "<|placeholder1|>";
/// Special tokens of Phi-3 that leave the white space behind them alone; its others take it in.
const NOT_STRIPPING: [&str; 3] = ["<s>", "<unk>", "<|endoftext|>"];

/// What is put around a text unless the file says otherwise.
struct TokenizerDefaults {
    bos: bool,
    eos: bool,
}

/// What a token is, by its number in `tokenizer.ggml.token_type`.
#[derive(Debug, Clone, Copy, PartialEq)]
enum TokenKind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

/// The vocabulary of a file.
struct GgufVocabulary<'a> {
    tokens: Vec<&'a str>,
    kinds: Vec<TokenKind>,
}

impl<'a> GgufVocabulary<'a> {
    fn read(gguf: &Gguf, bytes: &'a [u8]) -> Result<Self, Error> {
        let tokens = gguf.metadata.strings("tokenizer.ggml.tokens", bytes)?;
        let Some(tokens) = tokens.filter(|tokens| !tokens.is_empty()) else {
            return Err(gguf.error("holds no tokenizer (metadata tokenizer.ggml.tokens)"));
        };
        let mut kinds = match gguf.metadata.numbers("tokenizer.ggml.token_type", bytes)? {
            None => vec![TokenKind::Normal; tokens.len()],
            Some(kinds) if kinds.len() == tokens.len() => kinds.into_iter().map(kind).collect(),
            Some(kinds) => {
                return Err(gguf.error(format!(
                    "metadata tokenizer.ggml.token_type has {} entries for {} tokens",
                    kinds.len(),
                    tokens.len()
                )));
            }
        };
        for (token, kind) in tokens.iter().zip(&mut kinds) {
            if is_mistyped(token, *kind) {
                *kind = TokenKind::Control;
            }
        }
        Ok(GgufVocabulary { tokens, kinds })
    }

    fn token(&self, id: u32) -> Option<&'a str> {
        self.tokens.get(id as usize).copied()
    }

    /// Control tokens as special, user-defined ones as plain added tokens.
    fn added_tokens(&self) -> Vec<tokenizers::AddedToken> {
        // GGUF has no key for it; llama.cpp goes by the model's name.
        let phi_3 = self.tokens.contains(&PHI_3_TOKEN);
        let added = self.tokens.iter().zip(&self.kinds);
        added
            .filter_map(|(token, kind)| match kind {
                TokenKind::Control | TokenKind::Unknown => Some((token, true)),
                TokenKind::UserDefined => Some((token, false)),
                _ => None,
            })
            .map(|(token, special)| {
                let stripping = phi_3 && !NOT_STRIPPING.contains(token);
                tokenizers::AddedToken::from(*token, special)
                    .normalized(false)
                    .rstrip(stripping)
            })
            .collect()
    }

    /// Token → id, refusing tokens that are there twice.
    fn ids(&self, gguf: &Gguf) -> Result<Vec<(String, u32)>, Error> {
        let mut seen = std::collections::HashMap::new();
        let mut ids = Vec::with_capacity(self.tokens.len());
        for (id, token) in self.tokens.iter().enumerate() {
            if let Some(other) = seen.insert(*token, id) {
                return Err(gguf.error(format!("its tokens {other} and {id} are both {token:?}")));
            }
            ids.push(((*token).to_owned(), id as u32));
        }
        Ok(ids)
    }
}

/// Some files have tokens that end a text as plain ones. One that looks like no text is taken for what it is (in some
/// vocabularies `</s>` is text).
fn is_mistyped(token: &str, kind: TokenKind) -> bool {
    let known = END_TOKENS.contains(&token);
    known && (kind == TokenKind::UserDefined || (kind == TokenKind::Normal && token.starts_with("<|")))
}

/// The merges, best first.
fn merges(gguf: &Gguf, bytes: &[u8]) -> Result<Vec<(String, String)>, Error> {
    let Some(merges) = gguf.metadata.strings("tokenizer.ggml.merges", bytes)? else {
        return Err(gguf.error("its tokenizer has no merges (metadata tokenizer.ggml.merges)"));
    };
    let pairs: Option<Vec<(String, String)>> = merges
        .iter()
        // No piece holds a space: it has another character in every alphabet.
        .map(|merge| merge.split_once(' '))
        .map(|pair| pair.map(|(left, right)| (left.to_owned(), right.to_owned())))
        .collect();
    pairs.ok_or_else(|| gguf.error("its tokenizer's merges are not pairs"))
}

fn kind(number: f64) -> TokenKind {
    match number as i64 {
        2 => TokenKind::Unknown,
        3 => TokenKind::Control,
        4 => TokenKind::UserDefined,
        5 => TokenKind::Unused,
        6 => TokenKind::Byte,
        _ => TokenKind::Normal,
    }
}

/// Build the tokenizer.
pub(super) fn build(gguf: &Gguf, bytes: &[u8]) -> Result<Tokenizer, Error> {
    let metadata = &gguf.metadata;
    let Some(model) = metadata.string("tokenizer.ggml.model")? else {
        return Err(gguf.error("holds no tokenizer (metadata tokenizer.ggml.model)"));
    };
    if NO_VOCABULARY.contains(&model) {
        return Err(gguf.error(format!(
            "has no vocabulary (tokenizer.ggml.model is {model:?}), so text cannot become tokens; what takes token \
             ids works without (logits, bench, inspect)"
        )));
    }
    let build = match model {
        "gpt2" => byte_level::build,
        "gemma4" => character_level::build,
        "llama" => sentence_piece::build,
        other => {
            let kind = match other {
                "bert" => " (WordPiece)",
                "t5" => " (Unigram)",
                _ => "",
            };
            return Err(gguf.error(format!(
                "tokenizer {other:?}{kind} is not supported (supported: gpt2, llama, gemma4)"
            )));
        }
    };
    let vocabulary = GgufVocabulary::read(gguf, bytes)?;
    let (mut inner, defaults) = build(gguf, bytes, &vocabulary)?;
    let broken = |error: &dyn std::fmt::Display| gguf.error(format!("broken tokenizer: {error}"));
    inner
        .add_tokens(vocabulary.added_tokens())
        .map_err(|error| broken(&error))?;
    let special = |key: &str, wanted: bool| -> Result<Option<(String, u32)>, Error> {
        let id = metadata.id(key)?.filter(|_| wanted);
        Ok(id.and_then(|id| Some((vocabulary.token(id)?.to_owned(), id))))
    };
    let flag = |key: &str, default: bool| Ok(metadata.flag(key)?.unwrap_or(default));
    let bos = special(
        "tokenizer.ggml.bos_token_id",
        flag("tokenizer.ggml.add_bos_token", defaults.bos)?,
    )?;
    let eos = special(
        "tokenizer.ggml.eos_token_id",
        flag("tokenizer.ggml.add_eos_token", defaults.eos)?,
    )?;
    let around = surround(bos, eos).map_err(|error| broken(&error))?;
    inner.with_post_processor(Some(around));
    let bos_id = metadata.id("tokenizer.ggml.bos_token_id")?;
    Tokenizer::new(inner, bos_id, eos_ids(gguf, bytes)?)
}

/// The tokens that end a text: those the metadata name, and control tokens known to do so.
pub(super) fn eos_ids(gguf: &Gguf, bytes: &[u8]) -> Result<Vec<u32>, Error> {
    let mut ids = Vec::new();
    for key in ["eos", "eot", "eom"] {
        ids.extend(gguf.metadata.id(&format!("tokenizer.ggml.{key}_token_id"))?);
    }
    if gguf.metadata.array_length("tokenizer.ggml.tokens")?.is_some() {
        let vocabulary = GgufVocabulary::read(gguf, bytes)?;
        for (id, (token, kind)) in vocabulary.tokens.iter().zip(&vocabulary.kinds).enumerate() {
            if *kind == TokenKind::Control && END_TOKENS.contains(token) {
                ids.push(id as u32);
            }
        }
    }
    let mut unique = Vec::new();
    for id in ids {
        if !unique.contains(&id) {
            unique.push(id);
        }
    }
    Ok(unique)
}

/// The chat template in the metadata, if there is one.
pub(super) fn chat_template(gguf: &Gguf, bytes: &[u8]) -> Result<Option<ChatTemplate>, Error> {
    let mut templates = BTreeMap::new();
    for (name, key) in [
        ("default", "tokenizer.chat_template"),
        ("tool_use", "tokenizer.chat_template.tool_use"),
    ] {
        if let Some(source) = gguf.metadata.string(key)? {
            templates.insert(name.to_owned(), source.to_owned());
        }
    }
    if templates.is_empty() {
        return Ok(None);
    }
    Ok(Some(ChatTemplate::named(templates, special_tokens(gguf, bytes)?)))
}

/// The special tokens that templates see.
pub(super) fn special_tokens(gguf: &Gguf, bytes: &[u8]) -> Result<BTreeMap<String, String>, Error> {
    let mut tokens = BTreeMap::new();
    if gguf.metadata.array_length("tokenizer.ggml.tokens")?.is_none() {
        return Ok(tokens);
    }
    let vocabulary = GgufVocabulary::read(gguf, bytes)?;
    for (role, key) in [
        ("bos_token", "bos"),
        ("eos_token", "eos"),
        ("unk_token", "unknown"),
        ("pad_token", "padding"),
    ] {
        let id = gguf.metadata.id(&format!("tokenizer.ggml.{key}_token_id"))?;
        if let Some(token) = id.and_then(|id| vocabulary.token(id)) {
            tokens.insert(role.to_owned(), token.to_owned());
        }
    }
    Ok(tokens)
}

/// The post-processor that puts these tokens before and after a text.
fn surround(bos: Option<(String, u32)>, eos: Option<(String, u32)>) -> Result<TemplateProcessing, String> {
    let mut single = String::new();
    if let Some((token, _)) = &bos {
        single.push_str(&format!("{token}:0 "));
    }
    single.push_str("$A:0");
    if let Some((token, _)) = &eos {
        single.push_str(&format!(" {token}:0"));
    }
    let tokens: Vec<(String, u32)> = bos.into_iter().chain(eos).collect();
    TemplateProcessing::builder()
        .try_single(single.as_str())?
        .special_tokens(tokens)
        .build()
        .map_err(|error| error.to_string())
}
