//! Rows: each decoding request has a row of the step in use.

use super::{Batcher, Runner};
use crate::Error;
use crate::engine::request::EngineEvent;
use crate::engine::row_count::rounded;
use crate::engine::speculation::is_allowed;
use crate::engine::steps::RowRequest;
use crate::step::StepExtras;

impl<R: Runner> Batcher<R> {
    /// Writes the masks of constrained requests, once other threads have computed them. Requests that cannot continue
    /// fail and leave their rows.
    pub(super) fn write_masks(&mut self) -> Result<(), Error> {
        let deadline = self.mask_threads.deadline();
        for (row, slot_id) in self.runner.rows().to_vec().into_iter().enumerate() {
            let Some((slot, _)) = slot_id else { continue };
            let running = self.slots[slot].as_mut().expect("admitted");
            let Some(constraint) = &mut running.request.constraint else {
                continue;
            };
            match constraint.allowed(&mut self.mask_threads, deadline) {
                Ok(mask) => self.runner.allow(row, mask),
                Err(why) => self.end(slot, EngineEvent::Failed(Error::Constraint(why))),
            }
        }
        Ok(())
    }

    /// Gives decoding requests rows of a step that verifies so many tokens of a draft in each, if it may have so many.
    /// Returns whether there are any.
    pub(super) fn assign_rows(&mut self, mut draft_tokens: usize) -> Result<bool, Error> {
        loop {
            let decoding = self.running().filter(|(_, running)| running.decodes()).count();
            let extras = self.running().filter(|(_, running)| running.decodes());
            let extras = extras.map(|(_, running)| running.request.extras());
            let extras = extras.fold(StepExtras::default(), StepExtras::union);
            if decoding == 0 {
                return Ok(false);
            }
            let kind_of = |rows: usize| {
                let has_drafts = !extras.allowed && is_allowed(rows, draft_tokens);
                let draft_tokens = if has_drafts { draft_tokens } else { 0 };
                (rows, StepExtras { draft_tokens, ..extras })
            };
            let now = self.runner.rows().len();
            let rows = if self.deterministic {
                rounded(self.slots.len())
            } else {
                let most = self.backpressure.streams(self.slots.len());
                let soon = (self.running().count() + self.queue.len()).min(most);
                let runner = &self.runner;
                let is_made = |rows| runner.has_step(kind_of(rows));
                self.row_count.choose(now, decoding, soon, is_made)
            };
            let (before, next) = ((now, self.runner.extras()), kind_of(rows));
            if next == before {
                break;
            }
            if !self.in_flight.is_empty() {
                self.poll_all()?;
                continue;
            }
            match self.runner.use_step(next) {
                // Without drafts, nothing else has to make room.
                Err(error) if error.is_out_of_memory() && next.1.draft_tokens > 0 => {
                    (draft_tokens, self.speculator) = (0, None);
                    continue;
                }
                used => used?,
            }
            self.preparation.used(rows);
            let pace = self.paces.remove(&next).unwrap_or_default();
            self.paces.insert(before, std::mem::replace(&mut self.pace, pace));
            self.step_times.interrupt();
            break;
        }
        for (slot, running) in self.slots.iter().enumerate() {
            let Some(running) = running.as_ref().filter(|running| running.decodes()) else {
                continue;
            };
            let slot_id = running.slot_id(slot);
            if !self.runner.rows().contains(&Some(slot_id)) {
                let request = &running.request;
                self.runner.join(&RowRequest {
                    slot_id,
                    tokens: &request.tokens,
                    settings: &request.settings,
                    options: &request.options,
                })?;
            }
        }
        Ok(true)
    }
}
