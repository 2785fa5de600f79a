//! Settings that can be changed during a chat.

use clap::error::ErrorKind;
use clap::{Args, FromArgMatches};
use refrain_engine::SamplerOptions;
use serde_json::Value;

use super::session::OnFull;
use crate::sampling::{self, SamplingArguments};
use crate::value_parsers::token_limit;

/// The settings of `/set`: command-line options, with the same names and ranges.
#[derive(Debug, Clone, Args)]
pub(super) struct ChatSettings {
    #[command(flatten)]
    pub sampling: SamplingArguments,
    #[arg(long, aliases = ["n", "n-predict", "predict", "num-predict"], value_parser = token_limit)]
    pub max_tokens: Option<usize>,
    #[arg(long, value_enum)]
    pub on_full: Option<OnFull>,
}

impl ChatSettings {
    /// Changes a setting.
    ///
    /// # Errors
    /// If the name is unknown or the value is invalid. Then nothing changes.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let command = Self::augment_args(clap::Command::new("/set").no_binary_name(true).disable_help_flag(true));
        let found = command.try_get_matches_from([format!("--{name}={value}")]);
        let changed = found.and_then(|mut found| {
            let mut changed = self.clone();
            changed.update_from_arg_matches_mut(&mut found)?;
            Ok(changed)
        });
        *self = changed.map_err(|error| match error.kind() {
            ErrorKind::UnknownArgument => format!("unknown setting {name}; /set lists the settings"),
            _ => {
                let text = error.to_string();
                let line = text.lines().next().unwrap_or_default();
                line.strip_prefix("error: ").unwrap_or(line).to_owned()
            }
        })?;
        Ok(())
    }

    /// Lists all settings, with names that [`ChatSettings::set`] accepts.
    pub fn describe(&self, options: &SamplerOptions) -> String {
        let mut lines = Vec::new();
        if let Value::Object(sampling) = sampling::json(options) {
            let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let list = |values: &Vec<Value>| values.iter().map(shown).collect::<Vec<_>>().join(" ");
            for (name, value) in &sampling {
                let value = value.as_array().map_or_else(|| shown(value), list);
                lines.push(format!("  {:<20}{value}", name.replace('_', "-")));
            }
        }
        let max_tokens = self.max_tokens.map_or("no limit".to_owned(), |limit| limit.to_string());
        lines.push(format!("  {:<20}{max_tokens}", "max-tokens"));
        let on_full = format!("{:?}", self.on_full.unwrap_or_default()).to_lowercase();
        lines.push(format!("  {:<20}{on_full}", "on-full"));
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> ChatSettings {
        ChatSettings {
            sampling: SamplingArguments::default(),
            max_tokens: Some(7),
            on_full: None,
        }
    }

    #[test]
    fn changes_one_setting() {
        let mut settings = settings();
        for (name, value) in [
            ("temp", "0.5"),
            ("on-full", "stop"),
            ("seed", "3"),
            ("presence-penalty", "-1.5"),
        ] {
            settings.set(name, value).unwrap();
        }
        settings.set("temperature", "0.25").unwrap();
        assert_eq!((settings.max_tokens, settings.on_full), (Some(7), Some(OnFull::Stop)));
        assert_eq!(settings.sampling.seed, Some(3));
        let checkpoint = refrain_models::demo::checkpoint().unwrap();
        let options = sampling::options(&settings.sampling, &checkpoint).unwrap();
        assert_eq!((options.temperature, options.presence_penalty), (0.25, -1.5));
        let text = settings.describe(&options);
        assert!(
            text.contains("temperature") && text.contains("0.25") && text.contains("stop"),
            "{text}"
        );
    }

    #[test]
    fn rejects_invalid_settings_in_one_line() {
        let mut settings = settings();
        let mut refused = |name, value| settings.set(name, value).unwrap_err();
        assert!(refused("mood", "fine").contains("unknown setting mood"));
        for (name, value) in [("temp", "hot"), ("top-p", "2"), ("on-full", "wait"), ("help", "me")] {
            let error = refused(name, value);
            assert!(!error.contains('\n') && !error.starts_with("error"), "{error}");
        }
    }
}
