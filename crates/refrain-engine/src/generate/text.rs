//! The text of tokens as they are generated.

use refrain_formats::{DecodeStream, Tokenizer};

use super::stop::StopFilter;
use super::{Finish, GeneratedTokens, Generation};
use crate::Error;

/// A text as it is generated: for each token the text that became certain with it (often a word, or nothing), and at
/// the end what was held back. Text is held back while it could be the beginning of a stop string or of a character.
///
/// Its errors are those of [`GeneratedTokens`]; then there is no more text.
pub struct GeneratedText<'s> {
    tokens: GeneratedTokens<'s>,
    /// `None`: all text was given out.
    stream: Option<DecodeStream<'s>>,
    filter: StopFilter,
    text: String,
}

impl<'s> GeneratedText<'s> {
    pub(super) fn new(mut tokens: GeneratedTokens<'s>, tokenizer: &'s Tokenizer) -> Self {
        GeneratedText {
            filter: StopFilter::new(tokens.take_stop_strings()),
            tokens,
            stream: Some(tokenizer.decode_stream(true)),
            text: String::new(),
        }
    }

    /// The tokens so far, without the one that ended the text.
    pub fn ids(&self) -> &[u32] {
        self.tokens.ids()
    }

    /// Ends the text here if it has not ended yet. Returns all of it: what the iterator has given.
    ///
    /// # Errors
    /// A device that fails.
    pub fn end(self) -> Result<Generation, Error> {
        self.tokens.end(self.text)
    }

    /// The text that is certain with token `id`.
    fn push(&mut self, id: u32) -> Result<String, Error> {
        let Some(stream) = &mut self.stream else {
            return Ok(String::new());
        };
        let passed = self.filter.push(&stream.step(id)?);
        if passed.stopped {
            self.tokens.stop(Finish::StopString);
        }
        Ok(passed.text)
    }

    /// The text that was held back, unless the text ended in the middle of it.
    fn rest(&mut self) -> Result<String, Error> {
        let ended = matches!(
            self.tokens.finish(),
            Some(Finish::Stop | Finish::Length | Finish::Context)
        );
        let Some(stream) = self.stream.take().filter(|_| ended) else {
            return Ok(String::new());
        };
        let mut passed = self.filter.push(&stream.finish()?);
        if !passed.stopped {
            passed.text.push_str(&self.filter.finish());
        }
        Ok(passed.text)
    }
}

impl Iterator for GeneratedText<'_> {
    type Item = Result<String, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let piece = match self.tokens.next() {
            Some(picked) => picked.and_then(|id| self.push(id)),
            None => self.rest(),
        };
        match &piece {
            Ok(text) if text.is_empty() && self.stream.is_none() => return None,
            Ok(text) => self.text.push_str(text),
            Err(_) => self.stream = None,
        }
        Some(piece)
    }
}
