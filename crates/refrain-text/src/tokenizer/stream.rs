//! Decodes token by token.

use std::collections::BTreeMap;

use crate::Error;

/// Limit of pending tokens that do not yet form whole characters. The longest UTF-8 character has 4 bytes; anything
/// longer is not text.
const MAX_PENDING_TOKENS: usize = 16;

/// Decodes tokens to text as they arrive, and emits only whole characters.
///
/// The text of a token can depend on its neighbours: a leading space is dropped at the start of a text, and a
/// character may span several tokens. Each step therefore decodes the last few tokens together and emits the
/// difference to the previous step.
pub struct DecodeStream<'a> {
    tokenizer: &'a tokenizers::Tokenizer,
    /// Special tokens that are emitted even with `skip_special`.
    visible_special: &'a BTreeMap<u32, String>,
    skip_special: bool,
    /// The tokens emitted last, and the pending ones.
    ids: Vec<u32>,
    /// Number of `ids` that were emitted.
    emitted: usize,
}

impl<'a> DecodeStream<'a> {
    pub(super) fn new(
        tokenizer: &'a tokenizers::Tokenizer,
        visible_special: &'a BTreeMap<u32, String>,
        skip_special: bool,
    ) -> Self {
        DecodeStream {
            tokenizer,
            visible_special,
            skip_special,
            ids: Vec::new(),
            emitted: 0,
        }
    }

    /// Adds a token and returns the text that it completes, often a word or nothing. Unknown ids have no text: a
    /// model's vocabulary is often padded beyond the tokenizer's.
    ///
    /// # Errors
    /// If the tokenizer is broken.
    pub fn step(&mut self, id: u32) -> Result<String, Error> {
        if self.tokenizer.id_to_token(id).is_none() {
            return Ok(String::new());
        }
        if let Some(name) = self.visible_special.get(&id).filter(|_| self.skip_special) {
            let (_, mut added) = self.added()?;
            added.push_str(name);
            self.ids.clear();
            self.emitted = 0;
            return Ok(added);
        }
        self.ids.push(id);
        let (text, added) = self.added()?;
        if text.ends_with(char::REPLACEMENT_CHARACTER) && self.ids.len() - self.emitted < MAX_PENDING_TOKENS {
            return Ok(String::new());
        }
        if added.is_empty() {
            return Ok(added);
        }
        self.ids.drain(..self.emitted);
        self.emitted = self.ids.len();
        Ok(added)
    }

    /// Returns the remaining text: characters that were never completed.
    ///
    /// # Errors
    /// As [`DecodeStream::step`].
    pub fn finish(mut self) -> Result<String, Error> {
        let (_, added) = self.added()?;
        self.emitted = self.ids.len();
        Ok(added)
    }

    /// Returns the text of all tokens held, and the part of it that was not emitted.
    fn added(&mut self) -> Result<(String, String), Error> {
        let decode = |ids: &[u32]| super::guarded(|| self.tokenizer.decode(ids, self.skip_special));
        let before = decode(&self.ids[..self.emitted])?;
        let text = decode(&self.ids)?;
        let added = text.get(before.len()..).unwrap_or_default().to_owned();
        Ok((text, added))
    }
}
