//! Programs that requests will need are made while there are no requests, so that no request waits for them.

use std::time::Duration;

use super::{Batcher, EngineOptions, PAGE_SIZE, Runner};
use crate::Error;
use crate::engine::IDLE_BEFORE_WORK;
use crate::engine::calls::Restriction;
use crate::engine::row_count::{rounded, widths};
use crate::engine::speculation::DRAFT_WIDTHS;
use crate::prefill::{SHORT_CHUNK, class_sizes, next_chunk};
use crate::step::StepExtras;

/// Widest decode step that is made before it is needed: wider ones take memory that may never be needed.
const MAX_PREPARED_ROWS: usize = 32;

/// A program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NeededProgram {
    /// Decodes so many rows.
    Step(usize),
    /// Computes so many tokens of a prompt.
    Chunk(usize),
    /// Verifies so many tokens of a draft in one row.
    Drafts(usize),
    /// Copies what requests share of a page.
    Fork,
}

/// The programs that are still to be made.
pub(super) struct Preparation {
    /// The last first.
    programs: Vec<NeededProgram>,
    /// Rows up to which steps are made or on the list.
    widest: usize,
    /// Whether any are made ahead.
    enabled: bool,
}

impl Preparation {
    /// Returns the programs that requests without optional parts need, unless none are made ahead.
    pub fn of(options: &EngineOptions) -> Preparation {
        if !options.prepares {
            return Preparation {
                programs: vec![],
                widest: 0,
                enabled: false,
            };
        }
        let most = rounded(options.streams.max(1));
        let fewest = if options.deterministic { most } else { 1 };
        let steps: Vec<usize> = widths()
            .take_while(|&rows| rows <= most.min(MAX_PREPARED_ROWS))
            .filter(|&rows| rows >= fewest)
            .collect();
        let most_chunk = SHORT_CHUNK.min(options.context);
        let chunks = class_sizes()
            .take_while(|&tokens| tokens <= most_chunk)
            .map(NeededProgram::Chunk);
        // A single request comes first, and most prompts start with long chunks.
        let mut all: Vec<NeededProgram> = steps.into_iter().rev().map(NeededProgram::Step).chain(chunks).collect();
        if options.prefix_cache && !options.deterministic {
            all.push(NeededProgram::Fork);
        }
        if let Some(first) = all.iter().position(|program| *program == NeededProgram::Step(1)) {
            let first = all.remove(first);
            all.push(first);
        }
        Preparation {
            programs: all,
            widest: MAX_PREPARED_ROWS,
            enabled: true,
        }
    }

    /// Adds the programs that a single request with drafts needs, after all others.
    pub fn with_drafts(mut self) -> Preparation {
        if self.enabled {
            self.programs.splice(0..0, DRAFT_WIDTHS.map(NeededProgram::Drafts));
        }
        self
    }

    /// Returns how many are still to be made.
    pub fn left(&self) -> usize {
        self.programs.len()
    }

    /// Notes that a step of so many rows is used. Once such a burst is over, somewhat narrower steps are made for the next
    /// one: they take as much memory as two such steps.
    pub fn used(&mut self, rows: usize) {
        if !self.enabled {
            return;
        }
        let between = widths().skip_while(|&narrower| narrower <= self.widest);
        let mut between: Vec<usize> = between.take_while(|&narrower| narrower < rows).collect();
        let mut left = 2 * rows;
        while let Some(narrower) = between.pop().filter(|narrower| *narrower <= left) {
            left -= narrower;
            self.programs.push(NeededProgram::Step(narrower));
        }
        self.widest = self.widest.max(rows);
    }
}

impl<R: Runner> Batcher<R> {
    /// Returns how long there must be no request until there is work; `None` if there is none.
    pub fn idle_wait(&self) -> Option<Duration> {
        if self.preparation.left() == 0 {
            self.wait_to_store()
        } else {
            Some(IDLE_BEFORE_WORK)
        }
    }

