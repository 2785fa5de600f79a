//! Which executor decodes: measured on the user's own first tokens, and remembered.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use refrain::TapeMode;
use serde::{Deserialize, Serialize};

/// The first tokens that a mode is tried for are uncounted: they fill the pipeline.
const UNCOUNTED: usize = 8;
/// Those behind are timed in stretches of so many, the fastest of which counts: what disturbs a measurement
/// makes it longer.
const STRETCH: usize = 8;
const STRETCHES: usize = 5;
/// Of the time that replay takes, what eager must stay below: it costs the CPU many times as much.
const WORTH_IT: f64 = 0.95;

/// How a session decodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Replay, unless eager was measured to be clearly faster.
    #[default]
    Auto,
    /// Commands are translated and submitted for each token.
    Eager,
    /// Commands are recorded once and replayed.
    Replay,
}

/// A measurement of both modes.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModeChoice {
    /// Tokens that were timed in each. (Older files do not say, for they were few: those are measured anew.)
    pub tokens: usize,
    /// Microseconds per token, commands translated each time.
    pub eager_us: f64,
    /// Microseconds per token in replay.
    pub replay_us: f64,
}

impl ModeChoice {
    /// Replay, unless eager is faster by more than a measurement may be wrong.
    pub fn mode(&self) -> TapeMode {
        if self.eager_us < WORTH_IT * self.replay_us {
            TapeMode::Eager
        } else {
            TapeMode::Replay
        }
    }
}

/// A trial of one mode after the other, on tokens that somebody wants anyway; it may go over several streams.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    pub mode: TapeMode,
    /// Ends of this stream's runs.
    ends: Vec<Instant>,
    /// Stretches of earlier streams, and the time per token of the fastest.
    stretches: usize,
    fastest: Duration,
    replay: Option<Duration>,
}

impl Default for Trial {
    /// Replay is tried first: it is what most will stay with.
    fn default() -> Trial {
        Trial::of(TapeMode::Replay, None)
    }
}

impl Trial {
    fn of(mode: TapeMode, replay: Option<Duration>) -> Trial {
        Trial {
            mode,
            ends: vec![],
            stretches: 0,
            fastest: Duration::MAX,
            replay,
        }
    }

    /// Tokens of this stream that complete the trial of this mode.
    fn needed(&self) -> usize {
        UNCOUNTED + STRETCHES.saturating_sub(self.stretches) * STRETCH
    }

    /// Takes the end of a run; whether this mode has been tried enough and nothing of it is under way.
    pub fn record(&mut self, now: Instant, idle: bool) -> bool {
        self.ends.push(now);
        self.ends.len() >= self.needed() && idle
    }

    /// Tokens that this mode's trial takes beyond those in flight.
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

    /// The trial of the other mode, or the result.
    pub fn next(self) -> Result<Trial, ModeChoice> {
        let Trial { fastest, replay, .. } = self.paused();
        match replay {
            None => Ok(Trial::of(TapeMode::Eager, Some(fastest))),
            Some(replay) => Err(ModeChoice {
                tokens: STRETCHES * STRETCH,
                eager_us: fastest.as_secs_f64() * 1e6,
                replay_us: replay.as_secs_f64() * 1e6,
            }),
        }
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

    fn tried(replay: impl Fn(usize) -> u32, eager: impl Fn(usize) -> u32) -> ModeChoice {
        let trial = Trial::default();
        let tokens = trial.needed();
        let trial = ended(trial, tokens, replay).next().expect("eager is still to be tried");
        assert_eq!(trial.mode, TapeMode::Eager);
        ended(trial, tokens, eager).next().expect_err("both were tried")
    }

    #[test]
    fn eager_is_chosen_only_where_it_is_clearly_faster() {
        for (eager, mode) in [
            (1100, TapeMode::Replay),
            (999, TapeMode::Replay),
            (960, TapeMode::Replay),
            (940, TapeMode::Eager),
        ] {
            assert_eq!(tried(|_| 1000, |_| eager).mode(), mode, "{eager}");
        }
    }

    #[test]
    fn what_disturbs_a_trial_does_not_decide_it() {
        // A hiccup of the machine, and a slow start.
        let disturbed = |token| if token == 20 || token < UNCOUNTED { 50_000 } else { 1000 };
        let choice = tried(disturbed, |_| 990);
        assert_eq!(choice.mode(), TapeMode::Replay, "{choice:?}");
        assert!((choice.replay_us - 1000.0).abs() < 1.0, "{choice:?}");
    }

    #[test]
    fn a_trial_goes_on_in_the_next_stream() {
        let mut trial = Trial::default();
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
        assert!((choice.replay_us - 700.0).abs() < 1.0 && (choice.eager_us - 900.0).abs() < 1.0);

        let directory = tempfile::tempdir().unwrap();
        let cache = ModeCache::new(directory.path());
        assert_eq!(cache.get("card, model"), None);
        cache.put("card, model", choice);
        assert_eq!(cache.get("card, model"), Some(choice));
        let few_tokens = r#"{"card, model": {"eager_us": 1.0, "replay_us": 2.0}}"#;
        for old in ["not JSON", few_tokens] {
            std::fs::write(directory.path().join("modes.json"), old).unwrap();
            assert_eq!(cache.get("card, model"), None);
        }
        let files = std::fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(files, 1, "nothing is left beside the file");
    }
}
