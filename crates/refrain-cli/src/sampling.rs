//! Sampling options: the command line first, then the model's suggestions.

use clap::Args;
use refrain_engine::{SamplerOptions, random_seed};
use refrain_formats::GenerationConfig;
use refrain_models::Checkpoint;
use serde_json::{Value, json};

use crate::Usage;
use crate::output::json_f32;
use crate::value_parsers::{count, seed};

/// Sampling options. Unset ones come from the model's generation_config.json (`do_sample: false` means temperature 0),
/// else from llama.cpp's defaults.
#[derive(Debug, Clone, Args, Default)]
#[command(next_help_heading = "Sampling (defaults: the model's generation_config.json, else as listed)")]
pub(crate) struct SamplingArguments {
    /// Temperature; 0 is greedy [else: 0.8]
    #[arg(long, alias = "temperature", value_name = "T", value_parser = non_negative)]
    temp: Option<f32>,
    /// Top-k sampling: keep the K most likely tokens; 0 disables [else: 40]
    #[arg(long, value_name = "K", value_parser = count)]
    top_k: Option<usize>,
    /// Top-p (nucleus) sampling: keep the most likely tokens that add up to probability P; 1 disables [else: 0.95]
    #[arg(long, value_name = "P", value_parser = positive_share)]
    top_p: Option<f32>,
    /// Min-p sampling: keep tokens with at least P times the top token's probability; 0 disables [else: 0.05]
    #[arg(long, value_name = "P", value_parser = share)]
    min_p: Option<f32>,
    /// Repetition penalty: divide positive and multiply negative logits of recent tokens by F; 1 disables [else: 1]
    #[arg(long, value_name = "F", value_parser = positive)]
    repeat_penalty: Option<f32>,
    /// Subtract F once from the logits of recent tokens [default: 0]
    #[arg(long, value_name = "F", value_parser = finite)]
    presence_penalty: Option<f32>,
    /// Subtract F from the logits of recent tokens for each occurrence [default: 0]
    #[arg(long, value_name = "F", value_parser = finite)]
    frequency_penalty: Option<f32>,
    /// Number of last tokens that the penalties consider, prompt included [default: 64]
    #[arg(long, value_name = "N", value_parser = count)]
    repeat_last_n: Option<usize>,
    /// Add a bias to a token's logit, such as 42+1.5 or 42-1.5; 42-inf bans the token (may be repeated)
    #[arg(long, value_name = "ID±BIAS", value_parser = logit_bias)]
    logit_bias: Vec<(u32, f32)>,
    /// Random seed; the same seed gives the same text [default: random]
    #[arg(long, short_alias = 's', value_name = "N", value_parser = seed)]
    pub seed: Option<u64>,
}

/// Resolves the sampler options for a checkpoint.
///
/// # Errors
/// If a biased token is outside the vocabulary.
pub(crate) fn options(arguments: &SamplingArguments, checkpoint: &Checkpoint) -> Result<SamplerOptions, Usage> {
    let vocabulary = checkpoint.config().vocab_size;
    match arguments.logit_bias.iter().find(|(id, _)| *id as usize >= vocabulary) {
        None => Ok(combined(arguments, checkpoint.generation())),
        Some((id, _)) => Err(Usage(format!(
            "--logit-bias: token id {id} is out of range: the vocabulary has {vocabulary} tokens"
        ))),
    }
}

/// The command line first, then the model's suggestions.
fn combined(arguments: &SamplingArguments, model: &GenerationConfig) -> SamplerOptions {
    let suggested = SamplerOptions::suggested(model);
    SamplerOptions {
        temperature: arguments.temp.unwrap_or(suggested.temperature),
        top_k: arguments.top_k.unwrap_or(suggested.top_k),
        top_p: arguments.top_p.unwrap_or(suggested.top_p),
        min_p: arguments.min_p.unwrap_or(suggested.min_p),
        repeat_penalty: arguments.repeat_penalty.unwrap_or(suggested.repeat_penalty),
        presence_penalty: arguments.presence_penalty.unwrap_or(suggested.presence_penalty),
        frequency_penalty: arguments.frequency_penalty.unwrap_or(suggested.frequency_penalty),
        repeat_last: arguments.repeat_last_n.unwrap_or(suggested.repeat_last),
        penalises_generated: false,
        logit_bias: arguments.logit_bias.clone(),
        seed: arguments.seed.unwrap_or_else(random_seed),
    }
}

