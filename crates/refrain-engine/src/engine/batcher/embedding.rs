//! Requests for embeddings: the hidden states after the last tokens of texts.

use super::Batcher;
use crate::Error;
use crate::engine::request::EngineEvent;
use crate::prefill::{PrefillChunk, PrefillPiece};

impl Batcher {
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
        let chunk = PrefillChunk {
            pieces: slots.iter().map(piece).collect(),
            wanted: (0..slots.len() as u32).collect(),
            hidden: true,
        };
        let width = self.model.config().hidden_size;
        let function = self.prompts.run(&self.model, &self.states, &chunk, &self.known_table)?;
        let hidden: Vec<f32> = function.read_range(0, 0, slots.len() * width)?;
        for (slot, hidden) in slots.into_iter().zip(hidden.chunks_exact(width)) {
            let last = if hidden.iter().all(|number| number.is_finite()) {
                EngineEvent::Embedding(hidden.to_vec())
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
