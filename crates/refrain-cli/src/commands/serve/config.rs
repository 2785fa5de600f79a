//! The models to serve: those of the command line, and those of the file that `--config` names.

use std::time::Duration;

use anyhow::{Context, bail};
use refrain_engine::{Sampler, SamplerOptions};
use refrain_server::{ModelStay, keep_alive};
use serde_json::{Map, Value};

use super::Arguments;

/// A model to serve.
#[derive(Debug, Clone, Default)]
pub(super) struct ModelEntry {
    pub model: String,
    pub aliases: Vec<String>,
    /// Context length in tokens; `None` for the server's.
    pub context: Option<u32>,
    pub stay: ModelStay,
    pub sampler: SamplerDefaults,
}

/// Sampling settings of requests that do not give them; `None` for the model's own.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct SamplerDefaults {
    temperature: Option<f32>,
    top_k: Option<usize>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    repeat_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
}

impl SamplerDefaults {
    pub fn apply(&self, options: &mut SamplerOptions) {
        options.temperature = self.temperature.unwrap_or(options.temperature);
        options.top_k = self.top_k.unwrap_or(options.top_k);
        options.top_p = self.top_p.unwrap_or(options.top_p);
        options.min_p = self.min_p.unwrap_or(options.min_p);
        options.repeat_penalty = self.repeat_penalty.unwrap_or(options.repeat_penalty);
        options.presence_penalty = self.presence_penalty.unwrap_or(options.presence_penalty);
        options.frequency_penalty = self.frequency_penalty.unwrap_or(options.frequency_penalty);
    }
}

impl Arguments {
    /// Returns the models of the command line and of the file.
    ///
    /// With one model on the command line, each `--alias` names it. With several, each `--alias` belongs to one of
    /// them, in order.
    ///
    /// # Errors
    /// If there are more aliases than models, or the file cannot be read.
    pub(super) fn entries(&self) -> anyhow::Result<Vec<ModelEntry>> {
        if self.models.len() != 1 && self.alias.len() > self.models.len() {
            bail!("--alias is given more often than there are models; give one per model, in order");
        }
        let split = |text: &String| text.split(',').map(|name| name.trim().to_owned()).collect::<Vec<_>>();
        let aliases = |index: usize| match self.models.len() {
            1 => self.alias.iter().flat_map(split).collect(),
            _ => self.alias.get(index).map(split).unwrap_or_default(),
        };
        let named = self.models.iter().enumerate().map(|(index, model)| ModelEntry {
            model: model.clone(),
            aliases: aliases(index),
            ..ModelEntry::default()
        });
        let mut entries: Vec<ModelEntry> = named.collect();
        if let Some(path) = &self.config {
            let shown = path.display();
            let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
            entries.extend(parse(&text).map_err(|why| anyhow::anyhow!("{shown}: {why}"))?);
        }
        Ok(entries)
    }
}

/// The settings of one table, of which all must be known.
struct Settings {
    place: String,
    fields: Map<String, Value>,
}

impl Settings {
    fn new(place: &str, value: Value) -> anyhow::Result<Settings> {
        match value {
            Value::Object(fields) => Ok(Settings {
                place: place.to_owned(),
                fields,
            }),
            _ => bail!("{place} must be a table"),
        }
    }

    fn take<T>(&mut self, name: &str, expected: &str, read: impl Fn(&Value) -> Option<T>) -> anyhow::Result<Option<T>> {
        let Some(value) = self.fields.remove(name) else {
            return Ok(None);
        };
        let place = &self.place;
        let found = read(&value).with_context(|| format!("{name} of {place} must be {expected}, not {value}"))?;
        Ok(Some(found))
    }

    fn number(&mut self, name: &str) -> anyhow::Result<Option<f32>> {
        self.take(name, "a number", |value| Some(value.as_f64()? as f32))
    }

    fn finish(self) -> anyhow::Result<()> {
        match self.fields.keys().next() {
            Some(name) => bail!("{} has no setting {name}", self.place),
            None => Ok(()),
        }
    }
}

fn parse(text: &str) -> anyhow::Result<Vec<ModelEntry>> {
    let value: Value = toml::from_str(text)?;
    let mut file = Settings::new("the file", value)?;
    let models = file.take("models", "a list of tables, each as [[models]]", |models| {
        models.as_array().cloned()
    })?;
    file.finish()?;
    let models = models
        .filter(|models| !models.is_empty())
        .context("no models; each is a table [[models]]")?;
    models.into_iter().map(model_entry).collect()
}

