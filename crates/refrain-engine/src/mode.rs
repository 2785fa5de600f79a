//! Chooses the executor that decodes: measured on the user's first tokens, and cached.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use refrain::Executor;
use serde::{Deserialize, Serialize};

use crate::Model;

/// First tokens of an executor that are not timed, because they fill the pipeline.
const WARMUP_TOKENS: usize = 8;
/// Timed tokens per sample. The fastest sample counts, since disturbances only make a sample longer.
const SAMPLE_TOKENS: usize = 8;
const SAMPLES: usize = 5;
/// Share of the default executor's time that another must stay below to be chosen: it costs much more CPU time.
const MAX_RELATIVE_TIME: f64 = 0.95;

/// How a session decodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// With the device's default executor, unless another was measured to be clearly faster.
    #[default]
    Auto,
    /// With this executor.
    Fixed(&'static dyn Executor),
}

/// A measurement of a device's executors.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModeChoice {
    /// Timed tokens of each executor. Files without this field timed fewer tokens and are measured again.
    pub tokens: usize,
    /// Microseconds per token, by executor name.
    pub us: BTreeMap<String, f64>,
}

impl ModeChoice {
    /// Returns the default executor, unless another is faster by more than the measurement error.
    pub fn executor(&self, executors: &'static [&'static dyn Executor]) -> &'static dyn Executor {
        let us = |executor: &&dyn Executor| self.us.get(executor.name()).copied().unwrap_or(f64::INFINITY);
        let default = executors[0];
        let is_faster = |executor: &&&dyn Executor| us(executor) < MAX_RELATIVE_TIME * us(&default);
        let others = executors.iter().filter(is_faster);
        let fastest = others.min_by(|one, other| us(one).total_cmp(&us(other)));
        fastest.copied().unwrap_or(default)
    }
}

/// Measures the executors one after the other on tokens that are needed anyway. It may span several streams.
#[derive(Clone, Debug)]
pub(crate) struct ModeTrial {
    /// The executors to measure.
    executors: &'static [&'static dyn Executor],
    /// Times per token of the executors measured so far.
    tried: Vec<Duration>,
    /// Ends of this stream's runs.
    ends: Vec<Instant>,
    /// Number of samples of earlier streams, and the fastest time per token among them.
    samples: usize,
    fastest: Duration,
}

impl ModeTrial {
    /// Starts with the default executor, which will usually be chosen.
    pub fn of(executors: &'static [&'static dyn Executor]) -> ModeTrial {
        ModeTrial {
            executors,
            tried: vec![],
            ends: vec![],
            samples: 0,
            fastest: Duration::MAX,
        }
    }

    /// Returns the executor that is being measured.
    pub fn executor(&self) -> &'static dyn Executor {
        self.executors[self.tried.len()]
    }

    /// Returns the tokens of this stream that complete the current measurement.
    fn needed(&self) -> usize {
        WARMUP_TOKENS + SAMPLES.saturating_sub(self.samples) * SAMPLE_TOKENS
    }

    /// Records the end of a run. Returns whether the executor has been measured completely and is idle.
    pub fn record(&mut self, now: Instant, idle: bool) -> bool {
        self.ends.push(now);
        self.ends.len() >= self.needed() && idle
    }

    /// Returns the tokens still to be submitted for this executor.
    pub fn left(&self, in_flight: usize) -> usize {
        self.needed().saturating_sub(self.ends.len() + in_flight)
    }

    /// Returns the trial for the next stream to resume.
    pub fn paused(mut self) -> ModeTrial {
        let counted = self.ends.get(WARMUP_TOKENS - 1..).unwrap_or_default();
        let starts = counted.iter().step_by(SAMPLE_TOKENS);
        for (start, end) in starts.zip(counted.iter().step_by(SAMPLE_TOKENS).skip(1)) {
            self.fastest = self.fastest.min((*end - *start) / SAMPLE_TOKENS as u32);
            self.samples += 1;
        }
        self.ends.clear();
        self
    }

    /// Returns the trial of the next executor, or the result.
    pub fn next(self) -> Result<ModeTrial, ModeChoice> {
        let ModeTrial {
            executors,
            mut tried,
            fastest,
            ..
        } = self.paused();
        tried.push(fastest);
        if tried.len() < executors.len() {
            return Ok(ModeTrial {
                tried,
                ..ModeTrial::of(executors)
            });
        }
        let names = executors.iter().map(|executor| executor.name().to_owned());
        Err(ModeChoice {
            tokens: SAMPLES * SAMPLE_TOKENS,
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
    /// Opens the cache in `directory`.
    pub fn new(directory: &Path) -> ModeCache {
        ModeCache {
            path: directory.join("modes.json"),
        }
    }

    /// Returns the executor that was measured to be the fastest for single sequences of a model, if any was.
    pub fn executor(&self, model: &Model) -> Option<&'static dyn Executor> {
        let choice = self.get(&shape_key(model, 1))?;
        Some(choice.executor(model.device().executors()))
    }

    /// Returns the choice for `key`, if any.
    pub fn get(&self, key: &str) -> Option<ModeChoice> {
        self.read().remove(key)
    }

    /// Stores a choice. Write errors are ignored: the choice is then measured again.
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

/// Returns the key that a stored choice of mode depends on.
pub(crate) fn shape_key(model: &Model, sequences: usize) -> String {
    let config = model.config();
    let driver = model.device().as_vulkan().map(|device| {
        let info = device.info();
        format!("{} {} ({})", info.driver_name, info.driver_info, device.features())
    });
    format!(
        "{} {} · {:?} {} layers of {} · {} bytes · {} at once",
        model.device().name(),
        driver.unwrap_or_default(),
        config.family,
        config.layers,
        config.hidden_size,
        model.weight_bytes(),
        sequences
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    /// Simulates a stream of `tokens` tokens; `time` returns the microseconds after each.
    fn ended(mut trial: ModeTrial, tokens: usize, time: impl Fn(usize) -> u32) -> ModeTrial {
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
        let trial = ModeTrial::of(EXECUTORS);
        let tokens = trial.needed();
        let trial = ended(trial, tokens, replay).next().expect("eager is still to be tried");
        assert_eq!(trial.executor(), EXECUTORS[1]);
        ended(trial, tokens, eager).next().expect_err("both were tried")
    }

    #[test]
    fn chooses_another_executor_only_if_clearly_faster() {
        for (eager, name) in [(1100, "replay"), (999, "replay"), (960, "replay"), (940, "eager")] {
            let choice = tried(|_| 1000, |_| eager);
            assert_eq!(choice.executor(EXECUTORS).name(), name, "{eager}");
        }
    }

    #[test]
    fn disturbances_do_not_decide_a_trial() {
        // A hiccup of the machine, and a slow start.
        let disturbed = |token| {
            if token == 20 || token < WARMUP_TOKENS {
                50_000
            } else {
                1000
            }
        };
        let choice = tried(disturbed, |_| 990);
        assert_eq!(choice.executor(EXECUTORS).name(), "replay", "{choice:?}");
        assert!((choice.us["replay"] - 1000.0).abs() < 1.0, "{choice:?}");
    }

    #[test]
    fn trials_resume_in_the_next_stream() {
        let mut trial = ModeTrial::of(EXECUTORS);
        let mut streams = 0;
        while trial.samples < SAMPLES {
            trial = ended(trial, WARMUP_TOKENS + SAMPLE_TOKENS, |_| 700).paused();
            streams += 1;
        }
        assert_eq!(streams, SAMPLES);
        assert_eq!(trial.fastest, 700 * US);
    }

    #[test]
    fn caches_choices() {
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
