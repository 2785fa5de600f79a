//! Requests for embeddings: the hidden states after the last tokens of texts.

use super::{Batcher, Runner};
use crate::Error;
use crate::engine::request::EngineEvent;
use crate::prefill::{PrefillPiece, RowOutput};

impl<R: Runner> Batcher<R> {
    /// Computes the last tokens of the texts whose other tokens are computed, and ends their requests: all in one call,
    /// or each by itself in a deterministic engine.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn embed(&mut self) -> Result<(), Error> {
        let texts = self
            .running()
            .filter(|(_, running)| running.request.embeds && running.decodes());
        let slots: Vec<usize> = texts.map(|(slot, _)| slot).collect();
        let at_once = if self.deterministic { 1 } else { slots.len().max(1) };
        // None may remain: the next step would generate text after it.
        slots.chunks(at_once).try_for_each(|slots| self.embed_slots(slots))
    }

    fn embed_slots(&mut self, slots: &[usize]) -> Result<(), Error> {
        let piece = |&slot: &usize| {
            let tokens = &self.slots[slot].as_ref().expect("found").request.tokens;
            let position = tokens.len() - 1;
            PrefillPiece {
                tokens: &tokens[position..],
                sequence: slot,
                position,
                next: None,
            }
        };
        let pieces = slots.iter().map(piece).collect();
        let all = self
            .runner
            .rows_after(pieces, slots.len(), RowOutput::Hidden, &self.known_table)?;
        let width = (all.len() / slots.len().max(1)).max(1);
        for (&slot, hidden) in slots.iter().zip(all.chunks_exact(width)) {
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
