//! The text of tokens as they are generated.

use refrain_text::{DecodeStream, Tokenizer};

use super::stop::{DecodedPiece, StopFilter};
use super::{Finish, GeneratedTokens, Generation};
use crate::Error;

/// Decodes tokens to text, up to a stop string. Text is held back while it may be the start of a stop string or of
/// a character.
pub struct TextDecoder<'t> {
    /// `None` once all text was emitted.
    stream: Option<DecodeStream<'t>>,
    filter: StopFilter,
    /// Tokens that still come before stop strings end the text.
    unstoppable_tokens: usize,
}

impl<'t> TextDecoder<'t> {
    /// Creates a decoder for text that ends before one of `stops`, but not within its first `after` tokens.
    pub fn new(tokenizer: &'t Tokenizer, stops: Vec<String>, after: usize) -> Self {
        TextDecoder {
            stream: Some(tokenizer.decode_stream(true)),
            filter: StopFilter::new(stops),
            unstoppable_tokens: after,
        }
    }

    /// Adds a token, and returns the text that is certain now.
    ///
    /// # Errors
    /// If the tokenizer is broken.
    pub fn push(&mut self, id: u32) -> Result<DecodedPiece, Error> {
        let Some(stream) = &mut self.stream else {
            return Ok(DecodedPiece::default());
        };
        let text = stream.step(id)?;
        if self.unstoppable_tokens > 0 {
            self.unstoppable_tokens -= 1;
            return Ok(DecodedPiece { text, stopped: false });
        }
        Ok(self.filter.push(&text))
    }

    /// Ends the text and returns what was held back; later calls return nothing.
    ///
    /// # Errors
    /// If the tokenizer is broken.
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

    /// The index of the stop string that ended the text; `None` as long as there was none.
    pub fn stop(&self) -> Option<usize> {
        self.filter.found()
    }

    /// Drops the text that is held back.
    fn close(&mut self) {
        self.stream = None;
    }

    fn is_closed(&self) -> bool {
        self.stream.is_none()
    }
}

/// A text as it is generated. It yields, for each token, the text that became certain with it (often a word or
/// nothing), and at the end what was held back.
///
/// After an error of [`GeneratedTokens`] it yields nothing more.
pub struct GeneratedText<'s> {
    tokens: GeneratedTokens<'s>,
    decoder: TextDecoder<'s>,
    text: String,
}

impl<'s> GeneratedText<'s> {
    pub(super) fn new(mut tokens: GeneratedTokens<'s>, tokenizer: &'s Tokenizer) -> Self {
        let (stops, after) = tokens.take_stop_strings();
        GeneratedText {
            decoder: TextDecoder::new(tokenizer, stops, after),
            tokens,
            text: String::new(),
        }
    }

    /// Returns the tokens so far, without the stop token.
    pub fn ids(&self) -> &[u32] {
        self.tokens.ids()
    }

    /// Ends the text here if it has not ended yet, and returns the result.
    pub fn end(self) -> Generation {
        self.tokens.end(self.text)
    }

    /// Adds a token, and returns the text that is certain now.
    fn push(&mut self, id: u32) -> Result<String, Error> {
        let passed = self.decoder.push(id)?;
        if passed.stopped {
            self.tokens.stop(Finish::StopString);
        }
        Ok(passed.text)
    }

    /// Returns the text that was held back, unless a stop string or the caller ended the text.
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
