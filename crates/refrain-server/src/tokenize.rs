//! Encodes and decodes texts on blocking threads, and refuses those that no context can hold before that.
//!
//! Tokenizing takes some 120 bytes of memory for a byte of text, so that a few long texts could end the process.

use std::sync::Arc;

use refrain_engine::Error as EngineError;
use refrain_text::{Conversation, TokenBytes};
use serde_json::Value;

use crate::blocking;
use crate::error::Refusal;
use crate::record::RequestRecord;
use crate::served::ServedModel;

/// Texts up to this many bytes are always tokenized, so that errors have the exact number of tokens.
const MAX_UNCHECKED_BYTES: usize = 64 << 10;
/// Longer texts are tokenized in chunks first, to see whether they are too long.
const MAX_UNCOUNTED_BYTES: usize = 1 << 20;
/// Bytes of such a chunk.
const CHUNK_BYTES: usize = 256 << 10;
/// Maximum number of bytes of a text that is only counted.
const MAX_COUNTED_BYTES: usize = 4 << 20;
/// A normaliser may make a text this many times shorter: NFKC turns characters of three bytes into one of one byte.
const MAX_SHRINKING: usize = 4;
/// Tokens at the end of a chunk may differ from those of the whole text; this factor covers them.
const CHUNK_TOLERANCE: usize = 2;

/// How long texts may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextLimit {
    /// Texts that the context cannot hold are refused.
    Context,
    /// Tokens beyond the context are cut off.
    Truncated,
    /// Texts may be longer than the context: nothing is computed of them.
    Counted,
}

impl ServedModel {
    /// Returns the tokens of texts. `special` adds the tokenizer's own tokens, and reads those in the texts.
    ///
    /// Then the body of the present request is not held any longer.
    ///
    /// # Errors
    /// A text that is too long, or that the tokenizer cannot represent.
    pub(crate) async fn encode(
        self: &Arc<Self>,
        texts: Vec<String>,
        special: bool,
        limit: TextLimit,
    ) -> Result<Vec<Vec<u32>>, Refusal> {
        let bytes = texts.iter().map(String::len).sum();
        let model = self.clone();
        let work = move || -> Result<Vec<Vec<u32>>, Refusal> {
            let encode = |text: String| model.encode_blocking(&text, special, limit);
            texts.into_iter().map(encode).collect()
        };
        let tokens = blocking::run(bytes, work).await?;
        RequestRecord::current().release_body();
        tokens
    }

    /// Returns the text of tokens. `skip_special` leaves out special tokens.
    ///
    /// # Errors
    /// An id that is not in the vocabulary.
    pub(crate) async fn decode(self: &Arc<Self>, ids: Vec<u32>, skip_special: bool) -> Result<String, Refusal> {
        let model = self.clone();
        let bytes = size_of_val(&ids[..]);
        Ok(blocking::run(bytes, move || model.tokenizer.decode(&ids, skip_special)).await??)
    }

    fn encode_blocking(&self, text: &str, special: bool, limit: TextLimit) -> Result<Vec<u32>, Refusal> {
        match limit {
            TextLimit::Context => self.check_length(text)?,
            TextLimit::Truncated => return self.encode_beginning(text, special),
            TextLimit::Counted if text.len() > MAX_COUNTED_BYTES => {
                return Err(Refusal::field(
                    "prompt",
                    format!("texts of more than {} MiB are not counted", MAX_COUNTED_BYTES >> 20),
                ));
            }
            TextLimit::Counted => {}
        }
        Ok(self.tokenizer.encode(text, special)?)
    }

    /// Refuses a text that the context cannot hold, as far as that is certain without tokenizing all of it.
    ///
    /// # Errors
    /// The engine's error for prompts that are too long.
    pub(crate) fn check_length(&self, text: &str) -> Result<(), Refusal> {
        if text.len() <= MAX_UNCHECKED_BYTES {
            return Ok(());
        }
        let context = self.context;
        let too_long = |tokens: usize| Err(EngineError::ContextFull { tokens, context }.into());
        let least = text.len() / self.longest_token();
        if least > context.saturating_mul(MAX_SHRINKING) {
            return too_long(least);
        }
        if text.len() <= MAX_UNCOUNTED_BYTES {
            return Ok(());
        }
        let (mut tokens, mut rest) = (0, text);
        while !rest.is_empty() {
            let (chunk, behind) = rest.split_at(floor_char_boundary(rest, CHUNK_BYTES));
            tokens += self.tokenizer.encode_rendered(chunk)?.len();
            if tokens > context.saturating_mul(CHUNK_TOLERANCE) {
                return too_long(tokens);
            }
            rest = behind;
        }
        Ok(())
    }

    /// Returns the tokens of as much of a text as the context holds.
    fn encode_beginning(&self, text: &str, special: bool) -> Result<Vec<u32>, Refusal> {
        let mut bytes = MAX_UNCHECKED_BYTES.max(8 * self.context);
        loop {
            let end = floor_char_boundary(text, bytes);
            let mut tokens = self.tokenizer.encode(&text[..end], special)?;
            if end == text.len() || tokens.len() > CHUNK_TOLERANCE * self.context {
                tokens.truncate(self.context);
                return Ok(tokens);
            }
            bytes *= 2;
        }
    }

    /// Bytes of the longest token.
    fn longest_token(&self) -> usize {
        let lengths = self
            .vocabulary()
            .iter()
            .flatten()
            .map(|token: &TokenBytes| token.bytes.len());
        lengths.max().unwrap_or(1).max(1)
    }
}

/// Bytes of all strings of a conversation, its tools and documents included.
pub(crate) fn text_bytes(conversation: &Conversation) -> usize {
    fn of(value: &Value) -> usize {
        match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(of).sum(),
            Value::Object(fields) => fields.values().map(of).sum(),
            _ => 8,
        }
    }
    let lists = [&conversation.tools, &conversation.documents].into_iter().flatten();
    let values = conversation.messages.iter().chain(lists.flatten());
    values.chain(conversation.variables.values()).map(of).sum()
}

/// The last place of a character that does not begin behind `at`.
fn floor_char_boundary(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}
