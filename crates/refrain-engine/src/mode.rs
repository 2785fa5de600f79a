//! Which executor decodes: measured on the user's own first tokens, and remembered.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use refrain::TapeMode;
use serde::{Deserialize, Serialize};

/// Tokens that each mode is tried for, the first few uncounted: they fill the pipeline.
const TRIED: usize = 12;
const UNCOUNTED: usize = 4;

/// How a session decodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Whichever was measured to be faster.
    #[default]
    Auto,
    /// Commands are translated and submitted for each token.
    Eager,
    /// Commands are recorded once and replayed.
    Replay,
}

/// A measurement of both modes.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Choice {
    /// Microseconds per token, commands translated each time.
    pub eager_us: f64,
    /// Microseconds per token in replay.
    pub replay_us: f64,
}

impl Choice {
    /// The faster mode.
    pub fn mode(&self) -> TapeMode {
        if self.eager_us < self.replay_us {
            TapeMode::Eager
        } else {
            TapeMode::Replay
        }
    }
}

/// A trial of one mode after the other, on tokens that somebody wants anyway.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    pub mode: TapeMode,
    ends: Vec<Instant>,
    replay: Option<Duration>,
}

impl Trial {
    /// Replay is tried first: it is what most will stay with.
    pub fn new() -> Trial {
        Trial {
            mode: TapeMode::Replay,
            ends: vec![],
            replay: None,
        }
    }

    /// Takes the end of a run; whether this mode has been tried enough and nothing of it is under way.
    pub fn record(&mut self, now: Instant, idle: bool) -> bool {
        self.ends.push(now);
        self.ends.len() >= TRIED && idle
    }

    /// Whether what is in flight completes the trial of this mode.
    pub fn is_over_with(&self, in_flight: usize) -> bool {
        self.ends.len() + in_flight >= TRIED
    }

    /// The trial of the other mode, or the result.
    pub fn next(self) -> Result<Trial, Choice> {
        let counted = &self.ends[UNCOUNTED.min(self.ends.len())..];
        let per_token = match counted {
            [first, .., last] => (*last - *first) / (counted.len() as u32 - 1),
            _ => Duration::ZERO,
        };
        match self.replay {
            None => Ok(Trial {
                mode: TapeMode::Eager,
                ends: vec![],
                replay: Some(per_token),
            }),
            Some(replay) => Err(Choice {
                eager_us: per_token.as_secs_f64() * 1e6,
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
    pub fn get(&self, key: &str) -> Option<Choice> {
        self.read().remove(key)
    }

    /// Remembers a choice. A file that cannot be written is no failure: the choice is made again.
    pub fn put(&self, key: &str, choice: Choice) {
        let mut choices = self.read();
        choices.insert(key.to_owned(), choice);
        let Ok(text) = serde_json::to_string_pretty(&choices) else {
            return;
        };
        let temporary = self.path.with_extension(format!("{}.tmp", std::process::id()));
        if std::fs::write(&temporary, text).is_ok() && std::fs::rename(&temporary, &self.path).is_err() {
            let _ = std::fs::remove_file(&temporary);
        }
    }

    fn read(&self) -> BTreeMap<String, Choice> {
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(mut trial: Trial, every: Duration) -> Trial {
        let start = Instant::now();
        for token in 0..TRIED as u32 {
            trial.record(start + every * token, true);
        }
        trial
    }

    #[test]
    fn the_faster_mode_is_chosen_and_remembered() {
        let replay = ended(Trial::new(), Duration::from_micros(700));
        let eager = replay.next().expect("eager is still to be tried");
        assert_eq!(eager.mode, TapeMode::Eager);
        let choice = ended(eager, Duration::from_micros(900))
            .next()
            .expect_err("both were tried");
        assert_eq!(choice.mode(), TapeMode::Replay);
        assert!((choice.replay_us - 700.0).abs() < 1.0 && (choice.eager_us - 900.0).abs() < 1.0);

        let directory = tempfile::tempdir().unwrap();
        let cache = ModeCache::new(directory.path());
        assert_eq!(cache.get("card, model"), None);
        cache.put("card, model", choice);
        assert_eq!(cache.get("card, model"), Some(choice));
        std::fs::write(directory.path().join("modes.json"), "not JSON").unwrap();
        assert_eq!(cache.get("card, model"), None);
    }
}
