//! The text of tokens as they are generated.

use refrain_text::{DecodeStream, Tokenizer};

use super::stop::{Passed, StopFilter};
use super::{Finish, GeneratedTokens, Generation};
use crate::Error;

/// From tokens to text, which ends before a stop string. Text is held back while it could be the beginning of a stop
/// string or of a character.
pub struct TextDecoder<'t> {
    /// `None`: all text was given out.
    stream: Option<DecodeStream<'t>>,
    filter: StopFilter,
}

impl<'t> TextDecoder<'t> {
    /// Of a text that ends before one of `stops`.
    pub fn new(tokenizer: &'t Tokenizer, stops: Vec<String>) -> Self {
        TextDecoder {
            stream: Some(tokenizer.decode_stream(true)),
            filter: StopFilter::new(stops),
        }
    }

    /// The text that is certain with token `id`.
    ///
    /// # Errors
    /// A token that is none.
    pub fn push(&mut self, id: u32) -> Result<Passed, Error> {
        match &mut self.stream {
            Some(stream) => Ok(self.filter.push(&stream.step(id)?)),
            None => Ok(Passed::default()),
        }
    }

    /// The text that was held back, once; there is no more then.
    ///
    /// # Errors
    /// Tokens that make no text.
    pub fn rest(&mut self) -> Result<String, Error> {
        let Some(stream) = self.stream.take() else {
            return Ok(String::new());
        };
        let mut passed = self.filter.push(&stream.finish()?);
        if !passed.stopped {
            passed.text.push_str(&self.filter.finish());
        }
        Ok(passed.text)
    }

    /// Lets what is held back go.
    fn close(&mut self) {
        self.stream = None;
    }

    fn is_closed(&self) -> bool {
        self.stream.is_none()
    }
}

/// A text as it is generated: for each token the text that became certain with it (often a word, or nothing), and at
/// the end what was held back. Text is held back while it could be the beginning of a stop string or of a character.
///
/// Its errors are those of [`GeneratedTokens`]; then there is no more text.
pub struct GeneratedText<'s> {
    tokens: GeneratedTokens<'s>,
    decoder: TextDecoder<'s>,
    text: String,
}

impl<'s> GeneratedText<'s> {
    pub(super) fn new(mut tokens: GeneratedTokens<'s>, tokenizer: &'s Tokenizer) -> Self {
        GeneratedText {
            decoder: TextDecoder::new(tokenizer, tokens.take_stop_strings()),
            tokens,
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
        let passed = self.decoder.push(id)?;
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
        if !ended {
            self.decoder.close();
        }
        self.decoder.rest()
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
            Ok(text) if text.is_empty() && self.decoder.is_closed() => return None,
            Ok(text) => self.text.push_str(text),
            Err(_) => self.decoder.close(),
        }
        Some(piece)
    }
}
