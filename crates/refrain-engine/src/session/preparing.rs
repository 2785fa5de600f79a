//! Compiles and allocates ahead of a first prompt.

use super::*;

impl Session {
    /// Compiles and allocates everything that [`Session::stream`] needs for a prompt of `prompt` tokens after the
    /// present ones, so that the first run is as fast as the second. It runs nothing, and compiles nothing that
    /// such a prompt would not need.
    ///
    /// # Errors
    /// If there is too little memory, or the device fails.
    pub fn prepare(&mut self, prompt: usize) -> Result<(), Error> {
        self.prepare_with(prompt, StepExtras::default())
    }

    /// As [`Session::prepare`], for [`Session::generate_constrained`].
    ///
    /// # Errors
    /// As [`Session::prepare`].
    pub fn prepare_constrained(&mut self, prompt: usize) -> Result<(), Error> {
        self.prepare_with(prompt, StepExtras::ALLOWED)
    }

    /// As [`Session::prepare`], for [`Session::prefill`], which decodes nothing.
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
        let executor = self.executor();
        Ok(self.step()?.prepare(executor)?)
    }

    /// Prepares the calls for `tokens` further tokens, with logits of the last `wanted`: 0 or 1.
    fn prepare_chunks(&mut self, tokens: usize, wanted: usize) -> Result<(), Error> {
        let held = self.tokens.len();
        // Tokens beyond the context are rejected when they are appended.
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
