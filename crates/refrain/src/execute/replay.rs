//! The replay executor: records a plan's commands once and submits the recording at each run.

use std::sync::{Arc, Mutex};

use refrain_vulkan::{Command, Recording, Submission};

use super::executable::Executable;
use super::executor::{Executor, Prepared};
use super::run::Run;
use super::write::Write;
use crate::Error;

/// Number of recordings with timestamps. Each submit times one run. There are more recordings than submits in flight,
/// because the next run of a recording overwrites its timestamps.
const TIMED_COPIES: usize = 8;

/// Records commands once; one submit may run them many times.
pub struct Replay;

struct ReplayProgram {
    program: Arc<Executable>,
    plain: Recording,
    /// The same commands with timestamps around them; empty if the device does not measure time.
    timed: Vec<Recording>,
    timed_recordings: Mutex<TimedRecordings>,
}

/// The timed recording to use next, and the last submission of each.
struct TimedRecordings {
    next: usize,
    used: Vec<Option<Submission>>,
}

impl Executor for Replay {
    fn name(&self) -> &'static str {
        "replay"
    }

    fn batches_runs(&self) -> bool {
        true
    }

    fn prepare(&self, program: &Arc<Executable>) -> Result<Box<dyn Prepared>, Error> {
        let device = program.vulkan(self.name())?;
        let mut list = program.bound().list()?;
        list.name = "step".to_string();
        let plain = device.record(list.clone())?;
        let copies = if device.has_timestamps() { TIMED_COPIES } else { 0 };
        let region = "step".to_string();
        list.commands.insert(0, Command::Timestamp { region });
        Ok(Box::new(ReplayProgram {
            program: program.clone(),
            plain,
            timed: device.record_copies(list, copies)?,
            timed_recordings: Mutex::new(TimedRecordings {
                next: 0,
                used: vec![None; copies],
            }),
        }))
    }
}

impl Prepared for ReplayProgram {
    fn prepare_writes(&self) -> Result<(), Error> {
        self.program.prepare_inbox()
    }

    /// Uses one submit for everything.
    fn play(&self, writes: &[Write], runs: usize) -> Result<Vec<Run>, Error> {
        let device = self.program.vulkan(Replay.name())?;
        let message = self.program.write_message(writes)?;
        let mut timed_recordings = self
            .timed_recordings
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut batches = Vec::with_capacity(runs + 1);
        batches.extend(message.as_ref().map(|message| message.recording()));
        let number = timed_recordings.next;
        if let Some(last) = timed_recordings.used.get_mut(number).and_then(Option::take) {
            device.wait(&last)?;
        }
        let first = self.timed.get(number).unwrap_or(&self.plain);
        let others = std::iter::repeat_n(&self.plain, runs.saturating_sub(1));
        batches.extend(std::iter::once(first).chain(others).take(runs));
        if batches.is_empty() {
            return Ok(vec![]);
        }
        let submissions = device.submit_recorded(&batches)?;
        let (leading, submissions) = submissions.split_at(submissions.len() - runs);
        drop(batches);
        if let (Some(message), Some(submission)) = (message, leading.last()) {
            message.submitted(*submission);
        }
        let mut played: Vec<Run> = submissions.iter().map(|&s| Run::untimed(Some(s))).collect();
        if let (Some(first), Some(used)) = (played.first_mut(), timed_recordings.used.get_mut(number)) {
            first.is_timed = true;
            *used = first.submission;
            timed_recordings.next = (number + 1) % self.timed.len();
        }
        Ok(played)
    }
}
