//! Tokens as they are generated.

use std::time::Instant;

use refrain_text::Tokenizer;

use super::{Finish, GenerateOptions, GeneratedText, Generation};
use crate::Error;

/// A source of decoded tokens.
pub(crate) trait TokenSource {
    /// Returns the next token, or one of [`refrain_lm::sample::FINISHED`] and [`refrain_lm::sample::NOT_A_NUMBER`]; `None`
    /// once there are no more.
    fn next(&mut self) -> Result<Option<u32>, Error>;

    /// Returns why there are no more tokens, if it knows.
    fn finish(&self) -> Option<Finish> {
        None
    }
}

/// Iterates over the tokens of a text as they are sampled, until a stop token, the limit of tokens, or a full
/// context. It may be dropped at any time.
///
/// Yields an error if logits are not finite or the device fails, and then ends.
pub struct GeneratedTokens<'s> {
    /// `None` once there are no more tokens.
    source: Option<Box<dyn TokenSource + 's>>,
    /// Position of the first token.
    position: usize,
    prompt_tokens: usize,
    max_tokens: Option<usize>,
    stop_ids: Vec<u32>,
    stop_strings: Vec<String>,
    stop_strings_after: usize,
    ids: Vec<u32>,
    finish: Option<Finish>,
    start: Instant,
    first_sampled: Option<Instant>,
    last_sampled: Option<Instant>,
    decoded: usize,
    end: Option<Instant>,
}

impl<'s> GeneratedTokens<'s> {
    /// Wraps `source`, whose first token is for `position`; `None` if no tokens were requested.
    pub(crate) fn new(
        source: Option<Box<dyn TokenSource + 's>>,
        position: usize,
        prompt_tokens: usize,
        start: Instant,
        options: &GenerateOptions,
    ) -> Self {
        GeneratedTokens {
            finish: source.is_none().then_some(Finish::Length),
            source,
            position,
            prompt_tokens,
            max_tokens: options.max_tokens,
            stop_ids: options.stop_ids.clone(),
            stop_strings: options.stop_strings.clone(),
            stop_strings_after: options.stop_strings_after,
            ids: vec![],
            start,
            first_sampled: None,
            last_sampled: None,
            decoded: 0,
            end: None,
        }
    }

    /// Returns the text of the tokens, piece by piece.
    pub fn text<'t>(self, tokenizer: &'t Tokenizer) -> GeneratedText<'t>
    where
        's: 't,
    {
        GeneratedText::new(self, tokenizer)
    }

    /// Returns the tokens so far, without the stop token.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Returns why the text ended; `None` before its end and after an error.
    pub fn finish(&self) -> Option<Finish> {
        self.finish
    }

    /// Takes the strings that end the text, and the number of tokens after which they do.
    pub(super) fn take_stop_strings(&mut self) -> (Vec<String>, usize) {
        (std::mem::take(&mut self.stop_strings), self.stop_strings_after)
    }

    /// Ends the text here, unless it has ended already.
    pub(super) fn stop(&mut self, why: Finish) {
        self.finish.get_or_insert(why);
        self.end.get_or_insert_with(Instant::now);
    }

    /// Returns the result, with its text.
    pub(super) fn end(mut self, text: String) -> Generation {
        self.stop(Finish::Interrupted);
        let end = self.end.unwrap_or_else(Instant::now);
        let first_sampled = self.first_sampled.unwrap_or(end);
        Generation {
            text,
            ids: std::mem::take(&mut self.ids),
            finish: self.finish.unwrap_or(Finish::Interrupted),
            prompt_tokens: self.prompt_tokens,
            time_to_first: first_sampled - self.start,
            decode_time: end - first_sampled,
            decoded: self.decoded,
        }
    }

    /// Returns the next token; `None` at the end of the text.
    fn sample_next(&mut self) -> Result<Option<u32>, Error> {
        let Some(source) = self.source.as_mut().filter(|_| self.finish.is_none()) else {
            return Ok(None);
        };
        let Some(id) = source.next()? else {
            let finish = source.finish();
            // What is sampled then is no token of the text.
            self.end = self.last_sampled;
            self.stop(match finish {
                Some(finish) => finish,
                None if self.max_tokens == Some(self.ids.len()) => Finish::Length,
                None => Finish::Context,
            });
            return Ok(None);
        };
        if id == refrain_lm::sample::NOT_A_NUMBER {
            // One such logit makes all later tokens meaningless: no text is better.
            let position = self.position + self.ids.len() - 1;
            return Err(Error::NotANumber { position });
        }
        let now = Instant::now();
        self.last_sampled = Some(now);
        match self.first_sampled {
            None => self.first_sampled = Some(now),
            Some(_) => self.decoded += 1,
        }
        if self.stop_ids.contains(&id) {
            self.stop(Finish::Stop);
            return Ok(None);
        }
        self.ids.push(id);
        Ok(Some(id))
    }
}

impl Iterator for GeneratedTokens<'_> {
    type Item = Result<u32, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let sampled = self.sample_next();
        if !matches!(sampled, Ok(Some(_))) {
            self.source = None;
        }
        sampled.transpose()
    }
}
