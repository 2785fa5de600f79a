//! Requests for what a model makes of a text, instead of a text.

use super::Batcher;
use crate::Error;
use crate::engine::request::EngineEvent;
use crate::prefill::PrefillChunk;

impl Batcher {
    /// Computes the last tokens of those requests whose others are in the cache; with that they end.
    ///
    /// # Errors
    /// A device that fails.
    pub(super) fn embed(&mut self) -> Result<(), Error> {
        while let Some(slot) = self.next_to_embed() {
            let running = self.slots[slot].as_ref().expect("found");
            let tokens = &running.request.tokens;
            let position = tokens.len() - 1;
            let chunk = PrefillChunk {
                tokens: &tokens[position..],
                sequence: slot,
                position,
                wanted: 1,
                hidden: true,
            };
            let width = self.model.config().hidden_size;
            let function = self.prompts.run(&self.model, &self.states, &chunk, &self.known_table)?;
            let hidden: Vec<f32> = function.read_range(0, 0, width)?;
            let last = if hidden.iter().all(|number| number.is_finite()) {
                EngineEvent::Embedding(hidden)
            } else {
                EngineEvent::Failed(Error::NotANumber { position })
            };
            self.end(slot, last);
        }
        Ok(())
    }

    fn next_to_embed(&self) -> Option<usize> {
        let mut running = self.running();
        let found = running.find(|(_, running)| running.request.embeds && running.decodes());
        found.map(|(slot, _)| slot)
    }
}
