//! The device state of a decode step, and what reads and advances it: batches and sampling.

use refrain::{Array, DType, Device, Error};
use refrain_lm::{Sequences, sample};
use refrain_models::{Batch, BatchPart, Pages};

use super::mtp::{HeadDrafts, HeadTrace};
use super::verifying::{DraftStates, VerifiedTokens};
use super::{Program, RING, SlotStates, StepExtras, StepOptions};
use crate::logprob::LogprobRing;
use crate::masks::MaskStates;

/// The device state of a decode step for S sequences, beside the layers' own.
#[derive(Clone)]
pub(crate) struct DecodeState {
    /// u32 `[S]`: the token that the next run sees.
    pub tokens: Array,
    /// i32 `[S]`: its position; negative once the sequence is finished.
    pub positions: Array,
    /// u32 `[S]`: its slot, and its row of `pages`; 0, 1 … initially.
    pub sequences: Array,
    /// u32 `[N, P]`: pages of the KV cache.
    pub pages: Array,
    /// What its sequences keep at their slots.
    pub slots: SlotStates,
    /// u32 `[S, 1 + RING]`: number of outputs, and the last of them for the host.
    pub outbox: Array,
    /// Masks and logits between the two programs of a step with masks.
    pub masks: Option<MaskStates>,
    /// Log-probabilities of the tokens of the last runs.
    pub logprobs: Option<LogprobRing>,
    /// The drafts that the next run of a step with drafts verifies.
    pub drafts: Option<DraftStates>,
    /// What the multi-token prediction head drafted in the last run of such a step.
    pub head_drafts: Option<HeadDrafts>,
}

impl DecodeState {
    pub(super) fn new(device: &Device, sequences: usize, slots: &SlotStates, table: &Array) -> Result<Self, Error> {
        let state = |dtype, shape: &[usize]| Array::state(device, dtype, shape);
        let s = sequences;
        let control = DecodeState {
            tokens: state(DType::U32, &[s])?,
            positions: state(DType::I32, &[s])?,
            sequences: state(DType::U32, &[s])?,
            pages: table.clone(),
            slots: slots.clone(),
            outbox: Array::mapped_state(device, DType::U32, &[s, 1 + RING])?,
            masks: None,
            logprobs: None,
            drafts: None,
            head_drafts: None,
        };
        let numbers: Vec<u32> = (0..s as u32).collect();
        control.sequences.write_state(0, bytemuck::cast_slice(&numbers))?;
        Ok(control)
    }

    /// Adds the state that `extras` need.
    pub(super) fn allocate_for(mut self, extras: StepExtras, masks: Option<&MaskStates>) -> Result<Self, Error> {
        let (device, sequences) = (self.tokens.device().clone(), self.tokens.count());
        let vocabulary = self.slots.counts.dim(1);
        if extras.allowed && self.masks.is_none() {
            self.masks = Some(match masks {
                Some(masks) => masks.clone(),
                None => MaskStates::new(&device, sequences, vocabulary)?,
            });
        }
        if extras.logprobs && self.logprobs.is_none() {
            self.logprobs = Some(LogprobRing::new(&device, sequences, vocabulary)?);
        }
        if extras.draft_tokens > 0 {
            self.drafts = Some(DraftStates::new(&device, sequences, extras.draft_tokens)?);
        }
        Ok(self)
    }

    /// Returns the current tokens, and in a step with drafts these behind them.
    pub(super) fn batch(&self, pages: Pages, extras: StepExtras) -> Batch {
        let [tokens, positions, sequences] = match &self.drafts {
            Some(drafts) if extras.draft_tokens > 0 => drafts.append_to(self),
            _ => [&self.tokens, &self.positions, &self.sequences].map(Array::clone),
        };
        Batch {
            tokens,
            parts: vec![BatchPart {
                positions,
                sequences,
                decode: extras.draft_tokens == 0,
            }],
            pages: self.pages.clone(),
            logits_indices: None,
            page_size: pages.size,
            context: pages.context,
        }
    }

    /// Returns the states that sampling advances.
    pub(super) fn sampled_sequences(&self) -> Sequences {
        Sequences {
            tokens: self.tokens.clone(),
            positions: self.positions.clone(),
            history: self.slots.history.clone(),
            counts: self.slots.counts.clone(),
            outbox: self.outbox.clone(),
            slots: self.sequences.clone(),
        }
    }

    /// Samples a token of each sequence. Returns the outputs, and the program before them in a step with masks.
    pub(super) fn sample(
        &self,
        logits: &Array,
        extras: StepExtras,
        options: &StepOptions,
    ) -> Result<(Option<Program>, Vec<Array>), Error> {
        let masks = self.masks.as_ref().filter(|_| extras.allowed);
        let (forward, logits, masked_logits) = match masks {
            None => (None, logits.clone(), logits.clone()),
            Some(masks) => {
                let forward = Program::trace(&[masks.keep(logits)], options)?;
                let (logits, masked) = masks.masked(self.tokens.count());
                (Some(forward), logits, masked)
            }
        };
        let (reported, next) = sample(
            &masked_logits,
            &self.slots.settings,
            &self.sampled_sequences(),
            Some(&self.slots.bias),
        );
        let ring = self.logprob_ring(extras);
        let kept = ring.map(|ring| ring.keep(&output_counts(&next), &logits, &reported).rows);
        // Logits are an output so that they can be compared and inspected.
        Ok((forward, [reported, logits].into_iter().chain(kept).collect()))
    }

    /// Has the head draft tokens behind the verified ones, for the next run. Returns the state that keeps them.
    pub(super) fn draft_by(
        &mut self,
        head: &mut HeadTrace<'_>,
        batch: &Batch,
        hidden: &Array,
        verified: &VerifiedTokens,
        extras: StepExtras,
    ) -> Result<Array, Error> {
        let kept = HeadDrafts::new(hidden.device(), self.tokens.count(), extras.draft_tokens)?;
        let drafts = head.draft(batch, hidden, verified, self, extras.draft_tokens);
        let next = kept.keep(&drafts);
        self.head_drafts = Some(kept);
        Ok(next)
    }

    /// Returns what stores log-probabilities, in a step that does.
    pub(super) fn logprob_ring(&self, extras: StepExtras) -> Option<&LogprobRing> {
        self.logprobs.as_ref().filter(|_| extras.logprobs)
    }
}

/// Returns the number of outputs of each sequence so far, u32 `[S]`.
pub(super) fn output_counts(sequences: &Sequences) -> Array {
    sequences.outbox.slice(-1, 0, 1).reshape(&[-1])
}
