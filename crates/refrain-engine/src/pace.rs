//! Decides when to poll the device for the next token.
//!
//! Drivers wake a waiting thread late or keep it spinning. Since the next runs are queued already, sleeping costs
//! less and loses nothing. Runs take about equally long, so one poll shortly after the end of a run is enough. Waking up
//! costs more CPU time than everything else that the host does for a token.

use std::time::{Duration, Instant};

use refrain::{Run, Tape};

use crate::Error;

/// Limit of runs per submit, unless the user sets another.
pub(crate) const MAX_RUNS_PER_SUBMIT: usize = 32;
/// Runs of a submit that may be requested: the device keeps the outputs of two such submits.
pub(crate) const MAX_REQUESTED_RUNS: usize = 64;
/// Bounds of a sleep: shorter ones only cost CPU time, longer ones would be noticeable.
const MIN_SLEEP: Duration = Duration::from_micros(60);
const MAX_SLEEP: Duration = Duration::from_millis(20);
/// Failed polls of one run before a blocking wait, which detects a lost device.
const MAX_POLLS: u32 = 64;
/// Intervals over which the duration of a run is averaged.
const AVERAGED_INTERVALS: u32 = 32;

/// The pace of one stream's runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pace {
    /// Mean time between the ends of two runs, and the number of intervals averaged.
    step: Option<Duration>,
    intervals: u32,
    /// When the last run was seen to be done.
    last: Option<Instant>,
    /// When the next run is expected to be done.
    due: Option<Instant>,
}

impl Pace {
    /// Returns the duration of a run, once known.
    pub fn step(&self) -> Option<Duration> {
        self.step
    }

    /// Notes that the idle device starts a run now.
    pub fn begin(&mut self, now: Instant) {
        self.last = None;
        self.due = self.step.map(|step| now + step);
    }

    /// Returns the sleep before poll number `poll` (0, 1 …) of the next run; `None` if a blocking wait is due.
    pub fn sleep_before(&self, poll: u32, now: Instant) -> Option<Duration> {
        let step = self.step?;
        match poll {
            0 => Some(self.due?.saturating_duration_since(now).min(MAX_SLEEP)),
            1..MAX_POLLS => Some((step / 8).clamp(MIN_SLEEP, MAX_SLEEP)),
            _ => None,
        }
    }

    /// Blocks until `run`, the next one, is done. Returns the number of polls.
    pub fn wait(&self, tape: &Tape, run: &Run) -> Result<u32, Error> {
        let mut polls = 0;
        let mut is_done = tape.is_known_done(run);
        while !is_done {
            match self.sleep_before(polls, Instant::now()) {
                Some(duration) => std::thread::sleep(duration),
                None => tape.wait(run)?,
            }
            polls += 1;
            is_done = tape.is_done(run)?;
        }
        Ok(polls)
    }

    /// Notes that the device does other work first, which is expected to take `by`. Polls begin after half of it: a poll
    /// that comes late would make the work seem longer than it was, and the next poll come as late.
    pub fn delay(&mut self, by: Duration) {
        self.due = self.due.map(|due| due + by / 2);
    }

    /// Notes that the next run is done, but that its time says nothing about others.
    pub fn done_untimed(&mut self, now: Instant) {
        self.last = Some(now);
        self.due = self.step.map(|step| now + step);
    }

    /// Notes that the next run was done after `polls` polls.
    pub fn done(&mut self, polls: u32, now: Instant) {
        if let Some(last) = self.last {
            // A single interval is mostly the host's own sleep; the mean of many is the device's.
            self.intervals = (self.intervals + 1).min(AVERAGED_INTERVALS);
            let before = self.step.unwrap_or_default() * (self.intervals - 1);
            self.step = Some((before + (now - last)) / self.intervals);
        }
        self.last = Some(now);
        let from = match (polls, self.due) {
            (1, Some(expected)) => expected,
            _ => now,
        };
        // Slightly earlier each time, until a poll fails: this keeps polls close to the ends.
        self.due = self.step.map(|step| from + step * 127 / 128);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a device whose runs take `step` with `jitter`, and sleeps that take `overhead` too long. Returns
    /// the polls per wait, and the largest delay of a poll as a fraction of a run.
    fn simulated(step: u64, jitter: u64, overhead: u64) -> (f64, f64) {
        const RUNS: u64 = 2000;
        let us = Duration::from_micros;
        let start = Instant::now();
        let mut pace = Pace::default();
        let (mut now, mut polls, mut latest) = (start, 0, 0.0f64);
        let mut end = start;
        let mut ends = (0..RUNS).map(|run| {
            end += us(step + run * 7919 % (jitter + 1));
            end
        });
        let mut end = ends.next().unwrap();
        for wait in 0.. {
            let mut poll = 0;
            while end > now {
                match pace.sleep_before(poll, now) {
                    Some(duration) => {
                        now += duration + us(overhead);
                        poll += 1;
                    }
                    None => now = end + us(overhead),
                }
            }
            pace.done(poll, now);
            polls += poll;
            if wait > 10 {
                latest = latest.max((now - end).as_secs_f64() * 1e6 / step as f64);
            }
            match ends.next() {
                Some(next) => end = next,
                None => return (f64::from(polls) / f64::from(wait + 1), latest),
            }
        }
        unreachable!("runs end")
    }

    #[test]
    fn one_poll_per_wait_sees_runs_end_in_time() {
        for (step, jitter, overhead) in [(3200, 0, 70), (3200, 60, 70), (1000, 20, 60), (20_000, 500, 100)] {
            let (polls, latest) = simulated(step, jitter, overhead);
            assert!(polls < 1.2, "{polls} polls at runs of {step} µs");
            assert!(latest < 0.5, "{latest} of a run of {step} µs late");
        }
    }

    #[test]
    fn other_work_that_became_shorter_is_seen_to_be() {
        let us = Duration::from_micros;
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        for _ in 0..10 {
            now += us(2100);
            pace.done(1, now);
        }
        let (real, mut seen) = (us(8000), us(14_000));
        for _ in 0..20 {
            pace.begin(now);
            pace.delay(seen);
            let (begun, end) = (now, now + us(2100) + real);
            for poll in 0.. {
                let Some(sleep) = pace.sleep_before(poll, now).filter(|_| now < end) else {
                    break;
                };
                now += sleep + us(70);
            }
            now = now.max(end);
            seen = (seen * 7 + (now - begun - us(2100))) / 8;
            pace.done_untimed(now);
        }
        assert!(seen < us(9000), "{seen:?}");
    }

    #[test]
    fn blocks_on_a_run_that_takes_far_longer_than_others() {
        let mut pace = Pace::default();
        let start = Instant::now();
        (0..10).for_each(|run| pace.done(1, start + Duration::from_millis(run)));
        assert!(pace.sleep_before(MAX_POLLS - 1, start).is_some());
        assert_eq!(pace.sleep_before(MAX_POLLS, start), None);
        assert_eq!(Pace::default().sleep_before(0, start), None);
    }
}
