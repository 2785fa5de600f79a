//! Decoding token by token.

use std::collections::BTreeMap;

use crate::Error;

/// Tokens that are held back at most while they do not yet form whole characters. The longest
/// UTF-8 character has 4 bytes; anything longer is not text.
const MAX_HELD: usize = 16;

/// Turns tokens into text as they come, giving out whole characters only.
///
/// The text of a token can depend on the one before it (a leading space is dropped at the start of
/// a text) and on the ones after it (a character may be split over several tokens), so what is
/// given out is what the last few tokens together add to those before them.
pub struct DecodeStream<'a> {
    tokenizer: &'a tokenizers::Tokenizer,
    /// Special tokens that are given out all the same.
    shown: &'a BTreeMap<u32, String>,
    skip_special: bool,
    /// The last tokens that were given out, and those that were not yet.
    ids: Vec<u32>,
    /// How many of `ids` were given out.
    given: usize,
}

impl<'a> DecodeStream<'a> {
    pub(super) fn new(
        tokenizer: &'a tokenizers::Tokenizer,
        shown: &'a BTreeMap<u32, String>,
        skip_special: bool,
    ) -> Self {
        DecodeStream {
            tokenizer,
            shown,
            skip_special,
            ids: Vec::new(),
            given: 0,
        }
    }

    /// The text that becomes complete with token `id`; often a word, or nothing. Ids that are none of the tokenizer's have
    /// no text: a model's vocabulary is often padded beyond it.
    ///
    /// # Errors
    /// If the tokenizer is broken.
    pub fn step(&mut self, id: u32) -> Result<String, Error> {
        if self.tokenizer.id_to_token(id).is_none() {
            return Ok(String::new());
        }
        if let Some(name) = self.shown.get(&id).filter(|_| self.skip_special) {
            let (_, mut added) = self.added()?;
            added.push_str(name);
            self.ids.clear();
            self.given = 0;
            return Ok(added);
        }
        self.ids.push(id);
        let (text, added) = self.added()?;
        if text.ends_with(char::REPLACEMENT_CHARACTER) && self.ids.len() - self.given < MAX_HELD {
            return Ok(String::new());
        }
        if added.is_empty() {
            return Ok(added);
        }
        self.ids.drain(..self.given);
        self.given = self.ids.len();
        Ok(added)
    }

    /// What is left at the end of a text: characters that were never completed.
    ///
    /// # Errors
    /// As [`DecodeStream::step`].
    pub fn finish(mut self) -> Result<String, Error> {
        let (_, added) = self.added()?;
        self.given = self.ids.len();
        Ok(added)
    }

    /// The text of all held tokens, and what of it was not given out.
    fn added(&mut self) -> Result<(String, String), Error> {
        let decode = |ids: &[u32]| super::guarded(|| self.tokenizer.decode(ids, self.skip_special));
        let before = decode(&self.ids[..self.given])?;
        let text = decode(&self.ids)?;
        let added = text.get(before.len()..).unwrap_or_default().to_owned();
        Ok((text, added))
    }
}
