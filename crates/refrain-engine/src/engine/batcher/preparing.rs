//! Programs that requests will need are made while nobody asks: nobody waits for them then.

use super::{Batcher, EngineOptions};
use crate::prefill::{SHORT_CHUNK, class_sizes};
use crate::step::StepExtras;

/// The rows up to which steps are made before they are needed; wider ones take memory that may never be.
const MAX_PREPARED_ROWS: usize = 16;

/// A program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NeededProgram {
    /// Decodes so many rows.
    Step(usize),
    /// Takes in so many tokens.
    Chunk(usize),
}

/// What is still to be made, the last first.
pub(super) struct Preparation(Vec<NeededProgram>);

impl Preparation {
    /// All that requests of an engine need that ask for nothing special.
    pub fn of(options: &EngineOptions) -> Preparation {
        let most = options.streams.max(1).next_power_of_two();
        let least = if options.deterministic { most } else { 1 };
        let powers = (0..usize::BITS).map(|bit| 1usize << bit);
        let steps = powers.filter(|rows| (least..=most.min(MAX_PREPARED_ROWS)).contains(rows));
        let most_chunk = SHORT_CHUNK.min(options.context);
        let chunks = class_sizes()
            .take_while(|&tokens| tokens <= most_chunk)
            .map(NeededProgram::Chunk);
        // One text alone comes first, and most begin with wide chunks.
        let mut all: Vec<NeededProgram> = steps.rev().map(NeededProgram::Step).chain(chunks).collect();
        if let Some(first) = all.iter().position(|program| *program == NeededProgram::Step(1)) {
            let first = all.remove(first);
            all.push(first);
        }
        Preparation(all)
    }
}

impl Batcher {
    /// Whether all is made.
    pub fn is_prepared(&self) -> bool {
        self.preparation.0.is_empty()
    }

    /// Makes the next program. Where that fails, no more are made: whoever needs one hears why.
    pub(super) fn prepare_next(&mut self) {
        let (model, states) = (&self.model, &self.states);
        let made = match self.preparation.0.pop() {
            None => return,
            Some(NeededProgram::Step(rows)) => {
                self.steps
                    .prepare((rows, StepExtras::default()), model, states, &self.table)
            }
            Some(NeededProgram::Chunk(tokens)) => self.prompts.prepare(model, states, tokens, 0),
        };
        if made.is_err() {
            self.preparation.0.clear();
            self.steps.release();
            self.prompts.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use refrain::Device;
    use refrain_models::Checkpoint;

    use super::*;
    use crate::{LoadOptions, Model};

    #[test]
    fn compiles_programs_ahead_most_likely_first() {
        let options = EngineOptions {
            streams: 3,
            context: 100,
            ..EngineOptions::default()
        };
        let order: Vec<NeededProgram> = Preparation::of(&options).0.into_iter().rev().collect();
        use NeededProgram::{Chunk, Step};
        let chunks = [96, 64, 32, 16, 8, 4, 2, 1].map(Chunk);
        assert_eq!(order, [&[Step(1)][..], &chunks, &[Step(2), Step(4)]].concat());
        let deterministic = EngineOptions {
            deterministic: true,
            ..options
        };
        assert_eq!(Preparation::of(&deterministic).0.first(), Some(&Step(4)));

        let checkpoint = Checkpoint::synthetic("tiny:f32").expect("a checkpoint");
        let model = Model::load(&checkpoint, &Device::cpu(), &LoadOptions::default()).expect("loads");
        let mut batcher = Batcher::new(&model, &options).expect("fits");
        let mut steps = 0;
        while !batcher.is_prepared() {
            batcher.step().expect("prepares");
            steps += 1;
        }
        assert_eq!((steps, batcher.prompts.traced()), (11, 8));
        assert!(batcher.steps.rows().is_empty(), "none is in use");
    }
}
