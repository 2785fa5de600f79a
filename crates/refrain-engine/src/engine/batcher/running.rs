//! A request that is being computed.

use std::time::Instant;

use super::drafts::TextDrafts;
use super::text_states::TextStates;
use crate::engine::pages::NodeId;
use crate::engine::request::Waiting;
use crate::engine::steps::SlotId;

/// A request with a slot and pages.
pub(super) struct Running {
    pub request: Waiting,
    pub pages: Vec<u32>,
    /// Tokens whose keys and values are computed or submitted.
    pub prefilled: usize,
    /// Numbers of tokens after which recurrent states are saved, if the model has any.
    pub save_states_at: Vec<usize>,
    /// The last cached page of its tokens in the prefix tree.
    pub node: Option<NodeId>,
    pub text_states: TextStates,
    pub drafts: TextDrafts,
    /// Tokens at admission, and how many of them were cached.
    pub prompt: usize,
    pub cached: usize,
    pub admitted: Instant,
    /// Runs in flight that continue it.
    pub ahead: usize,
    /// Those of them whose tokens are dropped: they were sampled before its constraint began to restrict them.
    pub dropped: usize,
    /// Pages that the device knows.
    pub pages_written: usize,
}

impl Running {
    /// Whether it has tokens to compute of which no outputs are needed.
    pub fn prefills(&self) -> bool {
        self.prefilled < self.request.reusable()
    }

    /// Whether all tokens but the last are computed, so that the request decodes.
    pub fn decodes(&self) -> bool {
        self.request.prompt_outputs.is_none() && !self.prefills()
    }

    pub fn slot_id(&self, slot: usize) -> SlotId {
        (slot, self.request.number)
    }
}