/// The options as JSON.
pub(crate) fn json(options: &SamplerOptions) -> Value {
    json!({
        "temperature": json_f32(options.temperature),
        "top_k": options.top_k,
        "top_p": json_f32(options.top_p),
        "min_p": json_f32(options.min_p),
        "repeat_penalty": json_f32(options.repeat_penalty),
        "presence_penalty": json_f32(options.presence_penalty),
        "frequency_penalty": json_f32(options.frequency_penalty),
        "repeat_last_n": options.repeat_last,
        // As strings, because JSON has no infinity.
        "logit_bias": options.logit_bias.iter().map(|(id, bias)| format!("{id}{bias:+}")).collect::<Vec<_>>(),
        "seed": options.seed,
    })
}

fn non_negative(text: &str) -> Result<f32, String> {
    number(text, |value| value >= 0.0, "a number of 0 or more")
}

fn positive(text: &str) -> Result<f32, String> {
    number(text, |value| value > 0.0, "a number above 0")
}

fn share(text: &str) -> Result<f32, String> {
    number(text, |value| (0.0..=1.0).contains(&value), "a number from 0 to 1")
}

fn positive_share(text: &str) -> Result<f32, String> {
    number(
        text,
        |value| value > 0.0 && value <= 1.0,
        "a number above 0 and at most 1",
    )
}

fn finite(text: &str) -> Result<f32, String> {
    number(text, |_| true, "a number")
}

/// Parses a token id and a bias, such as `42+1.5`, `42-1.5` and `42-inf`.
fn logit_bias(text: &str) -> Result<(u32, f32), String> {
    let parts = text.find(['+', '-']).map(|sign| text.split_at(sign));
    let parsed = parts.and_then(|(id, bias)| Some((id.parse().ok()?, bias.parse::<f32>().ok()?)));
    let usable = |bias: f32| bias.is_finite() || bias == f32::NEG_INFINITY;
    parsed
        .filter(|&(_, bias)| usable(bias))
        .ok_or_else(|| "not a token id, + or -, and a number".to_owned())
}

fn number(text: &str, valid: impl Fn(f32) -> bool, expected: &str) -> Result<f32, String> {
    let value = text
        .parse()
        .ok()
        .filter(|value: &f32| value.is_finite() && valid(*value));
    value.ok_or_else(|| format!("not {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_overrides_model_which_overrides_defaults() {
        let model = GenerationConfig {
            temperature: Some(0.6),
            top_k: Some(20),
            ..GenerationConfig::default()
        };
        let arguments = SamplingArguments {
            top_k: Some(5),
            seed: Some(1),
            ..Default::default()
        };
        let found = combined(&arguments, &model);
        assert_eq!((found.temperature, found.top_k, found.top_p), (0.6, 5, 0.95));
        assert_eq!(found.seed, 1);
    }

    #[test]
    fn do_sample_false_is_greedy_unless_overridden() {
        let model = GenerationConfig {
            do_sample: Some(false),
            temperature: Some(0.6),
            ..GenerationConfig::default()
        };
        assert_eq!(combined(&SamplingArguments::default(), &model).temperature, 0.0);
        let arguments = SamplingArguments {
            temp: Some(1.5),
            ..Default::default()
        };
        assert_eq!(combined(&arguments, &model).temperature, 1.5);
    }

    #[test]
    fn json_numbers_are_as_typed() {
        let options = SamplerOptions {
            temperature: 0.9,
            top_p: 1.0,
            ..SamplerOptions::default()
        };
        let value = json(&options);
        assert_eq!(
            (value["temperature"].to_string(), value["top_p"].to_string()),
            ("0.9".into(), "1.0".into())
        );
    }

    #[test]
    fn rejects_numbers_out_of_range() {
        assert_eq!(non_negative("0"), Ok(0.0));
        assert!(non_negative("-1").is_err() && non_negative("nan").is_err());
        assert!(positive("0").is_err() && positive("inf").is_err() && positive("x").is_err());
        assert!(share("1.01").is_err() && share("1").is_ok());
        assert!(positive_share("0").is_err());
        assert!(finite("nan").is_err() && finite("-2") == Ok(-2.0));
    }

    #[test]
    fn parses_logit_bias() {
        assert_eq!(logit_bias("42+1.5"), Ok((42, 1.5)));
        assert_eq!(logit_bias("0-3e-1"), Ok((0, -0.3)));
        assert_eq!(logit_bias("7-inf"), Ok((7, f32::NEG_INFINITY)));
        for wrong in ["", "7", "+1", "-7+1", "7+inf", "7+nan", "7+x", "x+1", "99999999999+1"] {
            assert!(logit_bias(wrong).is_err(), "{wrong}");
        }
    }
}
