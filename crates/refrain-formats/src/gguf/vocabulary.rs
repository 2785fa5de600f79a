//! The vocabulary of a GGUF file.

use super::GgufKeys;
use crate::Error;
use crate::end_tokens::{EndTokens, is_end_token};

/// Kind of a token, from `tokenizer.ggml.token_type`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TokenKind {
    /// Text.
    Normal,
    /// Stands for text that no token covers.
    Unknown,
    /// A special token, not text.
    Control,
    /// Text that is always one token.
    UserDefined,
    /// A reserved entry.
    Unused,
    /// A single byte, as fallback.
    Byte,
}

/// The vocabulary of a file.
#[derive(Debug)]
pub struct GgufVocabulary<'a> {
    /// Text of each token.
    pub tokens: Vec<&'a str>,
    /// Kind of each token.
    pub kinds: Vec<TokenKind>,
}

impl<'a> GgufVocabulary<'a> {
    /// Reads the vocabulary. Tokens that end a text become control tokens, whatever kind the file gives them.
    ///
    /// # Errors
    /// If there is no vocabulary, or it is invalid.
    pub fn read(keys: &GgufKeys<'a>) -> Result<Self, Error> {
        let tokens = keys.strings("tokenizer.ggml.tokens")?;
        let Some(tokens) = tokens.filter(|tokens| !tokens.is_empty()) else {
            return Err(keys.error("has no tokenizer (metadata tokenizer.ggml.tokens)"));
        };
        let mut kinds = match keys.numbers("tokenizer.ggml.token_type")? {
            None => vec![TokenKind::Normal; tokens.len()],
            Some(kinds) if kinds.len() == tokens.len() => kinds.into_iter().map(kind).collect(),
            Some(kinds) => {
                return Err(keys.error(format!(
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

    /// Returns the token with this id.
    pub fn token(&self, id: u32) -> Option<&'a str> {
        self.tokens.get(id as usize).copied()
    }
}

/// Some files list end tokens as plain text. Such a token is treated as a control token, except for a plain `</s>`:
/// some vocabularies have it as text.
fn is_mistyped(token: &str, kind: TokenKind) -> bool {
    is_end_token(token) && (kind == TokenKind::UserDefined || (kind == TokenKind::Normal && token != "</s>"))
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

/// The tokens that end a reply: those in the metadata, and control tokens known by name.
pub(super) fn eos_ids(keys: &GgufKeys<'_>) -> Result<Vec<u32>, Error> {
    let mut ids = Vec::new();
    for key in ["eos", "eot", "eom"] {
        ids.extend(keys.id(&format!("tokenizer.ggml.{key}_token_id"))?);
    }
    let mut known = EndTokens::default();
    if keys.array_length("tokenizer.ggml.tokens")?.is_some() {
        let vocabulary = GgufVocabulary::read(keys)?;
        let tokens = vocabulary.tokens.iter().zip(&vocabulary.kinds).enumerate();
        let control = tokens.filter(|(_, (_, kind))| **kind == TokenKind::Control);
        known = EndTokens::among(control.map(|(id, (token, _))| (id as u32, *token)));
    }
    Ok(known.join([&ids[..]]))
}
