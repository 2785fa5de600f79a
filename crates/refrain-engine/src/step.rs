//! The decode step: one traced program that takes the current token of each sequence to the next one.
//!
//! Everything that changes from token to token lies in device memory. The host has nothing to do between two runs,
//! and the recorded commands stay the same from the first token to the last.

mod extras;
mod mixed;
mod mtp;
mod state;
mod verifying;

use refrain::{
    Array, DType, Device, Difference, Error, Executor, Function, LowerOptions, Run, SharedScratch, Tape, Write,
};
use refrain_lm::sample::{Settings, TooManyStopIds};
use refrain_models::{LayerState, Pages};

pub(crate) use self::extras::StepExtras;
use self::mixed::MixedStep;
pub(crate) use self::mtp::HeadTrace;
pub(crate) use self::state::DecodeState;
use crate::Model;
use crate::masks::MaskStates;

/// Tokens that the device keeps for the host to read.
const RING: usize = 256;

/// What sampling keeps of the sequences in N slots. Decode steps with different numbers of rows share it.
#[derive(Clone)]
pub(crate) struct SlotStates {
    /// u32 `[N, WORDS]`: sampling settings.
    pub settings: Array,
    /// u32 `[N, C + 1]`: tokens by position.
    pub history: Array,
    /// u32 `[N, V]`: occurrences of each token among the recent ones.
    pub counts: Array,
    /// f32 `[N, V]`: added to the logits if the settings ask for it.
    pub bias: Array,
}

impl SlotStates {
    /// Allocates the states of `slots` sequences of up to `context` tokens.
    ///
    /// # Errors
    /// If there is too little memory.
    pub fn new(device: &Device, slots: usize, vocabulary: usize, context: usize) -> Result<SlotStates, Error> {
        let state = |dtype, width| Array::state(device, dtype, &[slots, width]);
        Ok(SlotStates {
            settings: state(DType::U32, Settings::WORDS)?,
            history: state(DType::U32, context + 1)?,
            counts: state(DType::U32, vocabulary)?,
            bias: state(DType::F32, vocabulary)?,
        })
    }

    /// Returns the bytes per slot.
    pub fn bytes_per_slot(vocabulary: usize, context: usize) -> u64 {
        4 * (Settings::WORDS + context + 1 + 2 * vocabulary) as u64
    }
}

/// How a decode step is compiled.
#[derive(Clone, Default)]
pub(crate) struct StepOptions {
    pub lower: LowerOptions,
    /// Memory for intermediate results that other programs share.
    pub scratch: Option<SharedScratch>,
}

/// A traced program and its tape, once it is recorded.
struct Program {
    function: Function,
    tape: Option<Tape>,
}

impl Program {
    fn trace(outputs: &[Array], options: &StepOptions) -> Result<Program, Error> {
        let function = Function::trace_with(&outputs.iter().collect::<Vec<_>>(), options.lower)?;
        Ok(Program {
            function: match &options.scratch {
                Some(scratch) => function.with_scratch(scratch),
                None => function,
            },
            tape: None,
        })
    }

    /// Returns the tape for an executor, recorded on first use or after another executor.
    fn tape(&mut self, executor: &'static dyn Executor) -> Result<&Tape, Error> {
        if self.tape.as_ref().is_none_or(|tape| tape.executor() != executor) {
            self.tape = Some(self.function.tape(executor)?);
        }
        Ok(self.tape.as_ref().expect("just made"))
    }
}

/// A traced decode step, with its state. With masks it is two programs: sampling needs the mask, and what comes before
/// does not wait for it.
pub(crate) struct DecodeStep {
    pub control: DecodeState,
    /// Computes the logits, in a step with masks.
    forward: Option<Program>,
    /// Samples, and computes the logits in a step without masks.
    program: Program,
    /// The outputs of the program that samples.
    outputs: Vec<Array>,
    /// The program that also computes a chunk of prompts, once it is made.
    mixed: Option<MixedStep>,
    options: StepOptions,
    /// Number of outputs so far: the next index of the outbox. A run has one, and another for each token of a draft.
    reports: u64,
    /// Its optional parts.
    pub extras: StepExtras,
}

