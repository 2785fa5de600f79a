//! A stream of decoded tokens. The device feeds each token into the next step, and the host reads the outputs.

use std::collections::VecDeque;
use std::time::Instant;

use refrain::{Run, Write};
use refrain_lm::sample::Settings;

use crate::pace::{MAX_RUNS_PER_SUBMIT, MAX_SUBMIT_TIME, Pace};
use crate::{Error, Session};

/// Tokens of one session's sequences, one from each at a time. The device runs up to two submits ahead of the host;
/// [`Stream::end`] undoes the steps after the last token that was taken.
pub struct Stream<'s> {
    session: &'s mut Session,
    /// The last token of the prompt and the tokens taken since. All but the last were inputs of runs.
    seen: Vec<u32>,
    /// Number of this stream's first run of the decode step.
    first_run: u64,
    in_flight: VecDeque<Run>,
    /// Runs not submitted yet.
    left: usize,
    /// Runs of the last submit, and of the next one unless time or the user limits them.
    submitted: usize,
    ramp: usize,
    pace: Pace,
    /// Number of runs at the front of `in_flight` that are known to be over.
    found: usize,
    /// Writes that the first submit begins with.
    writes: Vec<Write>,
    /// Whether each run waits for the mask that depends on the token before.
    is_constrained: bool,
}

impl<'s> Stream<'s> {
    /// Creates a stream that continues the session's tokens with `last`, the last token of the prompt. `settings` apply
    /// to all sequences.
    pub(crate) fn new(session: &'s mut Session, last: u32, settings: &Settings) -> Result<Self, Error> {
        let position = session.position();
        let left = (settings.last_position as usize)
            .min(session.context())
            .saturating_sub(position);
        let is_constrained = session.step()?.extras.allowed;
        let step = session.step()?;
        let mut writes = step.position_writes(last, position);
        writes.extend(step.settings_writes(settings)?);
        writes.extend(step.run_number_writes());
        let first_run = step.reports();
        session.invalidate_states();
        Ok(Stream {
            seen: vec![last],
            first_run,
            in_flight: VecDeque::new(),
            left,
            submitted: 0,
            ramp: 1,
            pace: session.pace(),
            found: 0,
            writes,
            is_constrained,
            session,
        })
    }

    /// Returns the output of the next run for each sequence: a token, [`refrain_lm::sample::FINISHED`] or
    /// [`refrain_lm::sample::NOT_A_NUMBER`]. Returns `None` once the context is full or the last position is
    /// reached.
    ///
    /// # Errors
    /// If the device fails.
    pub fn next_tokens(&mut self) -> Result<Option<Vec<u32>>, Error> {
        self.keep_ahead()?;
        if self.in_flight.is_empty() {
            return Ok(None);
        }
        let executor = self.session.executor();
        let number = self.first_run + self.taken() as u64;
        let sequences = self.session.sequences();
        let step = self.session.step()?;
        if self.found == 0 {
            // Further runs are queued after the last one that is waited for.
            let fits = self.in_flight.len() > 3;
            let runs = if fits { self.pace.runs_per_wait() } else { 1 };
            let polls = self.pace.wait(step.tape(executor)?, &self.in_flight[runs - 1], runs)?;
            self.pace.done(polls, runs, Instant::now());
            self.found = runs;
        }
        self.found -= 1;
        self.in_flight.pop_front();
        let reported = (0..sequences)
            .map(|sequence| step.reported(number, sequence))
            .collect::<Result<Vec<u32>, _>>()?;
        self.seen.push(reported[0]);
        Ok(Some(reported))
    }

    /// Restricts the next token of the first sequence to those whose bits are set.
    pub(crate) fn allow(&mut self, bits: &[u32]) -> Result<(), Error> {
        debug_assert!(self.in_flight.is_empty(), "runs in flight have their own mask");
        let step = self.session.step()?;
        let masks = step.control.masks.as_ref().expect("a step that asks");
        Ok(masks.allowed.write_state(0, bytemuck::cast_slice(bits))?)
    }

    /// Whether the next tokens are already there.
    pub fn has_next(&self) -> bool {
        self.found > 0
    }

    /// Returns the number of runs whose outputs were taken.
    fn taken(&self) -> usize {
        self.seen.len() - 1
    }

