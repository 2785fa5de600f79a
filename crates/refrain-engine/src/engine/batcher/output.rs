//! Outputs of the runs of a batch.

use std::time::Instant;

use refrain_lm::Logprobs;
use refrain_lm::sample::{FINISHED, NOT_A_NUMBER};

use super::{Batcher, InFlight, Runner, SlotId, Waiting};
use crate::engine::request::{EngineEvent, PickedToken};
use crate::engine::speculation::Draft;
use crate::{Error, Finish};

impl<R: Runner> Batcher<R> {
    /// Waits for all submits and reports their outputs.
    pub(super) fn poll_all(&mut self) -> Result<(), Error> {
        while !self.in_flight.is_empty() {
            self.poll()?;
        }
        Ok(())
    }

    /// Waits for the oldest submit and reports its outputs.
    pub(super) fn poll(&mut self) -> Result<(), Error> {
        let Some(polled) = self.in_flight.pop_front() else {
            return Ok(());
        };
        let none = Draft::default();
        for (number, run) in polled.runs.iter().enumerate() {
            let chunk = polled.chunk.filter(|_| number == 0);
            let prompts = chunk.unwrap_or(polled.mixed);
            if prompts > 0 {
                self.pace.delay(self.step_times.of_chunk(prompts));
            }
            let polls = self.runner.wait(run, &self.pace)?;
            let now = self.runner.now();
            if prompts > 0 {
                self.pace.done_untimed(now);
            } else {
                self.pace.done(polls, now);
            }
            if polled.mixed > 0 {
                self.step_times.ended_mixed(now);
            } else {
                self.step_times.ended(chunk, now);
            }
            self.measure(&polled, now);
            let before = self.counted.generated_tokens;
            for (row, slot_id) in polled.rows.iter().enumerate() {
                if let Some(slot_id) = *slot_id
                    && self.is_admitted(slot_id)
                {
                    let draft = polled.drafts.get(row).unwrap_or(&none);
                    self.take(slot_id, polled.first + number as u64, row, draft)?;
                }
            }
            self.counted.decode_steps += u64::from(self.counted.generated_tokens > before);
        }
        Ok(())
    }

    fn is_admitted(&self, (slot, number): SlotId) -> bool {
        self.slots[slot].as_ref().is_some_and(|r| r.request.number == number)
    }

    /// Notes how long a run took that has just ended, for the choice of drafts.
    fn measure(&mut self, run: &InFlight<R::Run>, now: Instant) {
        let begun = self.last_end.map_or(run.begun, |end| end.max(run.begun));
        self.last_end = Some(now);
        let extras = self.runner.extras();
        if let Some(speculator) = &mut self.speculator
            && run.chunk.is_none()
            && run.mixed == 0
            && !extras.allowed
        {
            // Runs ahead are often seen to be done together, so a mean of many counts.
            let mean = self.pace.step().filter(|_| extras.draft_tokens == 0);
            let took = mean.unwrap_or_else(|| now.saturating_duration_since(begun));
            speculator.policy.measured((run.rows.len(), extras.draft_tokens), took);
        }
    }

    /// Takes the outputs of a run for a request in a row: its next token, and one behind each token of its draft that is
    /// accepted. The first of these outputs is number `first`.
    fn take(&mut self, slot_id: SlotId, first: u64, row: usize, draft: &Draft) -> Result<(), Error> {
        let slot = slot_id.0;
        let running = self.slots[slot].as_mut().expect("admitted");
        running.ahead -= 1;
        if running.dropped > 0 {
            running.dropped -= 1;
            self.resume_restricted(slot);
            return Ok(());
        }
        let guesses = draft.tokens.len();
        self.counted.drafts += u64::from(guesses > 0);
        self.counted.draft_tokens += guesses as u64;
        for (index, output) in (0..=guesses).zip(first..) {
            let Some(token) = self.take_token(slot, output, row)? else {
                return Ok(());
            };
            if index == guesses {
                break;
            }
            let is_accepted = draft.accepts(index, token);
            self.verified(slot, index, is_accepted);
            if !is_accepted {
                break;
            }
            let running = self.slots[slot].as_ref().expect("admitted");
            if running.request.extras().allowed {
                // The rest was sampled before this token restricted it.
                self.resume_from_tokens(slot);
                return Ok(());
            }
        }
        if self.runner.extras().draft_tokens > 0 {
            self.save_verified_states(slot)?;
            self.offer_drafts(slot, row)?;
        }
        Ok(())
    }