fn model_entry(value: Value) -> anyhow::Result<ModelEntry> {
    let mut settings = Settings::new("[[models]]", value)?;
    let texts = |value: &Value| match value {
        Value::String(text) => Some(vec![text.clone()]),
        Value::Array(texts) => texts.iter().map(|text| text.as_str().map(str::to_owned)).collect(),
        _ => None,
    };
    let stay = |value: &Value| value.as_str().and_then(|text| keep_alive(text).ok());
    let count = |value: &Value| {
        value
            .as_u64()
            .and_then(|count| u32::try_from(count).ok())
            .filter(|count| *count >= 2)
    };
    let model = settings.take("model", "a string", |value| value.as_str().map(str::to_owned))?;
    let aliases = settings.take("alias", "a name or a list of names", texts)?;
    let context = settings.take("ctx", "a number of tokens", count)?;
    let is_pinned = settings.take("pin", "true or false", Value::as_bool)?;
    let stays: Option<Option<Duration>> = settings.take("keep-alive", "a time such as \"5m\"", stay)?;
    let sampler = settings.take("sampler", "a table", |value| Some(value.clone()))?;
    settings.finish()?;
    Ok(ModelEntry {
        model: model.context("a table of [[models]] has no model")?,
        aliases: aliases.unwrap_or_default(),
        context,
        stay: ModelStay {
            keep_alive: stays,
            is_pinned: is_pinned.unwrap_or_default(),
        },
        sampler: sampler.map(sampler_defaults).transpose()?.unwrap_or_default(),
    })
}

fn sampler_defaults(value: Value) -> anyhow::Result<SamplerDefaults> {
    let mut settings = Settings::new("[models.sampler]", value)?;
    let count = |value: &Value| value.as_u64().and_then(|count| usize::try_from(count).ok());
    let sampler = SamplerDefaults {
        temperature: settings.number("temperature")?,
        top_k: settings.take("top-k", "an integer of at least 0", count)?,
        top_p: settings.number("top-p")?,
        min_p: settings.number("min-p")?,
        repeat_penalty: settings.number("repeat-penalty")?,
        presence_penalty: settings.number("presence-penalty")?,
        frequency_penalty: settings.number("frequency-penalty")?,
    };
    settings.finish()?;
    let mut options = SamplerOptions::default();
    sampler.apply(&mut options);
    Sampler::new(options).map_err(|why| anyhow::anyhow!("[models.sampler]: {why}"))?;
    Ok(sampler)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_models_with_their_settings() {
        let text = r#"
            [[models]]
            model = "Qwen/Qwen3-8B"
            alias = ["qwen", "*"]
            ctx = 16384
            pin = true

            [models.sampler]
            temperature = 0.6
            top-k = 20

            [[models]]
            model = "demo"
            keep-alive = "5m"
        "#;
        let [first, second] = &parse(text).unwrap()[..] else {
            panic!("two models")
        };
        assert_eq!(
            (&first.model[..], &first.aliases[..]),
            ("Qwen/Qwen3-8B", &["qwen".to_owned(), "*".to_owned()][..])
        );
        assert_eq!((first.context, first.stay.is_pinned), (Some(16_384), true));
        assert_eq!((first.sampler.temperature, first.sampler.top_k), (Some(0.6), Some(20)));
        assert_eq!(second.stay.keep_alive, Some(Some(Duration::from_secs(300))));
        assert_eq!(second.sampler, SamplerDefaults::default());
    }

    #[test]
    fn errors_name_the_setting() {
        for (text, expected) in [
            ("", "no models"),
            ("models = 7", "models of the file must be a list"),
            ("[[models]]\nalias = \"a\"", "has no model"),
            (
                "[[models]]\nmodel = \"demo\"\nctx = \"x\"",
                "ctx of [[models]] must be a number of tokens",
            ),
            (
                "[[models]]\nmodel = \"demo\"\ntemp = 1",
                "[[models]] has no setting temp",
            ),
            (
                "[[models]]\nmodel = \"demo\"\nkeep-alive = \"soon\"",
                "keep-alive of [[models]] must be a time",
            ),
            (
                "[[models]]\nmodel = \"demo\"\n[models.sampler]\ntop-p = \"x\"",
                "top-p of [models.sampler] must be a number",
            ),
            (
                "[[models]]\nmodel = \"demo\"\n[models.sampler]\ntemperature = -3",
                "[models.sampler]: temperature is -3",
            ),
            (
                "[[models]]\nmodel = \"demo\"\n[models.sampler]\nrepeat-penalty = 0",
                "[models.sampler]: ",
            ),
            ("[[models]", "TOML"),
        ] {
            let why = format!("{:#}", parse(text).unwrap_err());
            assert!(why.contains(expected), "{text}: {why}");
        }
    }
}