    /// Submits until two submits, or all runs, are in flight. The CPU executor gets one run at a time, since its submits
    /// return only when they are done.
    fn keep_ahead(&mut self) -> Result<(), Error> {
        loop {
            let in_flight = self.in_flight.len();
            // As many runs as the last submit has mean that it is the only one in flight.
            let ahead = if self.is_on_cpu() || self.is_constrained {
                0
            } else {
                self.submitted
            };
            let runs = self.runs_per_submit().min(self.left);
            if in_flight > ahead || runs == 0 {
                break;
            }
            self.submit(runs)?;
            self.ramp = (2 * self.ramp).min(MAX_RUNS_PER_SUBMIT);
        }
        Ok(())
    }

    fn is_on_cpu(&self) -> bool {
        self.session.model().device().is_cpu()
    }

    fn runs_per_submit(&self) -> usize {
        if !self.session.executor().batches_runs() || self.is_constrained {
            return 1;
        }
        if let Some(asked) = self.session.tokens_per_submit() {
            return asked;
        }
        match self.pace.step() {
            Some(time) if !time.is_zero() => {
                let fit = MAX_SUBMIT_TIME.as_nanos() / time.as_nanos().max(1);
                self.ramp.min(fit.max(1) as usize)
            }
            _ => 1,
        }
    }

    fn submit(&mut self, runs: usize) -> Result<(), Error> {
        let last = self.session.position() + self.taken() + self.in_flight.len() + runs;
        let played = self.session.play(&self.writes, last, runs)?;
        self.writes.clear();
        if self.in_flight.is_empty() {
            self.pace.begin(Instant::now());
        }
        self.in_flight.extend(played);
        self.submitted = runs;
        self.left -= runs;
        Ok(())
    }

    /// Ends the stream. The session then holds the prompt and all tokens taken but the last.
    ///
    /// # Errors
    /// If the device fails.
    pub fn end(mut self) -> Result<(), Error> {
        if !self.is_constrained {
            self.session.keep_pace(self.pace.clone());
        }
        let taken = self.taken();
        let beyond = self.in_flight.len();
        let executor = self.session.executor();
        // Runs in flight end before anything else is written to the states.
        if let Some(run) = self.in_flight.back() {
            let step = self.session.step()?;
            step.tape(executor)?.wait(run)?;
            step.reported(self.first_run + (taken + beyond) as u64 - 1, 0)?;
        }
        self.session.model().device().check_status()?;
        self.in_flight.clear();
        self.seen.truncate(taken);
        self.session.settle(&self.seen, self.first_run, beyond > 0)
    }
}

#[cfg(test)]
#[path = "../tests/common/null.rs"]
mod null;

#[cfg(test)]
mod tests {
    use super::*;
    use refrain::Device;
    use refrain_models::Checkpoint;

    use crate::{LoadOptions, Mode, Model};

    #[test]
    fn cpu_executor_computes_tokens_on_demand() {
        let checkpoint = Checkpoint::synthetic("tiny:f32").expect("a checkpoint");
        let model = Model::load(&checkpoint, &Device::cpu(), &LoadOptions::default()).expect("loads");
        let mut session = Session::new(&model, 64).expect("fits");
        // The second stream knows how long a run takes.
        for _ in 0..2 {
            let settings = Settings {
                last_position: session.position() as u32 + 24,
                ..Settings::default()
            };
            let mut stream = session.stream(&[1, 2, 3], &settings).expect("a stream");
            for token in 0..10 {
                stream.next_tokens().expect("a token");
                assert!(stream.in_flight.is_empty(), "token {token}");
            }
            stream.end().expect("ends");
        }
    }

    #[test]
    fn at_most_two_submits_are_in_flight() {
        let (device, _) = null::reporting(&[]);
        let checkpoint = Checkpoint::synthetic("tiny:f16").expect("a checkpoint");
        let model = Model::load(&checkpoint, &device, &LoadOptions::default()).expect("loads");
        let mut session = Session::new(&model, 256).expect("fits");
        session.set_mode(Mode::Fixed(&refrain::Replay), None);
        // The second stream knows how long a run takes, so that it doubles its submits at once.
        for _ in 0..2 {
            let mut stream = session.stream(&[1, 2, 3], &Settings::default()).expect("a stream");
            let (mut left, mut submitted, mut last) = (stream.left, 0, 0);
            for token in 0..100 {
                stream.next_tokens().expect("a token");
                if stream.left < left {
                    (last, submitted) = (submitted, left - stream.left);
                    left = stream.left;
                }
                assert!(stream.in_flight.len() < last + submitted, "token {token}");
                assert!(token > 0 || submitted <= 3, "{submitted} runs before the first token");
            }
            stream.end().expect("ends");
        }
    }
}
