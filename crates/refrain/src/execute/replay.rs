//! The replay executor: a plan's commands recorded once, and submitted as often as wanted.

use std::sync::{Arc, Mutex};

use refrain_vulkan::{Command, Recording, Submission};

use super::executor::{Executor, Prepared, Run};
use super::{Executable, Write};
use crate::Error;

/// Recordings of which one is timed in each submit, where runs are timed: more than there are submits in
/// flight, since a run's timestamps are overwritten by the next run of the same recording.
const TIMED_COPIES: usize = 8;

/// Commands are recorded once; one submit may run them many times.
pub struct Replay;

struct Recorded {
    program: Arc<Executable>,
    plain: Recording,
    /// The same with timestamps around them, where the device measures time.
    timed: Vec<Recording>,
    turn: Mutex<TimedTurn>,
}

/// Which timed recording comes next, and what last used each.
struct TimedTurn {
    next: usize,
    used: Vec<Option<Submission>>,
}

impl Executor for Replay {
    fn name(&self) -> &'static str {
        "replay"
    }

    fn submits_many(&self) -> bool {
        true
    }

    fn prepare(&self, program: &Arc<Executable>) -> Result<Box<dyn Prepared>, Error> {
        let device = program.vulkan(self.name())?;
        let mut list = program.bound().list()?;
        list.name = "step".to_string();
        let plain = device.record(list.clone())?;
        let copies = if device.measures_time() { TIMED_COPIES } else { 0 };
        let region = "step".to_string();
        list.commands.insert(0, Command::Timestamp { region });
        Ok(Box::new(Recorded {
            program: program.clone(),
            plain,
            timed: device.record_copies(list, copies)?,
            turn: Mutex::new(TimedTurn {
                next: 0,
                used: vec![None; copies],
            }),
        }))
    }
}

impl Prepared for Recorded {
    fn prepare_writes(&self) -> Result<(), Error> {
        self.program.inbox.prepare(&self.program)
    }

    /// Everything by one submit.
    fn play(&self, before: Option<&dyn Prepared>, writes: &[Write], runs: usize) -> Result<Vec<Run>, Error> {
        let device = self.program.vulkan(Replay.name())?;
        let delivery = self.program.inbox.write(&self.program, writes)?;
        let mut turn = self.turn.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut batches = Vec::with_capacity(runs + 2);
        match before.map(|before| (before.recording(), before)) {
            Some((Some(recording), _)) => batches.push(recording),
            Some((None, before)) => {
                before.play(None, &[], 1)?;
            }
            None => {}
        }
        batches.extend(delivery.as_ref().map(|delivery| delivery.recording()));
        let number = turn.next;
        if let Some(last) = turn.used.get_mut(number).and_then(Option::take) {
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
        if let (Some(delivery), Some(carried_out)) = (delivery, leading.last()) {
            delivery.submitted(*carried_out);
        }
        let mut played: Vec<Run> = submissions.iter().map(|&s| Run::untimed(Some(s))).collect();
        if let (Some(first), Some(used)) = (played.first_mut(), turn.used.get_mut(number)) {
            first.is_timed = true;
            *used = first.submission;
            turn.next = (number + 1) % self.timed.len();
        }
        Ok(played)
    }

    fn recording(&self) -> Option<&Recording> {
        Some(&self.plain)
    }
}
