//! What can be changed while a chat is under way.

use clap::error::ErrorKind;
use clap::{Args, FromArgMatches};
use refrain_engine::SamplerOptions;
use serde_json::Value;

use super::dialogue::OnFull;
use crate::numbers::most_tokens;
use crate::sampling::{self, SamplingArguments};

/// The options that `/set` knows: those of the command line, by the same names and within the same bounds.
#[derive(Debug, Clone, Args)]
pub(super) struct ChatSettings {
    #[command(flatten)]
    pub sampling: SamplingArguments,
    #[arg(long, aliases = ["n", "n-predict", "predict", "num-predict"], value_parser = most_tokens)]
    pub max_tokens: Option<usize>,
    #[arg(long, value_enum)]
    pub on_full: Option<OnFull>,
}

impl ChatSettings {
    /// Changes one of them.
    ///
    /// # Errors
    /// If there is none of that name, or the value cannot be meant. Then nothing is changed.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let command = Self::augment_args(clap::Command::new("/set").no_binary_name(true).disable_help_flag(true));
        let found = command.try_get_matches_from([format!("--{name}={value}")]);
        let changed = found.and_then(|mut found| {
            let mut changed = self.clone();
            changed.update_from_arg_matches_mut(&mut found)?;
            Ok(changed)
        });
        *self = changed.map_err(|error| match error.kind() {
            ErrorKind::UnknownArgument => format!("there is no setting {name}; /set lists them"),
            _ => {
                let text = error.to_string();
                let line = text.lines().next().unwrap_or_default();
                line.strip_prefix("error: ").unwrap_or(line).to_owned()
            }
        })?;
        Ok(())
    }

    /// All of them for people, by names that [`ChatSettings::set`] takes.
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
        let most = self.max_tokens.map_or("no limit".to_owned(), |most| most.to_string());
        lines.push(format!("  {:<20}{most}", "max-tokens"));
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
    fn a_setting_changes_alone() {
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
        let checkpoint = crate::demo::checkpoint().unwrap();
        let options = sampling::options(&settings.sampling, &checkpoint).unwrap();
        assert_eq!((options.temperature, options.presence_penalty), (0.25, -1.5));
        let told = settings.describe(&options);
        assert!(
            told.contains("temperature") && told.contains("0.25") && told.contains("stop"),
            "{told}"
        );
    }

    #[test]
    fn what_cannot_be_set_is_refused_in_one_line() {
        let mut settings = settings();
        let mut refused = |name, value| settings.set(name, value).unwrap_err();
        assert!(refused("mood", "fine").contains("no setting mood"));
        for (name, value) in [("temp", "hot"), ("top-p", "2"), ("on-full", "wait"), ("help", "me")] {
            let error = refused(name, value);
            assert!(!error.contains('\n') && !error.starts_with("error"), "{error}");
        }
    }
}
