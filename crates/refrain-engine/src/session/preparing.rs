//! What a first prompt would wait for, made before there is one.

use super::*;

impl Session {
    /// Makes everything that [`Session::stream`] of a prompt of so many tokens needs, behind those that the session holds,
    /// so that the first is as fast as the second: the programs of its chunks and of decoding, their memory, their commands
    /// as the driver has them. Runs nothing. No program is made that such a prompt would not make itself.
    ///
    /// # Errors
    /// Too little memory, or a device that fails.
    pub fn prepare(&mut self, prompt: usize) -> Result<(), Error> {
        self.prepare_with(prompt, StepExtras::default())
    }

    /// The same for [`Session::generate_within`].
    ///
    /// # Errors
    /// As [`Session::prepare`].
    pub fn prepare_within(&mut self, prompt: usize) -> Result<(), Error> {
        self.prepare_with(prompt, StepExtras::ALLOWED)
    }

    /// The same for [`Session::prefill`], which decodes nothing.
    ///
    /// # Errors
    /// As [`Session::prepare`].
    pub fn prepare_prefill(&mut self, prompt: usize) -> Result<(), Error> {
        self.prepare_chunks(prompt, 1)
    }

    fn prepare_with(&mut self, prompt: usize, extras: StepExtras) -> Result<(), Error> {
        // The decode step sees the last token.
        self.prepare_chunks(prompt.saturating_sub(1), 0)?;
        self.set_extras(extras)?;
        // The next stream goes on with a trial that is under way.
        let tried = self.decoding.trial.as_ref().map(Trial::executor);
        let executor = tried.unwrap_or_else(|| self.executor());
        Ok(self.step()?.tape(executor)?.prepare_writes()?)
    }

    /// Prepares the calls that see `tokens` further tokens, of which logits of the last `wanted`, one at most, are wanted.
    fn prepare_chunks(&mut self, tokens: usize, wanted: usize) -> Result<(), Error> {
        let held = self.tokens.len();
        // More than fit are refused when they come.
        let end = held.saturating_add(tokens).min(self.context);
        let mut at = held;
        while at < end {
            let chunk = self.tokens_of_call(end - at, at, wanted)?;
            at += chunk;
            let last = wanted.min(usize::from(at == end));
            self.prompts.prepare(&self.model, &self.states, chunk, last)?;
        }
        Ok(())
    }
}
