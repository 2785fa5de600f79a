//! Which executor decodes: measured on the user's own first tokens, and remembered.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use refrain::Executor;
use serde::{Deserialize, Serialize};

/// The first tokens that an executor is tried for are uncounted: they fill the pipeline.
const UNCOUNTED: usize = 8;
/// Those behind are timed in stretches of so many, the fastest of which counts: what disturbs a measurement
/// makes it longer.
const STRETCH: usize = 8;
const STRETCHES: usize = 5;
/// Of the time that the usual executor takes, what another must stay below: it costs the CPU many times as much.
const WORTH_IT: f64 = 0.95;

/// How a session decodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// By the usual one of the device's executors, unless another was measured to be clearly faster.
    #[default]
    Auto,
    /// By this one.
    By(&'static dyn Executor),
}

/// A measurement of a device's executors.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModeChoice {
    /// Tokens that were timed in each. (Files without it are of few tokens: those are measured anew.)
    pub tokens: usize,
    /// Microseconds per token, by the executor's name.
    pub us: BTreeMap<String, f64>,
}

impl ModeChoice {
    /// The usual executor, unless another is faster by more than a measurement may be wrong.
    pub fn executor(&self, executors: &'static [&'static dyn Executor]) -> &'static dyn Executor {
        let us = |executor: &&dyn Executor| self.us.get(executor.name()).copied().unwrap_or(f64::INFINITY);
        let usual = executors[0];
        let is_faster = |executor: &&&dyn Executor| us(executor) < WORTH_IT * us(&usual);
        let others = executors.iter().filter(is_faster);
        let fastest = others.min_by(|one, other| us(one).total_cmp(&us(other)));
        fastest.copied().unwrap_or(usual)
    }
}

/// A trial of one executor after the other, on tokens that somebody wants anyway; it may go over several streams.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    /// Those to be tried.
    executors: &'static [&'static dyn Executor],
    /// Of those that were tried, the time per token.
    tried: Vec<Duration>,
    /// Ends of this stream's runs.
    ends: Vec<Instant>,
    /// Stretches of earlier streams, and the time per token of the fastest.
    stretches: usize,
    fastest: Duration,
}

impl Trial {
    /// A trial that begins with the usual executor: it is what most will stay with.
    pub fn of(executors: &'static [&'static dyn Executor]) -> Trial {
        Trial {
            executors,
            tried: vec![],
            ends: vec![],
            stretches: 0,
            fastest: Duration::MAX,
        }
    }

    /// The executor that is being tried.
    pub fn executor(&self) -> &'static dyn Executor {
        self.executors[self.tried.len()]
    }

    /// Tokens of this stream that complete the trial of this executor.
    fn needed(&self) -> usize {
        UNCOUNTED + STRETCHES.saturating_sub(self.stretches) * STRETCH
    }

    /// Takes the end of a run; whether this executor has been tried enough and nothing of it is under way.
    pub fn record(&mut self, now: Instant, idle: bool) -> bool {
        self.ends.push(now);
        self.ends.len() >= self.needed() && idle
    }

    /// Tokens that this executor's trial takes beyond those in flight.
    pub fn left(&self, in_flight: usize) -> usize {
        self.needed().saturating_sub(self.ends.len() + in_flight)
    }

    /// The trial as the next stream goes on with it.
    pub fn paused(mut self) -> Trial {
        let counted = self.ends.get(UNCOUNTED - 1..).unwrap_or_default();
        let starts = counted.iter().step_by(STRETCH);
        for (start, end) in starts.zip(counted.iter().step_by(STRETCH).skip(1)) {
            self.fastest = self.fastest.min((*end - *start) / STRETCH as u32);
            self.stretches += 1;
        }
        self.ends.clear();
        self
    }

    /// The trial of the next executor, or the result.
    pub fn next(self) -> Result<Trial, ModeChoice> {
        let Trial {
            executors,
            mut tried,
            fastest,
            ..
        } = self.paused();
        tried.push(fastest);
        if tried.len() < executors.len() {
            return Ok(Trial {
                tried,
                ..Trial::of(executors)
            });
        }
        let names = executors.iter().map(|executor| executor.name().to_owned());
        Err(ModeChoice {
            tokens: STRETCHES * STRETCH,
            us: names.zip(tried.iter().map(|time| time.as_secs_f64() * 1e6)).collect(),
        })
    }
}