/// Creates a page table for `sequences` sequences, u32 `[N, P]`.
pub(crate) fn page_table(device: &Device, sequences: usize, pages: Pages) -> Result<Array, Error> {
    Array::state(device, DType::U32, &[sequences, pages.per_sequence])
}

impl DecodeStep {
    /// Traces the step of `model` over `states`, for `sequences` sequences in `slots` with their pages in `table`.
    pub fn trace(
        model: &Model,
        states: &[LayerState],
        (sequences, slots): (usize, &SlotStates),
        table: &Array,
        pages: Pages,
        options: StepOptions,
    ) -> Result<DecodeStep, Error> {
        let control = DecodeState::new(model.device(), sequences, slots, table)?;
        DecodeStep::build(control, model, states, pages, StepExtras::default(), options)
    }

    /// Traces a step with `extras` over the state of this one, with `masks` or its own. Only one of both may be in flight.
    pub fn trace_with_extras(
        &self,
        model: &Model,
        states: &[LayerState],
        pages: Pages,
        extras: StepExtras,
        masks: Option<&MaskStates>,
    ) -> Result<DecodeStep, Error> {
        let control = self.control.clone().allocate_for(extras, masks)?;
        DecodeStep::build(control, model, states, pages, extras, self.options.clone())
    }

    fn build(
        mut control: DecodeState,
        model: &Model,
        states: &[LayerState],
        pages: Pages,
        extras: StepExtras,
        options: StepOptions,
    ) -> Result<DecodeStep, Error> {
        let batch = control.batch(pages, extras);
        let mut states = states.to_vec();
        let verifies = extras.draft_tokens > 0;
        if verifies {
            states.iter_mut().for_each(LayerState::defer_updates);
        }
        let mut head = HeadTrace::take(model, &mut states);
        let hidden = model.decoder().hidden(&batch, &mut states);
        let logits = model.decoder().logits(&hidden);
        let (forward, outputs) = if verifies {
            let verified = control.verify(&logits, &batch, &mut states, extras);
            let drafts = match &mut head {
                Some(head) => vec![control.draft_by(head, &batch, &hidden, &verified, extras)?],
                None => vec![],
            };
            (None, [verified.outputs, drafts].concat())
        } else {
            let before = head.as_ref().map(|_| HeadTrace::copy_positions(&batch));
            let (forward, mut outputs) = control.sample(&logits, extras, &options)?;
            // With masks, hidden states are gone once the token is sampled: a later draft may then be worse.
            if let (None, Some(head), Some(before)) = (&forward, &mut head, &before) {
                head.observe(before, &hidden, &outputs[0]);
                outputs.extend(head.arrays());
            }
            (forward, outputs)
        };
        Ok(DecodeStep {
            control,
            forward,
            program: Program::trace(&outputs, &options)?,
            outputs,
            mixed: None,
            options,
            reports: 0,
            extras,
        })
    }

    /// Returns the writes that make the next run see token `last` at `position` in each sequence.
    pub fn position_writes(&self, last: u32, position: usize) -> Vec<Write> {
        let sequences = self.control.tokens.count();
        vec![
            Write {
                state: self.control.tokens.clone(),
                at: 0,
                words: vec![last; sequences],
            },
            Write {
                state: self.control.positions.clone(),
                at: 0,
                words: vec![position as u32; sequences],
            },
        ]
    }

    /// Returns the writes that set the sampling settings of the next runs.
    pub fn settings_writes(&self, settings: &Settings) -> Result<Vec<Write>, TooManyStopIds> {
        let words = settings.encode()?.repeat(self.control.tokens.count());
        Ok(vec![Write {
            state: self.control.slots.settings.clone(),
            at: 0,
            words,
        }])
    }

    /// Returns the writes that make the next output number [`DecodeStep::reports`], whatever happened before.
    pub fn run_number_writes(&self) -> Vec<Write> {
        let row = |sequence: usize| Write {
            state: self.control.outbox.clone(),
            at: sequence * (1 + RING),
            words: vec![self.reports as u32],
        };
        (0..self.control.tokens.count()).map(row).collect()
    }

    /// Returns the traced program, without what precedes the masks.
    pub fn function(&self) -> &Function {
        &self.program.function
    }

    /// Runs the step once more; returns the microseconds of each step of its plan.
    pub fn profile(&mut self) -> Result<Vec<f64>, Error> {
        let times = self.program.function.profile()?;
        self.reports += 1;
        Ok(times)
    }

