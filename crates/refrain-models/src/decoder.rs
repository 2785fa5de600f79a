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

    /// The multi-token prediction head, if the model was loaded with one.
    fn mtp_head(&self) -> Option<&dyn MtpHead> {
        None
    }
}

/// A head that predicts the token after the next one: from the hidden state at a position and the token that follows it
/// (multi-token prediction: DeepSeek-AI 2024, arXiv:2412.19437, section 2.2).
pub trait MtpHead: Send + Sync {
    /// Allocates the head's zeroed state, like a layer of [`Decoder::new_states`].
    ///
    /// # Errors
    /// If there is too little memory.
    fn new_state(&self, types: CacheTypes, pages: Pages, sequences: usize) -> Result<LayerState, refrain::Error>;

    /// Returns its hidden states `[O, hidden]` (f32) of the `O` tokens that the batch selects, which
    /// [`Decoder::logits`] takes. Row t of `hidden` `[T, hidden]` is what [`Decoder::hidden`] returns at a position; the
    /// batch has that position and the token that follows. To predict further, a result takes the place of `hidden` at
    /// the next position. Updates the state with all tokens.
    fn hidden(&self, batch: &Batch, hidden: &Array, state: &mut LayerState) -> Array;
}
