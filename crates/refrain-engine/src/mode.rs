//! The executor that decodes: the device's default, or another that was measured to be faster.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use refrain::Executor;
use serde::{Deserialize, Serialize};

use crate::Model;

/// Share of the default executor's time that another must stay below to be chosen: it costs much more CPU time.
const MAX_RELATIVE_TIME: f64 = 0.95;

/// How tokens are decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// With the device's default executor, or another that a caller measured to be clearly faster ([`ModeCache`]).
    #[default]
    Auto,
    /// With this executor.
    Fixed(&'static dyn Executor),
}

/// A measurement of a device's executors.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
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

    /// Returns what was measured for single sequences of a model, if anything was.
    pub fn choice(&self, model: &Model) -> Option<ModeChoice> {
        self.get(&shape_key(model))
    }

    /// Stores what was measured for single sequences of a model. Write errors are ignored: it is then measured again.
    pub fn keep(&self, model: &Model, choice: ModeChoice) {
        self.put(&shape_key(model), choice);
    }

    fn get(&self, key: &str) -> Option<ModeChoice> {
        self.read().remove(key)
    }

    fn put(&self, key: &str, choice: ModeChoice) {
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
fn shape_key(model: &Model) -> String {
    let config = model.config();
    let driver = model.device().as_vulkan().map(|device| {
        let info = device.info();
        format!("{} {} ({})", info.driver_name, info.driver_info, device.features())
    });
    format!(
        "{} {} · {:?} {} layers of {} · {} bytes · 1 at once",
        model.device().name(),
        driver.unwrap_or_default(),
        config.family,
        config.layers,
        config.hidden_size,
        model.weight_bytes()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    static EXECUTORS: &[&dyn Executor] = &[&refrain::Replay, &refrain::Eager];

    fn choice(replay: f64, eager: f64) -> ModeChoice {
        let us = [("replay", replay), ("eager", eager)];
        ModeChoice {
            tokens: 40,
            us: us.map(|(name, us)| (name.to_owned(), us)).into(),
        }
    }

    #[test]
    fn chooses_another_executor_only_if_clearly_faster() {
        for (eager, name) in [
            (1100.0, "replay"),
            (999.0, "replay"),
            (960.0, "replay"),
            (940.0, "eager"),
        ] {
            let choice = choice(1000.0, eager);
            assert_eq!(choice.executor(EXECUTORS).name(), name, "{eager}");
        }
    }

    #[test]
    fn caches_choices() {
        let choice = choice(700.0, 900.0);
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
