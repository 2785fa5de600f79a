//! Requests for embeddings: the hidden states after the last tokens of texts.

use super::{Batcher, Runner};
use crate::Error;
use crate::engine::request::EngineEvent;
use crate::prefill::PrefillPiece;

impl<R: Runner> Batcher<R> {
    /// Computes the last tokens of the texts whose other tokens are computed, all in one call, and ends their requests.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn embed(&mut self) -> Result<(), Error> {
        let texts = self
            .running()
            .filter(|(_, running)| running.request.embeds && running.decodes());
        // A deterministic engine computes each by itself.
        let most = if self.deterministic { 1 } else { self.slots.len() };
        let slots: Vec<usize> = texts.map(|(slot, _)| slot).take(most).collect();
        if slots.is_empty() {
            return Ok(());
        }
        let piece = |&slot: &usize| {
            let tokens = &self.slots[slot].as_ref().expect("found").request.tokens;
            let position = tokens.len() - 1;
            PrefillPiece {
                tokens: &tokens[position..],
                sequence: slot,
                position,
            }
        };
        let pieces = slots.iter().map(piece).collect();
        let all = self.runner.hidden_states(pieces, &self.known_table)?;
        for (slot, hidden) in slots.into_iter().zip(all) {
            let last = if hidden.iter().all(|number| number.is_finite()) {
                EngineEvent::Embedding(hidden)
            } else {
                let position = self.slots[slot]
                    .as_ref()
                    .map_or(0, |running| running.request.tokens.len() - 1);
                EngineEvent::Failed(Error::NotANumber { position })
            };
            self.end(slot, last);
        }
        Ok(())
    }
}
