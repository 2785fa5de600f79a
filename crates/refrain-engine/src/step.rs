//! The decode step: one traced program that takes the current token of each sequence to the next one.
//!
//! All that changes from token to token lies in states on the device, so the host has nothing to do
//! between two runs, and the recorded program is the same from the first token to the last.

use refrain::{Array, DType, Device, Difference, Error, Executor, Function, LowerOptions, Run, Tape, Write};
use refrain_lm::sample::{Settings, TooManyStopIds};
use refrain_lm::{Sequences, only_allowed, sample, words_of_bits};
use refrain_models::{Batch, LayerState, Pages};

use crate::Model;
use crate::likelihood::LikelihoodRing;

/// Reported tokens that the device keeps for the host.
const RING: usize = 256;

/// What a decode step does beside what each does. Who needs none of it pays for none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct StepExtras {
    /// Keeps for the host how likely the tokens are.
    pub likelihoods: bool,
    /// Picks among allowed tokens alone.
    pub allowed: bool,
}

impl StepExtras {
    /// Of a sequence whose tokens are allowed one by one.
    pub const ALLOWED: StepExtras = StepExtras {
        likelihoods: false,
        allowed: true,
    };

    /// What both do.
    pub fn and(self, other: StepExtras) -> StepExtras {
        StepExtras {
            likelihoods: self.likelihoods || other.likelihoods,
            allowed: self.allowed || other.allowed,
        }
    }
}

/// The states of a decode step beside the layers' own, for S sequences.
#[derive(Clone)]
pub(crate) struct Control {
    /// u32 `[S]`: the token that the next run sees.
    pub tokens: Array,
    /// i32 `[S]`: its position, negative once the sequence is finished.
    pub positions: Array,
    /// u32 `[S]`: its row of `pages`, 0, 1 … to begin with.
    pub sequences: Array,
    /// u32 `[N, P]`: pages of the KV cache.
    pub pages: Array,
    /// u32 `[S, WORDS]`: how tokens are picked.
    pub settings: Array,
    /// u32 `[S, C + 1]`: tokens by position.
    pub history: Array,
    /// u32 `[S, V]`: how often each token is among the recent ones.
    pub counts: Array,
    /// f32 `[S, V]`: added to the logits where settings say so.
    pub bias: Array,
    /// u32 `[S, 1 + RING]`: what was reported.
    pub outbox: Array,
    /// u32 `[S, ⌈V / 32⌉]`: the tokens that may be picked, a bit each.
    pub allowed: Option<Array>,
    /// How likely the tokens were that the last runs picked.
    pub likelihoods: Option<LikelihoodRing>,
}

impl Control {
    fn new(device: &Device, sequences: usize, vocabulary: usize, context: usize, table: &Array) -> Result<Self, Error> {
        let state = |dtype, shape: &[usize]| Array::state(device, dtype, shape);
        let s = sequences;
        let control = Control {
            tokens: state(DType::U32, &[s])?,
            positions: state(DType::I32, &[s])?,
            sequences: state(DType::U32, &[s])?,
            pages: table.clone(),
            settings: state(DType::U32, &[s, Settings::WORDS])?,
            history: state(DType::U32, &[s, context + 1])?,
            counts: state(DType::U32, &[s, vocabulary])?,
            bias: state(DType::F32, &[s, vocabulary])?,
            outbox: Array::mapped_state(device, DType::U32, &[s, 1 + RING])?,
            allowed: None,
            likelihoods: None,
        };
        let numbers: Vec<u32> = (0..s as u32).collect();
        control.sequences.write_state(0, bytemuck::cast_slice(&numbers))?;
        Ok(control)
    }

