//! The multi-token prediction head in programs: it sees each token that follows a computed one, and drafts the tokens
//! behind the last verified one.

use refrain::{Array, DType, Device, Error};
use refrain_models::{Batch, BatchPart, Decoder, LayerState, MtpHead};

use super::DecodeState;
use super::verifying::VerifiedTokens;
use crate::Model;

/// The head and its state in a program.
pub(crate) struct HeadTrace<'m> {
    decoder: &'m dyn Decoder,
    head: &'m dyn MtpHead,
    state: LayerState,
}

impl<'m> HeadTrace<'m> {
    /// Takes the head's state from `states`: it is the last one, behind those of the model's layers. `None` if there is
    /// none.
    pub fn take(model: &'m Model, states: &mut Vec<LayerState>) -> Option<HeadTrace<'m>> {
        let (decoder, layers) = (model.decoder(), model.config().layers);
        let head = decoder.mtp_head().filter(|_| states.len() > layers)?;
        Some(HeadTrace {
            decoder,
            head,
            state: states.pop()?,
        })
    }

    /// Returns a batch of one part with a copy of its positions, which sampling changes.
    pub fn copy_positions(batch: &Batch) -> Batch {
        let mut batch = batch.clone();
        let part = &mut batch.parts[0];
        part.positions = part.positions.maximum(-1);
        batch
    }

    /// Shows the head the tokens `next` `[T]` that follow those of a batch with hidden states `[T, hidden]`.
    pub fn observe(&mut self, batch: &Batch, hidden: &Array, next: &Array) {
        let batch = Batch {
            tokens: next.clone(),
            logits_indices: None,
            ..batch.clone()
        };
        // Only the keys and values that this stores are used.
        self.head.hidden(&batch, hidden, &mut self.state);
    }

    /// Returns the arrays that [`HeadTrace::observe`] updates.
    pub fn arrays(&self) -> [Array; 2] {
        self.state.arrays().map(Array::clone)
    }

    /// Shows the head the verified tokens that follow those of a batch with hidden states `[S · (1 + k), hidden]`, and
    /// drafts k tokens behind the last of each sequence. Returns the drafts, u32 `[S, k]`.
    pub(super) fn draft(
        &mut self,
        batch: &Batch,
        hidden: &Array,
        verified: &VerifiedTokens,
        control: &DecodeState,
        length: usize,
    ) -> Array {
        let (count, device) = (control.tokens.count(), hidden.device());
        let width = batch.tokens.count() / count;
        let kept = verified.kept.reshape(&[count as isize, -1]);
        let columns = (1..width).map(|index| kept.slice(1, index, index + 1).ge(0).astype(DType::I32));
        let none = Array::zeros(device, DType::I32, &[count, 1]);
        let last = columns.fold(none, |sum, column| sum + column).reshape(&[-1]);
        let rows = Array::arange(device, DType::I32, count) * width as i64 + last;
        let mut position = verified.kept.take(&rows, 0);
        let mut parts = batch.parts.clone();
        parts[0].positions = verified.kept.clone();
        let seen = Batch {
            tokens: verified.tokens.clone(),
            parts,
            logits_indices: Some(rows),
            ..batch.clone()
        };
        let mut hidden = self.head.hidden(&seen, hidden, &mut self.state);
        let mut drafts: Vec<Array> = vec![];
        loop {
            let token = self.decoder.logits(&hidden).argmax();
            drafts.push(token.reshape(&[-1, 1]));
            if drafts.len() == length {
                return refrain::concatenate(&drafts.iter().collect::<Vec<_>>(), 1);
            }
            // The next page may not be the sequence's.
            let has_page = (&position % batch.page_size as i64).lt(batch.page_size as i64 - 1);
            position = has_page.bit_and(position.ge(0)).select(&position + 1, -1);
            let next = Batch {
                tokens: token,
                parts: vec![BatchPart {
                    positions: position.clone(),
                    sequences: control.sequences.clone(),
                    decode: true,
                }],
                logits_indices: None,
                ..batch.clone()
            };
            hidden = self.head.hidden(&next, &hidden, &mut self.state);
        }
    }
}

/// The tokens that the head drafted for S sequences.
#[derive(Clone)]
pub(crate) struct HeadDrafts {
    /// u32 `[S, k]`, which the host reads.
    tokens: Array,
}

impl HeadDrafts {
    /// Allocates them for `length` tokens of each sequence.
    ///
    /// # Errors
    /// If there is too little memory.
    pub fn new(device: &Device, sequences: usize, length: usize) -> Result<HeadDrafts, Error> {
        Ok(HeadDrafts {
            tokens: Array::mapped_state(device, DType::U32, &[sequences, length])?,
        })
    }

    /// Keeps drafts. Returns the updated state.
    pub fn keep(&self, drafts: &Array) -> Array {
        let rows = Array::arange(drafts.device(), DType::I32, drafts.dim(0));
        self.tokens.write_rows(drafts, &rows)
    }

    /// Returns those of a sequence that the last run drafted, once it is over.
    ///
    /// # Errors
    /// If the device fails.
    pub fn read(&self, sequence: usize) -> Result<Vec<u32>, Error> {
        let mut tokens = vec![0; self.tokens.dim(1)];
        self.tokens.peek(sequence * tokens.len(), &mut tokens)?;
        Ok(tokens)
    }
}
