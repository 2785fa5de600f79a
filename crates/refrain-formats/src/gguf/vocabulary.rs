//! What the metadata of a GGUF file say of its tokens.

use super::GgufKeys;
use crate::Error;

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

/// What a token is, by its number in `tokenizer.ggml.token_type`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TokenKind {
    /// Text.
    Normal,
    /// What stands for text that no token has.
    Unknown,
    /// Special: it is no text.
    Control,
    /// Text that is always one token.
    UserDefined,
    /// A free place.
    Unused,
    /// One byte, where no token has a character.
    Byte,
}

/// The vocabulary of a file.
#[derive(Debug)]
pub struct GgufVocabulary<'a> {
    /// Each token's text, as the tokenizer's model has it.
    pub tokens: Vec<&'a str>,
    /// What each is.
    pub kinds: Vec<TokenKind>,
}

impl<'a> GgufVocabulary<'a> {
    /// The one of these metadata. Tokens that end a text are control tokens, whatever the file takes them for.
    ///
    /// # Errors
    /// If there is none, or what is there cannot be.
    pub fn read(keys: &GgufKeys<'a>) -> Result<Self, Error> {
        let tokens = keys.strings("tokenizer.ggml.tokens")?;
        let Some(tokens) = tokens.filter(|tokens| !tokens.is_empty()) else {
            return Err(keys.error("holds no tokenizer (metadata tokenizer.ggml.tokens)"));
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

    /// The token of this id.
    pub fn token(&self, id: u32) -> Option<&'a str> {
        self.tokens.get(id as usize).copied()
    }
}

/// Some files have tokens that end a text as plain ones. One that looks like no text is taken for what it is (in some
/// vocabularies `</s>` is text).
fn is_mistyped(token: &str, kind: TokenKind) -> bool {
    let known = END_TOKENS.contains(&token);
    known && (kind == TokenKind::UserDefined || (kind == TokenKind::Normal && token.starts_with("<|")))
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

/// The tokens that end a text: those the metadata name, and control tokens known to do so.
pub(super) fn eos_ids(keys: &GgufKeys<'_>) -> Result<Vec<u32>, Error> {
    let mut ids = Vec::new();
    for key in ["eos", "eot", "eom"] {
        ids.extend(keys.id(&format!("tokenizer.ggml.{key}_token_id"))?);
    }
    if keys.array_length("tokenizer.ggml.tokens")?.is_some() {
        let vocabulary = GgufVocabulary::read(keys)?;
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
