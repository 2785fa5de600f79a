//! Generation with a token constraint.

use refrain_lm::token_bitmask_words;

use super::{Finish, GenerateOptions, GeneratedTokens, TokenSource};
use crate::{Error, Session, Stream, TokenConstraint};

/// A stream that writes a mask before each token.
struct ConstrainedStream<'s> {
    stream: Stream<'s>,
    constraint: Box<dyn TokenConstraint>,
    stop_ids: Vec<u32>,
    bits: Vec<u32>,
    is_complete: bool,
}

impl TokenSource for ConstrainedStream<'_> {
    fn next(&mut self) -> Result<Option<u32>, Error> {
        if self.is_complete {
            return Ok(None);
        }
        self.bits.fill(0);
        self.constraint.fill_mask(&mut self.bits).map_err(Error::Constraint)?;
        if self.bits.iter().all(|word| *word == 0) {
            return Err(Error::Constraint("no token is allowed".to_owned()));
        }
        self.stream.allow(&self.bits)?;
        let Some(id) = TokenSource::next(&mut self.stream)? else {
            return Ok(None);
        };
        if id != refrain_lm::sample::NOT_A_NUMBER && !self.stop_ids.contains(&id) {
            self.is_complete = self.constraint.accept(id).map_err(Error::Constraint)?;
        }
        Ok(Some(id))
    }

    fn finish(&self) -> Option<Finish> {
        self.is_complete.then_some(Finish::Stop)
    }

    fn end(self: Box<Self>) -> Result<(), Error> {
        self.stream.end()
    }
}

impl Session {
    /// As [`Session::generate`], restricted to the tokens that `constraint` allows. The device does not run ahead.
    ///
    /// # Errors
    /// As [`Session::generate`].
    pub fn generate_constrained(
        &mut self,
        prompt: &[u32],
        options: &GenerateOptions,
        constraint: Box<dyn TokenConstraint>,
    ) -> Result<GeneratedTokens<'_>, Error> {
        let vocabulary = self.vocabulary();
        self.generate_by(prompt, options, |session, settings| {
            let stream = session.constrained_stream(prompt, settings)?;
            Ok(Box::new(ConstrainedStream {
                stream,
                constraint,
                stop_ids: options.stop_ids.clone(),
                bits: vec![0; token_bitmask_words(vocabulary)],
                is_complete: false,
            }))
        })
    }
}