/// Choices by device and model shape, in a file.
#[derive(Clone, Debug)]
pub struct ModeCache {
    path: PathBuf,
}

impl ModeCache {
    /// The choices kept in `directory`.
    pub fn new(directory: &Path) -> ModeCache {
        ModeCache {
            path: directory.join("modes.json"),
        }
    }

    /// What was chosen for `key`, if anything was.
    pub fn get(&self, key: &str) -> Option<ModeChoice> {
        self.read().remove(key)
    }

    /// Remembers a choice. A file that cannot be written is no failure: the choice is made again.
    pub fn put(&self, key: &str, choice: ModeChoice) {
        let mut choices = self.read();
        choices.insert(key.to_owned(), choice);
        let Ok(text) = serde_json::to_string_pretty(&choices) else {
            return;
        };
        let write = || {
            let folder = self.path.parent().unwrap_or(Path::new("."));
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            file.write_all(text.as_bytes())?;
            file.persist(&self.path)?;
            Ok::<(), std::io::Error>(())
        };
        let _ = write();
    }

    fn read(&self) -> BTreeMap<String, ModeChoice> {
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    /// The trial after `tokens` tokens of a stream, the time between two of which is `time`'s.
    fn ended(mut trial: Trial, tokens: usize, time: impl Fn(usize) -> u32) -> Trial {
        let mut now = Instant::now();
        for token in 0..tokens {
            assert_eq!(trial.left(1), trial.needed() - token - 1);
            let over = trial.record(now, true);
            assert_eq!(over, token + 1 >= trial.needed());
            now += time(token) * US;
        }
        trial
    }

    static EXECUTORS: &[&dyn Executor] = &[&refrain::Replay, &refrain::Eager];

    fn tried(replay: impl Fn(usize) -> u32, eager: impl Fn(usize) -> u32) -> ModeChoice {
        let trial = Trial::of(EXECUTORS);
        let tokens = trial.needed();
        let trial = ended(trial, tokens, replay).next().expect("eager is still to be tried");
        assert_eq!(trial.executor(), EXECUTORS[1]);
        ended(trial, tokens, eager).next().expect_err("both were tried")
    }

    #[test]
    fn another_executor_is_chosen_only_where_it_is_clearly_faster() {
        for (eager, name) in [(1100, "replay"), (999, "replay"), (960, "replay"), (940, "eager")] {
            let choice = tried(|_| 1000, |_| eager);
            assert_eq!(choice.executor(EXECUTORS).name(), name, "{eager}");
        }
    }

    #[test]
    fn what_disturbs_a_trial_does_not_decide_it() {
        // A hiccup of the machine, and a slow start.
        let disturbed = |token| if token == 20 || token < UNCOUNTED { 50_000 } else { 1000 };
        let choice = tried(disturbed, |_| 990);
        assert_eq!(choice.executor(EXECUTORS).name(), "replay", "{choice:?}");
        assert!((choice.us["replay"] - 1000.0).abs() < 1.0, "{choice:?}");
    }

    #[test]
    fn a_trial_goes_on_in_the_next_stream() {
        let mut trial = Trial::of(EXECUTORS);
        let mut streams = 0;
        while trial.stretches < STRETCHES {
            trial = ended(trial, UNCOUNTED + STRETCH, |_| 700).paused();
            streams += 1;
        }
        assert_eq!(streams, STRETCHES);
        assert_eq!(trial.fastest, 700 * US);
    }

    #[test]
    fn a_choice_is_remembered() {
        let choice = tried(|_| 700, |_| 900);
        assert!((choice.us["replay"] - 700.0).abs() < 1.0 && (choice.us["eager"] - 900.0).abs() < 1.0);

        let directory = tempfile::tempdir().unwrap();
        let cache = ModeCache::new(directory.path());
        assert_eq!(cache.get("card, model"), None);
        cache.put("card, model", choice.clone());
        assert_eq!(cache.get("card, model"), Some(choice));
        let few_tokens = r#"{"card, model": {"eager_us": 1.0, "replay_us": 2.0}}"#;
        let of_two = r#"{"card, model": {"tokens": 40, "eager_us": 1.0, "replay_us": 2.0}}"#;
        for old in ["not JSON", few_tokens, of_two] {
            std::fs::write(directory.path().join("modes.json"), old).unwrap();
            assert_eq!(cache.get("card, model"), None);
        }
        let files = std::fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(files, 1, "nothing is left beside the file");
    }
}