    /// Prints the program after a pass.
    pub fn print_after(&self, after: &str) -> Result<String, Error> {
        refrain::passes::printed(&self.outputs.iter().collect::<Vec<_>>(), self.options.lower, after)
    }

    /// Returns the number of outputs so far.
    pub fn reports(&self) -> u64 {
        self.reports
    }

    /// Returns the tape for an executor, recorded on first use or after another executor.
    pub fn tape(&mut self, executor: &'static dyn Executor) -> Result<&Tape, Error> {
        self.program.tape(executor)
    }

    /// Records its programs, and allocates what writes need.
    ///
    /// # Errors
    /// If memory runs out or the device fails.
    pub fn prepare(&mut self, executor: &'static dyn Executor) -> Result<(), Error> {
        for program in self.forward.iter_mut().chain([&mut self.program]) {
            program.tape(executor)?.prepare_writes()?;
        }
        Ok(())
    }

    /// Replaces the tape by one with a wrong result at a step of the plan, to test comparisons.
    pub fn inject_fault(&mut self, executor: &'static dyn Executor, step: usize) -> Result<(), Error> {
        self.program.tape = Some(self.program.function.faulty_tape(executor, step)?);
        Ok(())
    }

    /// Applies `writes`, then runs `runs` times.
    pub fn play(&mut self, executor: &'static dyn Executor, writes: &[Write], runs: usize) -> Result<Vec<Run>, Error> {
        let mut played = vec![];
        if self.forward.is_none() {
            played = self.tape(executor)?.play(writes, runs)?;
            self.reports += runs as u64 * self.extras.outputs_per_run();
        } else {
            for run in 0..runs {
                let writes = if run == 0 { writes } else { &[] };
                self.forward(executor, writes)?;
                played.extend(self.sample(executor, &[])?);
            }
        }
        Ok(played)
    }

    /// Applies `writes`, then computes the logits of a step with masks.
    ///
    /// # Errors
    /// If the device fails.
    pub fn forward(&mut self, executor: &'static dyn Executor, writes: &[Write]) -> Result<(), Error> {
        let program = self.forward.as_mut().expect("a step with masks");
        program.tape(executor)?.play(writes, 1).map(drop)
    }

    /// Applies `writes`, then samples from the logits of [`DecodeStep::forward`].
    ///
    /// # Errors
    /// If the device fails.
    pub fn sample(&mut self, executor: &'static dyn Executor, writes: &[Write]) -> Result<Vec<Run>, Error> {
        let played = self.tape(executor)?.play(writes, 1)?;
        self.reports += 1;
        Ok(played)
    }

    /// Returns output number `output` for `sequence`, once its run is over.
    ///
    /// Later runs overwrite it: only the last [`RING`] outputs are kept.
    ///
    /// # Errors
    /// If the device claims that the run is over although it never ran: the device is lost.
    pub fn reported(&self, output: u64, sequence: usize) -> Result<u32, Error> {
        debug_assert!(output < self.reports && self.reports - output <= RING as u64);
        let row = sequence * (1 + RING);
        let [mut count, mut word] = [[0]; 2];
        self.control.outbox.peek(row, &mut count)?;
        // The count is the number of the next output, modulo 2^32.
        let since = count[0].wrapping_sub(output as u32);
        if since == 0 || u64::from(since) > self.reports - output {
            return Err(self.program.function.device().mark_lost());
        }
        self.control
            .outbox
            .peek(row + 1 + (output % RING as u64) as usize, &mut word)?;
        Ok(word[0])
    }

    /// Returns the tokens that the multi-token prediction head drafted for a sequence in the last run, once it is over;
    /// none if the step has no head or no drafts.
    ///
    /// # Errors
    /// If the device fails.
    pub fn drafted(&self, sequence: usize) -> Result<Vec<u32>, Error> {
        let drafts = self.control.head_drafts.as_ref();
        drafts.map_or(Ok(vec![]), |drafts| drafts.read(sequence))
    }

    /// Returns where the last runs of this step and another first differ.
    pub fn first_difference(&self, other: &DecodeStep) -> Result<Option<Difference>, Error> {
        self.program.function.first_difference(&other.program.function)
    }
}
