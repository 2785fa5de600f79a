//! When to look whether the device has come to the next token.
//!
//! Drivers wake a waiting thread late or keep it spinning; since the next runs are queued already, sleeping
//! costs less and loses nothing. Runs take about equally long, so one look is enough, shortly after the end
//! of a run, or of two where both take less than a picture on a screen: waking up costs the CPU more than all
//! else that it does for a token.

use std::time::{Duration, Instant};

use refrain::{Run, Tape};

use crate::Error;

/// The longest that the device may be busy with one submit: beyond, screens stutter and drivers take it
/// for a hang.
pub(crate) const LONGEST_SUBMIT: Duration = Duration::from_millis(50);
/// The most runs of one submit, unless they are asked for.
pub(crate) const MOST_RUNS: usize = 32;
/// The bounds of a sleep: shorter ones only cost, longer ones would be noticed.
const SHORTEST: Duration = Duration::from_micros(60);
const LONGEST: Duration = Duration::from_millis(20);
/// Two runs that take no longer are waited for together: the first token is then one step old.
const LONGEST_PAIR: Duration = Duration::from_millis(10);
/// Looks in vain at one run before it may be that the device is lost, which only a real wait tells.
const PATIENCE: u32 = 64;
/// Intervals over which the length of a run is averaged.
const WINDOW: u32 = 32;

/// The pace of one stream's runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pace {
    /// From one run's end to the next, and how many intervals told.
    step: Option<Duration>,
    intervals: u32,
    /// When the last run was found done.
    last: Option<Instant>,
    /// When the next run will be over.
    due: Option<Instant>,
}

impl Pace {
    /// How long a run takes, once that is known.
    pub fn step(&self) -> Option<Duration> {
        self.step
    }

    /// Notes that the device begins with a run now, after it had nothing to do.
    pub fn begin(&mut self, now: Instant) {
        self.last = None;
        self.due = self.step.map(|step| now + step);
    }

    /// Runs to wait for at once, of any number under way.
    pub fn together(&self) -> usize {
        match self.step {
            Some(step) if 2 * step <= LONGEST_PAIR => 2,
            _ => 1,
        }
    }

    /// How long to sleep before look number `look` (0, 1 …) at the last of the next `runs`; `None` if a real
    /// wait is due.
    pub fn nap(&self, look: u32, runs: usize, now: Instant) -> Option<Duration> {
        let step = self.step?;
        match look {
            0 => Some(self.end(runs)?.saturating_duration_since(now).min(LONGEST)),
            1..PATIENCE => Some((step / 8).clamp(SHORTEST, LONGEST)),
            _ => None,
        }
    }

    /// Blocks until `run`, the last of the next `runs`, is over; how often it was looked at.
    pub fn wait(&self, tape: &Tape, run: &Run, runs: usize) -> Result<u32, Error> {
        let mut looks = 0;
        let mut is_done = tape.is_known_done(run);
        while !is_done {
            match self.nap(looks, runs, Instant::now()) {
                Some(nap) => std::thread::sleep(nap),
                None => tape.wait(run)?,
            }
            looks += 1;
            is_done = tape.is_done(run)?;
        }
        Ok(looks)
    }

    /// When the last of the next `runs` will be over.
    fn end(&self, runs: usize) -> Option<Instant> {
        Some(self.due? + self.step? * (runs - 1) as u32)
    }

    /// Notes that the device does something else first, which takes so long.
    pub fn delay(&mut self, by: Duration) {
        self.due = self.due.map(|due| due + by);
    }

    /// Notes that the next run was found done, and that this does not tell how long runs take.
    pub fn passed(&mut self, now: Instant) {
        self.last = Some(now);
        self.due = self.step.map(|step| now + step);
    }

    /// Notes that the next `runs` were found done, after how many looks.
    pub fn found(&mut self, looks: u32, runs: usize, now: Instant) {
        let expected = self.end(runs);
        if let Some(last) = self.last {
            // An interval is mostly our own sleep: only many of them are the device's.
            self.intervals = (self.intervals + 1).min(WINDOW);
            let before = self.step.unwrap_or_default() * (self.intervals - 1);
            self.step = Some((before + (now - last) / runs as u32) / self.intervals);
        }
        self.last = Some(now);
        let from = match (looks, expected) {
            (1, Some(expected)) => expected,
            _ => now,
        };
        // A little earlier each time, until a look is in vain: so looks stay close behind the ends.
        self.due = self.step.map(|step| from + step * 127 / 128);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks for each time that `runs` runs are waited for, and the latest look behind the last one's end in
    /// parts of a run, of a device whose runs take `step` with `jitter`, while each sleep takes `overhead` too
    /// long.
    fn simulated(runs: usize, step: u64, jitter: u64, overhead: u64) -> (f64, f64) {
        const RUNS: u64 = 2000;
        let us = Duration::from_micros;
        let start = Instant::now();
        let mut pace = Pace::default();
        let (mut now, mut looks, mut latest) = (start, 0, 0.0f64);
        let mut end = start;
        let ends = (0..RUNS).map(|run| {
            end += us(step + run * 7919 % (jitter + 1));
            end
        });
        let mut ends = ends.skip(runs - 1).step_by(runs);
        let mut end = ends.next().unwrap();
        for wait in 0.. {
            let mut look = 0;
            while end > now {
                match pace.nap(look, runs, now) {
                    Some(nap) => {
                        now += nap + us(overhead);
                        look += 1;
                    }
                    None => now = end + us(overhead),
                }
            }
            pace.found(look, runs, now);
            looks += look;
            if wait > 10 {
                latest = latest.max((now - end).as_secs_f64() * 1e6 / step as f64);
            }
            match ends.next() {
                Some(next) => end = next,
                None => return (f64::from(looks) / f64::from(wait + 1), latest),
            }
        }
        unreachable!("runs end")
    }

    #[test]
    fn one_look_finds_runs_done_well_before_the_next_is() {
        for (step, jitter, overhead) in [(3200, 0, 70), (3200, 60, 70), (1000, 20, 60), (20_000, 500, 100)] {
            // Long runs are waited for one by one.
            for runs in if step < 5000 { 1..=2 } else { 1..=1 } {
                let (looks, latest) = simulated(runs, step, jitter, overhead);
                assert!(looks < 1.2, "{looks} looks at {runs} runs of {step} µs");
                assert!(latest < 0.5, "{latest} of a run of {step} µs late");
            }
        }
    }

    #[test]
    fn two_short_runs_are_waited_for_together() {
        let paced = |step: u64| {
            let (mut pace, start) = (Pace::default(), Instant::now());
            (0..10).for_each(|run| pace.found(1, 1, start + Duration::from_millis(step * run)));
            pace.together()
        };
        assert_eq!((paced(1), paced(4), paced(6)), (2, 2, 1));
        assert_eq!(Pace::default().together(), 1);
    }

    #[test]
    fn a_run_that_takes_far_longer_than_others_is_really_waited_for() {
        let mut pace = Pace::default();
        let start = Instant::now();
        (0..10).for_each(|run| pace.found(1, 1, start + Duration::from_millis(run)));
        assert!(pace.nap(PATIENCE - 1, 1, start).is_some());
        assert_eq!(pace.nap(PATIENCE, 1, start), None);
        assert_eq!(Pace::default().nap(0, 1, start), None);
    }
}