    /// With the states that `extras` need, as far as they are missing.
    fn with(mut self, extras: StepExtras) -> Result<Self, Error> {
        let (device, &[sequences, vocabulary]) = (self.tokens.device().clone(), self.counts.shape()) else {
            unreachable!("counts are of sequences and tokens")
        };
        if extras.allowed && self.allowed.is_none() {
            let words = words_of_bits(vocabulary);
            self.allowed = Some(Array::state(&device, DType::U32, &[sequences, words])?);
        }
        if extras.likelihoods && self.likelihoods.is_none() {
            self.likelihoods = Some(LikelihoodRing::new(&device, sequences, vocabulary)?);
        }
        Ok(self)
    }
}

/// The decode step of a session, traced, with its states and its tape.
pub(crate) struct DecodeStep {
    pub control: Control,
    function: Function,
    /// What the function computes.
    outputs: Vec<Array>,
    options: LowerOptions,
    tape: Option<Tape>,
    /// Runs so far: where the outbox stands.
    runs: u64,
    /// Pages of each sequence that the device knows of.
    pub granted: usize,
    /// What it does beside.
    pub extras: StepExtras,
}

/// A table of pages for `sequences` sequences, u32 `[N, P]`.
pub(crate) fn page_table(device: &Device, sequences: usize, pages: Pages) -> Result<Array, Error> {
    Array::state(device, DType::U32, &[sequences, pages.per_sequence])
}

impl DecodeStep {
    /// Traces the step of `model` over `states`, for `sequences` of those whose pages are in `table`.
    pub fn trace(
        model: &Model,
        states: &[LayerState],
        sequences: usize,
        table: &Array,
        pages: Pages,
        options: LowerOptions,
    ) -> Result<DecodeStep, Error> {
        let (vocabulary, context) = (model.config().vocab_size, pages.context);
        let control = Control::new(model.device(), sequences, vocabulary, context, table)?;
        DecodeStep::over(control, model, states, pages, StepExtras::default(), options)
    }

    /// A step with `extras` over the states of this one; of both, one at a time may be under way.
    pub fn trace_beside(
        &self,
        model: &Model,
        states: &[LayerState],
        pages: Pages,
        extras: StepExtras,
    ) -> Result<DecodeStep, Error> {
        let control = self.control.clone().with(extras)?;
        DecodeStep::over(control, model, states, pages, extras, self.options)
    }

    fn over(
        control: Control,
        model: &Model,
        states: &[LayerState],
        pages: Pages,
        extras: StepExtras,
        options: LowerOptions,
    ) -> Result<DecodeStep, Error> {
        let batch = Batch {
            tokens: control.tokens.clone(),
            positions: control.positions.clone(),
            sequences: control.sequences.clone(),
            pages: control.pages.clone(),
            wanted: None,
            page_size: pages.size,
            context: pages.context,
            decode: true,
        };
        let logits = model.decoder().forward(&batch, &mut states.to_vec());
        let sequences = Sequences {
            tokens: control.tokens.clone(),
            positions: control.positions.clone(),
            history: control.history.clone(),
            counts: control.counts.clone(),
            outbox: control.outbox.clone(),
        };
        let allowed = control.allowed.as_ref().filter(|_| extras.allowed);
        let among = allowed.map(|bits| only_allowed(&logits, bits));
        let among = among.as_ref().unwrap_or(&logits);
        let (reported, next) = sample(among, &control.settings, &sequences, Some(&control.bias));
        let ring = control.likelihoods.as_ref().filter(|_| extras.likelihoods);
        let kept = ring.map(|ring| {
            let runs = next.outbox.slice(-1, 0, 1).reshape(&[-1]);
            ring.keep(&runs, &logits, &reported)
        });
        // Logits are kept for whoever compares or looks at them.
        let outputs: Vec<Array> = [reported, logits].into_iter().chain(kept).collect();
        let function = Function::trace_with(&outputs.iter().collect::<Vec<_>>(), options)?;
        Ok(DecodeStep {
            control,
            function,
            outputs,
            options,
            tape: None,
            runs: 0,
            granted: 0,
            extras,
        })
    }

