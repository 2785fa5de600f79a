//! Tokens as they are generated.

use std::time::Instant;

use refrain_text::Tokenizer;

use super::{Finish, GenerateOptions, GeneratedText, Generation};
use crate::{Error, Stream};

/// What generation needs of whatever decodes.
pub(crate) trait Reports {
    /// As [`Stream::next_tokens`], of the first sequence.
    fn next(&mut self) -> Result<Option<u32>, Error>;

    /// Whether the text is whole with the last token.
    fn is_complete(&self) -> bool {
        false
    }

    /// As [`Stream::end`].
    fn end(self: Box<Self>) -> Result<(), Error> {
        Ok(())
    }
}

impl Reports for Stream<'_> {
    fn next(&mut self) -> Result<Option<u32>, Error> {
        Ok(self.next_tokens()?.map(|reported| reported[0]))
    }

    fn end(self: Box<Self>) -> Result<(), Error> {
        Stream::end(*self)
    }
}

/// The tokens of a text, one after another as they are picked, until a stop token, as many as were asked for, or a full
/// context. It may be dropped at any time.
///
/// Its errors are logits that are not numbers, and a device that fails; then there are no more tokens.
pub struct GeneratedTokens<'s> {
    /// `None`: there are no more.
    source: Option<Box<dyn Reports + 's>>,
    /// Of the first token.
    position: usize,
    prompt_tokens: usize,
    max_tokens: Option<usize>,
    stop_ids: Vec<u32>,
    stop_strings: Vec<String>,
    ids: Vec<u32>,
    finish: Option<Finish>,
    start: Instant,
    first_pick: Option<Instant>,
    decoded: usize,
    end: Option<Instant>,
}

impl<'s> GeneratedTokens<'s> {
    /// What `source` reports, whose first token is for `position`; `None`: no tokens were asked for.
    pub(crate) fn new(
        source: Option<Box<dyn Reports + 's>>,
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
            ids: vec![],
            start,
            first_pick: None,
            decoded: 0,
            end: None,
        }
    }

    /// The text of the tokens, piece by piece.
    pub fn text<'t>(self, tokenizer: &'t Tokenizer) -> GeneratedText<'t>
    where
        's: 't,
    {
        GeneratedText::new(self, tokenizer)
    }

    /// The tokens so far, without the one that ended the text.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Why there are no more tokens; `None` while there may be, and after an error.
    pub fn finish(&self) -> Option<Finish> {
        self.finish
    }

    /// Strings that end the text.
    pub(super) fn take_stop_strings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.stop_strings)
    }

    /// Ends the text here, unless it has ended already.
    pub(super) fn stop(&mut self, why: Finish) {
        self.finish.get_or_insert(why);
        self.end.get_or_insert_with(Instant::now);
    }

    /// What was generated, with the text that was made of it.
    pub(super) fn end(mut self, text: String) -> Result<Generation, Error> {
        self.stop(Finish::Interrupted);
        self.close()?;
        let end = self.end.unwrap_or_else(Instant::now);
        let first_pick = self.first_pick.unwrap_or(end);
        Ok(Generation {
            text,
            ids: std::mem::take(&mut self.ids),
            finish: self.finish.unwrap_or(Finish::Interrupted),
            prompt_tokens: self.prompt_tokens,
            time_to_first: first_pick - self.start,
            decode_time: end - first_pick,
            decoded: self.decoded,
        })
    }

    fn close(&mut self) -> Result<(), Error> {
        self.source.take().map_or(Ok(()), |source| source.end())
    }

    /// The next token; `None` where the text ends.
    fn pick(&mut self) -> Result<Option<u32>, Error> {
        let Some(source) = self.source.as_mut().filter(|_| self.finish.is_none()) else {
            return Ok(None);
        };
        let Some(id) = source.next()? else {
            let is_complete = source.is_complete();
            self.stop(match self.max_tokens == Some(self.ids.len()) {
                _ if is_complete => Finish::Stop,
                true => Finish::Length,
                false => Finish::Context,
            });
            return Ok(None);
        };
        if id == refrain_lm::sample::NOT_A_NUMBER {
            // One such logit makes every later token meaningless: better no text than that.
            let position = self.position + self.ids.len() - 1;
            return Err(Error::NotANumber { position });
        }
        match self.first_pick {
            None => self.first_pick = Some(Instant::now()),
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
        let picked = self.pick();
        if let Ok(Some(id)) = picked {
            return Some(Ok(id));
        }
        let closed = self.close();
        picked.and(closed).err().map(Err)
    }
}

impl Drop for GeneratedTokens<'_> {
    fn drop(&mut self) {
        // What fails here fails again in whatever the session does next.
        let _ = self.close();
    }
}