    /// Makes the next program, or stores a cached page once all are made.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn work_while_idle(&mut self) -> Result<(), Error> {
        if self.preparation.left() == 0 {
            self.store_next()?;
        } else {
            self.prepare_next();
        }
        Ok(())
    }

    /// Makes the programs that a request needs of whose tokens `cached` are computed, and `new` are not.
    ///
    /// # Errors
    /// If there is too little memory, or the device fails.
    pub fn prepare_request(&mut self, (cached, new): (usize, usize), restriction: Restriction) -> Result<(), Error> {
        if self.pool.caches_prefixes() && cached > 0 {
            match self.runner.prepare_fork() {
                // What is shared of a page is computed instead.
                Err(error) if error.is_out_of_memory() => {}
                prepared => prepared?,
            }
        }
        // The decode step sees the last token.
        let end = cached
            .saturating_add(new)
            .min(self.pages_each * PAGE_SIZE)
            .saturating_sub(1);
        let mut at = cached;
        while at < end {
            // Recurrent states are saved where the last page ends.
            let saved = end / PAGE_SIZE * PAGE_SIZE;
            let next = if self.pool.saves_states() && at < saved {
                saved
            } else {
                end
            };
            let most = self.runner.max_chunk_tokens(self.backpressure.chunk(), at);
            let chunk = self.runner.fit_chunk(next_chunk(next - at, most), 0)?;
            self.runner.prepare_chunk(chunk)?;
            at += chunk;
        }
        let rows = self.first_rows();
        let plain = StepExtras::default();
        if restriction != Restriction::Always {
            self.runner.prepare_step((rows, plain))?;
        }
        if restriction != Restriction::Never {
            self.runner
                .prepare_step((rows, StepExtras { allowed: true, ..plain }))?;
        }
        if self.speculator.is_none() || restriction == Restriction::Always {
            return Ok(());
        }
        let draft_tokens = DRAFT_WIDTHS[0];
        match self.runner.prepare_step((1, StepExtras { draft_tokens, ..plain })) {
            // The request goes on without drafts.
            Err(error) if error.is_out_of_memory() => Ok(()),
            prepared => prepared,
        }
    }

    /// Returns the rows of the step for a single request.
    fn first_rows(&self) -> usize {
        if self.deterministic {
            rounded(self.slots.len())
        } else {
            1
        }
    }

    /// Makes the next program. After a failure, no more are made: the request that needs one reports why.
    fn prepare_next(&mut self) {
        let made = match self.preparation.programs.pop() {
            None => return,
            Some(NeededProgram::Step(rows)) => self.runner.prepare_step((rows, StepExtras::default())),
            Some(NeededProgram::Chunk(tokens)) => self.runner.prepare_chunk(tokens),
            Some(NeededProgram::Fork) => self.runner.prepare_fork(),
            Some(NeededProgram::Drafts(draft_tokens)) => {
                let extras = StepExtras {
                    draft_tokens,
                    ..StepExtras::default()
                };
                self.runner.prepare_step((1, extras))
            }
        };
        if made.is_err() {
            self.preparation.programs.clear();
            self.runner.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::batcher::test_support::model;

    #[test]
    fn compiles_programs_ahead_most_likely_first() {
        let options = EngineOptions {
            streams: 3,
            context: 100,
            ..EngineOptions::default()
        };
        let order: Vec<NeededProgram> = Preparation::of(&options).programs.into_iter().rev().collect();
        use NeededProgram::{Chunk, Fork, Step};
        let chunks = [96, 64, 32, 16, 8, 4, 2, 1].map(Chunk);
        assert_eq!(order, [&[Step(1), Fork][..], &chunks, &[Step(2), Step(4)]].concat());
        let deterministic = EngineOptions {
            deterministic: true,
            ..options.clone()
        };
        assert_eq!(Preparation::of(&deterministic).programs.first(), Some(&Step(4)));
        let drafts = Preparation::of(&options).with_drafts().programs;
        assert_eq!(
            drafts[..3],
            [NeededProgram::Drafts(3), NeededProgram::Drafts(7), Step(4)]
        );

        let mut preparation = Preparation::of(&options);
        preparation.programs.clear();
        [32, 64, 48].into_iter().for_each(|rows| preparation.used(rows));
        assert_eq!(preparation.programs, [Step(56), Step(48)]);

        let never = EngineOptions {
            prepares: false,
            ..options.clone()
        };
        let mut never = Preparation::of(&never).with_drafts();
        never.used(64);
        assert_eq!(never.left(), 0);

        let mut batcher = Batcher::new(&model(), &options).expect("fits");
        let mut steps = 0;
        while batcher.idle_wait().is_some() {
            assert_eq!(batcher.load().programs_to_make, 12 - steps);
            batcher.step().expect("prepares");
            steps += 1;
        }
        assert_eq!(batcher.load().programs_to_make, 0);
        assert_eq!((steps, batcher.runner.traced()), (12, 8));
        assert!(batcher.runner.rows().is_empty(), "none is in use");
    }
}