    /// The writes that make the next run see token `last` at `position` in each sequence.
    pub fn place(&self, last: u32, position: usize) -> Vec<Write> {
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

    /// The writes that make the next runs pick tokens by `settings`.
    pub fn set(&self, settings: &Settings) -> Result<Vec<Write>, TooManyStopIds> {
        let words = settings.encode()?.repeat(self.control.tokens.count());
        Ok(vec![Write {
            state: self.control.settings.clone(),
            at: 0,
            words,
        }])
    }

    /// The writes that make the next run number [`DecodeStep::runs`], whatever became of those before.
    pub fn number(&self) -> Vec<Write> {
        let row = |sequence: usize| Write {
            state: self.control.outbox.clone(),
            at: sequence * (1 + RING),
            words: vec![self.runs as u32],
        };
        (0..self.control.tokens.count()).map(row).collect()
    }

    /// The traced program.
    pub fn function(&self) -> &Function {
        &self.function
    }

    /// Microseconds of each step of the plan in one run more.
    pub fn profile(&mut self) -> Result<Vec<f64>, Error> {
        let times = self.function.profile()?;
        self.runs += 1;
        Ok(times)
    }

    /// The program after a stage of its lowering.
    pub fn printed(&self, after: &str) -> Result<String, Error> {
        refrain::passes::printed(&self.outputs.iter().collect::<Vec<_>>(), self.options, after)
    }

    /// Runs so far.
    pub fn runs(&self) -> u64 {
        self.runs
    }

    /// The tape that an executor runs, made when it is first wanted or another executor was used before.
    pub fn tape(&mut self, executor: &'static dyn Executor) -> Result<&Tape, Error> {
        if self.tape.as_ref().is_none_or(|tape| tape.executor() != executor) {
            self.tape = Some(self.function.tape(executor)?);
        }
        Ok(self.tape.as_ref().expect("just made"))
    }

    /// Replaces the tape by one that computes something wrong at a step of the plan.
    pub fn inject_fault(&mut self, executor: &'static dyn Executor, step: usize) -> Result<(), Error> {
        self.tape = Some(self.function.faulty_tape(executor, step)?);
        Ok(())
    }

    /// Carries out `writes`, then runs `runs` times, behind one run of `before`.
    pub fn play(
        &mut self,
        executor: &'static dyn Executor,
        before: Option<&Tape>,
        writes: &[Write],
        runs: usize,
    ) -> Result<Vec<Run>, Error> {
        let played = self.tape(executor)?.play_after(before, writes, runs)?;
        self.runs += runs as u64;
        Ok(played)
    }

    /// What run number `run` reported of sequence `sequence`, once it is over.
    ///
    /// Later runs overwrite it: of more than [`RING`] runs the first are gone.
    ///
    /// # Errors
    /// A device that says that the run is over though it never was: it is lost.
    pub fn reported(&self, run: u64, sequence: usize) -> Result<u32, Error> {
        debug_assert!(run < self.runs && self.runs - run <= RING as u64);
        let row = sequence * (1 + RING);
        let [mut count, mut word] = [[0]; 2];
        self.control.outbox.peek(row, &mut count)?;
        // The count is the number of the next run, modulo 2^32.
        let since = count[0].wrapping_sub(run as u32);
        if since == 0 || u64::from(since) > self.runs - run {
            return Err(self.function.device().note_loss());
        }
        self.control
            .outbox
            .peek(row + 1 + (run % RING as u64) as usize, &mut word)?;
        Ok(word[0])
    }

    /// The logits `[S, vocabulary]` of the last run. Waits for it.
    pub fn logits(&self) -> Result<Vec<f32>, Error> {
        self.function.read(1)
    }

    /// Where this step's last run and another's part.
    pub fn first_difference(&self, other: &DecodeStep) -> Result<Option<Difference>, Error> {
        self.function.first_difference(&other.function)
    }
}
