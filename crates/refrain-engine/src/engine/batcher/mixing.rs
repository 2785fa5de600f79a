//! Mixed steps: a step computes a chunk of prompts beside its rows, so that both share the reading of the weights.
//!
//! They pay where prompts pile up. Otherwise a chunk of its own has more room for a prompt, and gives its first token
//! sooner.

use std::time::Duration;

use super::{Batcher, EngineOptions, Runner, Running};
use crate::Error;
use crate::engine::runner::NewPages;
use crate::prefill::SHORT_CHUNK;
use crate::step::StepExtras;

/// Fewest rows of a step that is mixed. With 64 rows, first tokens come twice as late for no more tokens a second.
const MIN_ROWS: usize = 96;
/// Fewest tokens of prompts that wait: two chunks.
const MIN_WAITING: usize = 2 * SHORT_CHUNK;
/// Steps in a row that would be mixed before the program is made. Making it takes as long as many steps.
const MAX_MISSED_STEPS: u32 = 16;

/// When steps are mixed.
pub(super) struct Mixing {
    min_rows: usize,
    min_waiting: usize,
    max_missed: u32,
    /// Longest time that a mixed step may be expected to take; `None` for no limit.
    max_time: Option<Duration>,
    /// Whether the next submit is to be mixed. It stays set if that was not possible.
    is_next: bool,
    /// Steps in a row for which the program was missing.
    missing: u32,
}

impl Mixing {
    /// Creates the rule of an engine.
    pub fn new(options: &EngineOptions) -> Mixing {
        Mixing {
            // The tokens of others must not change how a request is computed.
            min_rows: if options.deterministic { usize::MAX } else { MIN_ROWS },
            min_waiting: MIN_WAITING,
            max_missed: MAX_MISSED_STEPS,
            max_time: Some(options.target_gap),
            is_next: false,
            missing: 0,
        }
    }

    /// Mixes whenever it is possible.
    #[cfg(test)]
    pub fn mix_always(&mut self) {
        (self.min_rows, self.min_waiting) = (1, 1);
        (self.max_missed, self.max_time) = (0, None);
    }
}

impl<R: Runner> Batcher<R> {
    /// Decides whether the next submit computes tokens of prompts beside its rows. Then there is no chunk before it.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn choose_mixing(&mut self) -> Result<bool, Error> {
        let was_missed = std::mem::take(&mut self.mixing.is_next);
        if was_missed || !self.wants_mixing() {
            self.mixing.missing = 0;
            return Ok(false);
        }
        self.mixing.is_next = self.has_mixed_step()?;
        Ok(self.mixing.is_next)
    }

    /// Whether the next step pays if it is mixed.
    fn wants_mixing(&self) -> bool {
        let (rows, width) = (self.runner.rows().len(), self.runner.mixed_tokens());
        let decoding = || self.running().filter(|(_, running)| running.decodes());
        if rows < self.mixing.min_rows || width == 0 || decoding().next().is_none() {
            return false;
        }
        let plain = StepExtras::default();
        let extras = decoding().map(|(_, running)| running.request.extras());
        if !extras.chain([self.runner.extras()]).all(|extras| extras == plain) {
            return false;
        }
        let prompts = self.running().filter(|(_, running)| running.prefills());
        let first = prompts.min_by_key(|(_, running)| running.request.number);
        if first.is_none_or(|(_, running)| running.request.embeds) {
            return false;
        }
        let admitted: usize = self
            .mixable()
            .map(|(_, running)| running.request.reusable() - running.prefilled)
            .sum();
        let queued: usize = self.queue.iter().map(|request| request.tokens.len()).sum();
        let min_waiting = self.mixing.min_waiting;
        admitted >= width.min(min_waiting)
            && admitted + queued >= min_waiting
            && self.mixing.max_time.is_none_or(|max| {
                !self.step_times.measures_step()
                    && self
                        .step_times
                        .expected_of(rows + width)
                        .is_some_and(|time| time <= max)
            })
    }

    /// Whether there is a program that mixes the step in use. It is made once many steps in a row have missed it.
    fn has_mixed_step(&mut self) -> Result<bool, Error> {
        if self.runner.has_mixed_step() {
            return Ok(true);
        }
        self.mixing.missing += 1;
        if self.mixing.missing <= self.mixing.max_missed {
            return Ok(false);
        }
        self.poll_all()?;
        self.step_times.interrupt();
        match self.runner.prepare_mixed_step() {
            Err(error) if error.is_out_of_memory() => {
                self.mixing.min_rows = usize::MAX;
                Ok(false)
            }
            made => made.map(|()| true),
        }
    }

    /// Returns the requests whose prompts a mixed step may compute. Texts to embed have programs of their own.
    fn mixable(&self) -> impl Iterator<Item = (usize, &Running)> {
        self.running()
            .filter(|(_, running)| running.prefills() && !running.request.embeds)
    }

    /// Returns the slots whose prompts the next submit computes, and how many tokens of each: none unless it is mixed.
    pub(super) fn mixed_pieces(&mut self) -> Vec<(usize, usize)> {
        let can_mix = self.runner.extras() == StepExtras::default() && self.runner.has_mixed_step();
        if !self.mixing.is_next || !can_mix {
            return vec![];
        }
        self.mixing.is_next = false;
        let most = self.runner.mixed_tokens().min(self.backpressure.chunk());
        self.choose_pieces(self.mixable(), most)
    }

    /// Runs the step in use once together with pieces of prompts. Returns the number of the output, and the run.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn mix(&mut self, pages: NewPages, pieces: &[(usize, usize)]) -> Result<(u64, Vec<R::Run>), Error> {
        let piece = |&(slot, tokens): &(usize, usize)| {
            let running = self.slots[slot].as_ref().expect("chosen");
            running.piece(slot, tokens)
        };
        let chunk: Vec<_> = pieces.iter().map(piece).collect();
        let mixed = self.runner.mix(pages, &chunk)?;
        self.chunks += 1;
        self.counted.mixed_steps += 1;
        for &(slot, tokens) in pieces {
            self.cache_prefix(slot, tokens)?;
        }
        Ok(mixed)
    }
}
