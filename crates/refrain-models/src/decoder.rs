//! The interface of a model.

use refrain::Array;

use crate::{Batch, CacheTypes, LayerState, Pages};

/// A decoder model: computes logits for the tokens of a batch.
pub trait Decoder: Send + Sync {
    /// Allocates zeroed layer states: `pages` of keys and values of `types` for each of `sequences` sequences.
    ///
    /// # Errors
    /// If there is too little memory.
    fn new_states(&self, types: CacheTypes, pages: Pages, sequences: usize) -> Result<Vec<LayerState>, refrain::Error>;

    /// Returns the final hidden states `[O, hidden]` (f32), after the last norm, of the `O` tokens that the batch
    /// selects. Updates the layer states with all tokens.
    fn hidden(&self, batch: &Batch, states: &mut [LayerState]) -> Array;

    /// Logits `[O, vocabulary]` (f32) of hidden states.
    fn logits(&self, hidden: &Array) -> Array;

    /// Returns logits `[O, vocabulary]` (f32) of the `O` tokens that the batch selects. Updates the layer states with
    /// all tokens.
    fn forward(&self, batch: &Batch, states: &mut [LayerState]) -> Array {
        self.logits(&self.hidden(batch, states))
    }
}