    /// Takes an output of a run for a request in a row. Returns the token if the request goes on.
    fn take_token(&mut self, slot: usize, output: u64, row: usize) -> Result<Option<u32>, Error> {
        let word = self.runner.reported(output, row)?;
        let running = self.slots[slot].as_mut().expect("admitted");
        let request = &mut running.request;
        // Device reads that may fail come before the request changes: it may have to continue from here.
        let mut logprobs = None;
        if let Some(top_logprobs) = request.top_logprobs {
            logprobs = self.runner.logprobs(output, row)?.map(Box::new);
            if let Some(logprobs) = &mut logprobs {
                logprobs.top.truncate(top_logprobs);
            }
        }
        let position = request.tokens.len() - 1;
        let end = match word {
            NOT_A_NUMBER => EngineEvent::Failed(Error::NotANumber { position }),
            // The host ends a text where the device does; this is in case only the device knows why.
            FINISHED => EngineEvent::End(request.at_limit),
            id => {
                running.prefilled += 1;
                if running.prefilled == running.prompt {
                    self.measure_prompt(slot);
                }
                let Some(end) = self.push(slot, id, logprobs) else {
                    self.cache_text_states(slot);
                    self.continue_restricted(slot);
                    return Ok(Some(id));
                };
                end
            }
        };
        self.end(slot, end);
        Ok(None)
    }

    /// Appends a token to a request and reports it. Returns how the request ends with it, if it does.
    pub(super) fn push(&mut self, slot: usize, id: u32, logprobs: Option<Box<Logprobs>>) -> Option<EngineEvent> {
        self.counted.generated_tokens += 1;
        let request = &mut self.slots[slot].as_mut().expect("admitted").request;
        if request.options.stop_ids.contains(&id) {
            return Some(EngineEvent::End(Finish::Stop));
        }
        request.tokens.push(id);
        request.emit(EngineEvent::Token(PickedToken { id, logprobs }));
        let accepted = request.constraint.as_mut().map(|constraint| constraint.accept(id));
        match accepted.transpose() {
            Err(why) => Some(EngineEvent::Failed(Error::Constraint(why))),
            Ok(Some(true)) => Some(EngineEvent::End(Finish::Stop)),
            Ok(_) if request.tokens.len() < request.limit => None,
            Ok(_) => Some(EngineEvent::End(request.at_limit)),
        }
    }

    /// Has the mask of a request's next token computed. Runs in flight that do not know it are dropped.
    pub(super) fn continue_restricted(&mut self, slot: usize) {
        let running = self.slots[slot].as_mut().expect("admitted");
        let Some(constraint) = &mut running.request.constraint else {
            return;
        };
        constraint.compute_mask(&mut self.mask_threads);
        running.dropped = if constraint.restricts() { running.ahead } else { 0 };
    }

    /// Resumes a request after the last token that was kept, once all tokens that it drops have arrived.
    fn resume_restricted(&mut self, slot: usize) {
        if self.slots[slot].as_ref().is_some_and(|running| running.dropped == 0) {
            self.resume_from_tokens(slot);
        }
    }

    /// Resumes a request after its last token, although the device has gone further. The step that applies its
    /// constraint is another one, whose rows begin with the requests' tokens. Recurrent states are computed again.
    fn resume_from_tokens(&mut self, slot: usize) {
        let running = self.slots[slot].as_ref().expect("admitted");
        // The dropped tokens were counted.
        self.runner.forget(running.slot_id(slot));
        if self.runner.is_recurrent()
            && let Some(request) = self.vacate(slot)
        {
            self.queue.push_front(request);
        }
    }

    /// Notes how long the text in a slot became, which ends now.
    pub(super) fn note_length(&mut self, slot: usize) {
        if let Some(running) = &self.slots[slot]
            && !running.request.embeds
            && running.request.limit > running.prompt
        {
            let (generated, limit) = (running.request.tokens.len() - running.prompt, running.request.limit);
            self.growth.ended(generated, limit.saturating_sub(running.prompt));
        }
    }

    /// Ends the request in a slot with its last event.
    pub(super) fn end(&mut self, slot: usize, last: EngineEvent) {
        self.note_length(slot);
        if let Some(mut request) = self.vacate(slot) {
            self.backpressure.ended();
            request.emit(last);
        }
    }

    /// Frees a slot and its row. What its pages hold is cached.
    pub(super) fn vacate(&mut self, slot: usize) -> Option<Waiting> {
        self.slots[slot].as_ref()?;
        self.cache_text_states(slot);
        let running = self.slots[slot].take()?;
        self.drop_text_states(&running);
        self.runner.leave(running.slot_id(slot));
        let held = running.prefilled.min(running.request.tokens.len() - 1);
        let tokens = &running.request.tokens[..held];
        let last = self.pool.insert(tokens, &running.pages, running.node);
        self.pool.insert_part(tokens, &running.pages, last);
        self.pool.give_back(&running.pages);
        Some(running.request)
    }
}
