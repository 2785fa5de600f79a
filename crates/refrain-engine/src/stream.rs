//! A stream of tokens: the device goes from token to token by itself, the host looks on.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use refrain::sample::Settings;
use refrain::{Run, Tape, TapeMode, Write};

use crate::mode::Trial;
use crate::{Error, Session};

/// The longest that the device may be busy with one submit: beyond, screens stutter and drivers take it
/// for a hang.
const LONGEST_SUBMIT: Duration = Duration::from_millis(50);
/// The most runs of one submit, unless they are asked for.
const MOST_RUNS: usize = 16;

/// Blocks until a run is over. Drivers wake a waiting thread late, or keep it spinning; the next runs are
/// queued already, so that sleeping for parts of a step costs less and loses nothing.
fn wait(tape: &Tape, run: &Run, step_time: Option<Duration>) -> Result<(), Error> {
    const SHORTEST: Duration = Duration::from_micros(60);
    const LONGEST: Duration = Duration::from_millis(20);
    // A device that takes far longer than usual may be lost, which only a real wait tells.
    const PATIENCE: u32 = 64;
    if let Some(time) = step_time {
        let mut nap = time * 15 / 16;
        for _ in 0..PATIENCE {
            if tape.is_done(run) {
                return Ok(());
            }
            std::thread::sleep(nap.clamp(SHORTEST, LONGEST));
            nap = time / 8;
        }
    }
    Ok(tape.wait(run)?)
}

/// Tokens of one session's sequences, one from each at a time. The device is kept ahead of the host by
/// up to two submits; what it does beyond the last token taken is undone by [`Stream::end`].
pub struct Stream<'s, 'm> {
    session: &'s mut Session<'m>,
    /// The last token of the prompt, and those taken since: what the runs taken so far saw is all but
    /// the last.
    seen: Vec<u32>,
    /// Number of the step's first run of this stream.
    first_run: u64,
    in_flight: VecDeque<(Run, Instant)>,
    /// Runs not submitted yet.
    left: usize,
    /// Runs of the next submit.
    ramp: usize,
    /// Between the last two runs that were seen to end.
    step_time: Option<Duration>,
    last_end: Option<Instant>,
    /// Writes that the first submit begins with.
    writes: Vec<Write>,
    pages: usize,
    trial: Option<Trial>,
}

impl<'s, 'm> Stream<'s, 'm> {
    /// A stream behind everything that the session holds, beginning with `last`, the token after that.
    /// `settings` are those of all sequences.
    pub(crate) fn new(session: &'s mut Session<'m>, last: u32, settings: &Settings) -> Result<Self, Error> {
        let position = session.position();
        let left = (settings.last_position as usize)
            .min(session.context())
            .saturating_sub(position);
        let trial = session.trial();
        let step = session.step()?;
        let mut writes = step.place(last, position);
        writes.extend(step.set(settings)?);
        let first_run = step.runs();
        Ok(Stream {
            seen: vec![last],
            first_run,
            in_flight: VecDeque::new(),
            left,
            ramp: 1,
            step_time: None,
            last_end: None,
            writes,
            pages: 0,
            trial,
            session,
        })
    }

    /// What the next run reported, for each sequence: a token, [`refrain::sample::FINISHED`] or
    /// [`refrain::sample::NOT_A_NUMBER`]; `None` once the context is full or the last position reached.
    ///
    /// # Errors
    /// If the device fails.
    pub fn next_tokens(&mut self) -> Result<Option<Vec<u32>>, Error> {
        self.keep_ahead()?;
        let Some((run, submitted)) = self.in_flight.pop_front() else {
            return Ok(None);
        };
        let mode = self.session.tape_mode();
        let number = self.first_run + self.taken() as u64;
        let sequences = self.session.sequences();
        let step = self.session.step()?;
        wait(step.tape(mode)?, &run, self.step_time)?;
        let reported = (0..sequences)
            .map(|sequence| step.reported(number, sequence))
            .collect::<Result<Vec<u32>, _>>()?;
        let device_time = step.tape(mode)?.device_time(&run);
        self.session.timed(device_time);
        let now = Instant::now();
        let since = now - self.last_end.unwrap_or(submitted).max(submitted);
        // Several runs may be found to be over at once.
        self.step_time = Some(self.step_time.map_or(since, |time| (time * 3 + since) / 4));
        self.last_end = Some(now);
        self.seen.push(reported[0]);
        if let Some(trial) = &mut self.trial
            && trial.record(now, self.in_flight.is_empty())
        {
            self.decide()?;
        }
        Ok(Some(reported))
    }

    /// Runs whose reports were taken.
    fn taken(&self) -> usize {
        self.seen.len() - 1
    }

    /// Submits until two submits are in flight, or all runs are.
    fn keep_ahead(&mut self) -> Result<(), Error> {
        // A trial's modes are not mixed: the device runs dry between them.
        while self.left > 0 {
            let runs = self.runs_per_submit().min(self.left);
            let ahead = match &self.trial {
                Some(trial) if trial.is_over_with(self.in_flight.len()) => 0,
                _ => runs,
            };
            if self.in_flight.len() > ahead || (ahead == 0 && !self.in_flight.is_empty()) {
                break;
            }
            self.submit(runs)?;
            self.ramp = (2 * self.ramp).min(MOST_RUNS);
        }
        Ok(())
    }

    fn runs_per_submit(&self) -> usize {
        if self.session.tape_mode() == TapeMode::Eager {
            return 1;
        }
        if let Some(asked) = self.session.tokens_per_submit() {
            return asked;
        }
        match self.step_time {
            Some(time) if !time.is_zero() => {
                let fit = LONGEST_SUBMIT.as_nanos() / time.as_nanos().max(1);
                self.ramp.min(fit.max(1) as usize)
            }
            _ => 1,
        }
    }

    fn submit(&mut self, runs: usize) -> Result<(), Error> {
        let mut writes = std::mem::take(&mut self.writes);
        let last = self.session.position() + self.taken() + self.in_flight.len() + runs;
        writes.extend(self.session.grant(&mut self.pages, last)?);
        let played = self.session.play(&writes, runs)?;
        let now = Instant::now();
        self.in_flight.extend(played.into_iter().map(|run| (run, now)));
        self.left -= runs;
        Ok(())
    }

    /// Goes on in the faster mode, or in the one that is still to be tried.
    fn decide(&mut self) -> Result<(), Error> {
        if let Some(trial) = self.trial.take() {
            self.trial = self.session.go_on(trial)?;
            self.ramp = 1;
        }
        Ok(())
    }

    /// Ends the stream: the session then holds the prompt and all tokens taken but the last, as if the
    /// device had not gone on.
    ///
    /// # Errors
    /// If the device fails.
    pub fn end(mut self) -> Result<(), Error> {
        let taken = self.taken();
        let beyond = self.in_flight.len();
        let mode = self.session.tape_mode();
        // What is still under way ends before anything else is put into the states.
        if let Some((run, _)) = self.in_flight.back() {
            self.session.step()?.tape(mode)?.wait(run)?;
        }
        self.in_flight.clear();
        self.seen.truncate(taken);
        self.session.settle(&self.seen, self.first_run, beyond > 0)
    }
}
