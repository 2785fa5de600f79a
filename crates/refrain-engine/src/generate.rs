//! Text generation: prompt in, tokens sampled one by one, text out as soon as it is certain.

mod requested;
mod stop;
mod text;
mod tokens;

use std::time::Duration;

use refrain_lm::sample::{MAX_STOP_IDS, Settings};
use refrain_models::Checkpoint;
use refrain_text::Tokenizer;

use crate::sampler::{InvalidSetting, Sampler, SamplerOptions};

pub use stop::DecodedPiece;
pub use text::{GeneratedText, TextDecoder};
pub use tokens::GeneratedTokens;
pub(crate) use tokens::TokenSource;

/// Options of generation. The default decodes greedily until the context is full.
#[derive(Debug, Clone, Default)]
pub struct GenerateOptions {
    /// Limit of generated tokens; `None` generates until the model stops or the context is full.
    pub max_tokens: Option<usize>,
    /// Samples the tokens.
    pub sampler: Sampler,
    /// Tokens that end the text. They are part of neither text nor ids.
    pub stop_ids: Vec<u32>,
    /// Strings that end the text, wherever token boundaries fall. They are not part of the text, but their tokens
    /// are among the ids.
    pub stop_strings: Vec<String>,
    /// Number of tokens within which stop strings are ordinary text.
    pub stop_strings_after: usize,
}

impl GenerateOptions {
    /// Returns the model's recommended options ([`SamplerOptions::suggested`]) and its end-of-text tokens.
    ///
    /// # Errors
    /// If the recommended settings are invalid.
    pub fn suggested(checkpoint: &Checkpoint, tokenizer: &Tokenizer) -> Result<Self, InvalidSetting> {
        let suggestions = checkpoint.generation();
        Ok(GenerateOptions {
            max_tokens: suggestions.max_new_tokens,
            sampler: Sampler::new(SamplerOptions::suggested(suggestions))?,
            stop_ids: tokenizer.eos_ids().to_vec(),
            stop_strings: vec![],
            stop_strings_after: 0,
        })
    }

    /// Returns the device's sampling settings from `position` on.
    pub(crate) fn settings(&self, position: usize) -> Settings {
        let max_tokens = self.max_tokens.unwrap_or(usize::MAX);
        let last = position.saturating_add(max_tokens).saturating_sub(1);
        Settings {
            // The host checks the ids that do not fit.
            stop_ids: self.stop_ids.iter().copied().take(MAX_STOP_IDS).collect(),
            last_position: last.min(i32::MAX as usize) as u32,
            prompt: if self.sampler.options().penalises_generated {
                u32::try_from(position).unwrap_or(u32::MAX)
            } else {
                0
            },
            ..self.sampler.settings()
        }
    }
}

/// Why a text ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The model sampled a stop token.
    Stop,
    /// A stop string occurred.
    StopString,
    /// The limit of tokens was reached.
    Length,
    /// The context is full.
    Context,
    /// The caller stopped.
    Interrupted,
}

impl Finish {
    /// Returns a machine-readable name, such as `stop_string`.
    pub fn name(self) -> &'static str {
        match self {
            Finish::Stop => "stop",
            Finish::StopString => "stop_string",
            Finish::Length => "length",
            Finish::Context => "context",
            Finish::Interrupted => "interrupted",
        }
    }
}

/// A generated text.
#[derive(Debug, Clone, PartialEq)]
pub struct Generation {
    /// The sampled tokens, without the stop token.
    pub ids: Vec<u32>,
    /// Their text, without special tokens and the stop string.
    pub text: String,
    /// Why it ended.
    pub finish: Finish,
    /// Number of prompt tokens.
    pub prompt_tokens: usize,
    /// Time from the call to the first sampled token.
    pub time_to_first: Duration,
    /// Time from the first to the last sampled token.
    pub decode_time: Duration,
    /// Tokens sampled during `decode_time`: all after the first.
    pub decoded: usize,
}

impl Generation {
    /// Decoded tokens per second; `None` if only one was sampled.
    pub fn decode_rate(&self) -> Option<f64> {
        rate(self.decoded, self.decode_time)
    }

    /// Prompt tokens per second until the first sampled token.
    pub fn prompt_rate(&self) -> Option<f64> {
        rate(self.prompt_tokens, self.time_to_first)
    }
}

fn rate(tokens: usize, time: Duration) -> Option<f64> {
    (tokens > 0 && !time.is_zero()).then(|| tokens as f64 / time.as_secs_f64())
}

#[cfg(test)]
mod tests;
