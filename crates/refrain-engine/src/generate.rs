//! Generating text: prompt in, tokens picked one by one, text out as soon as it is certain.

mod constrained;
mod stop;
mod text;
mod tokens;

use std::time::{Duration, Instant};

use refrain_lm::sample::{MOST_STOP_IDS, Settings};
use refrain_models::Checkpoint;
use refrain_text::Tokenizer;

use crate::sampler::{InvalidSetting, Sampler, SamplerOptions};
use crate::{Error, Session};

pub use stop::Passed;
pub use text::{GeneratedText, TextDecoder};
pub use tokens::GeneratedTokens;
pub(crate) use tokens::Reports;

/// How to generate. The default takes the likeliest token until the context is full.
#[derive(Debug, Clone, Default)]
pub struct GenerateOptions {
    /// Tokens to generate at most; `None`: until the model ends or the context is full.
    pub max_tokens: Option<usize>,
    /// Picks the tokens.
    pub sampler: Sampler,
    /// Tokens that end the text. They are in neither text nor ids.
    pub stop_ids: Vec<u32>,
    /// Strings that end the text, wherever token borders fall. They are not in the text; the
    /// tokens that spelled them are among the ids.
    pub stop_strings: Vec<String>,
}

impl GenerateOptions {
    /// What a model's makers suggest ([`SamplerOptions::suggested`]), and the tokens that end its texts.
    ///
    /// # Errors
    /// If the suggestions make no sense.
    pub fn suggested(checkpoint: &Checkpoint, tokenizer: &Tokenizer) -> Result<Self, InvalidSetting> {
        let suggestions = checkpoint.generation();
        Ok(GenerateOptions {
            max_tokens: suggestions.max_new_tokens,
            sampler: Sampler::new(SamplerOptions::suggested(suggestions))?,
            stop_ids: tokenizer.eos_ids().to_vec(),
            stop_strings: vec![],
        })
    }

    /// How the device picks tokens for `position` and on.
    pub(crate) fn settings(&self, position: usize) -> Settings {
        let most = self.max_tokens.unwrap_or(usize::MAX);
        let last = position.saturating_add(most).saturating_sub(1);
        Settings {
            // The host looks for those that find no room.
            stop_ids: self.stop_ids.iter().copied().take(MOST_STOP_IDS).collect(),
            last_position: last.min(i32::MAX as usize) as u32,
            ..self.sampler.settings()
        }
    }

    /// Brings the bias that the settings speak of to a session.
    pub(crate) fn bias(&self, session: &mut Session, settings: &Settings) -> Result<(), Error> {
        if settings.biased {
            session.set_bias(&self.sampler.bias(session.vocabulary()))?;
        }
        Ok(())
    }
}

/// Why a text ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The model ended it with a stop token.
    Stop,
    /// A stop string came up.
    StopString,
    /// As many tokens as were asked for.
    Length,
    /// The context is full.
    Context,
    /// The caller broke off.
    Interrupted,
}

impl Finish {
    /// A word for machines, such as `stop_string`.
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
    /// The tokens picked, without the one that ended the text.
    pub ids: Vec<u32>,
    /// Their text, without special tokens and the stop string.
    pub text: String,
    /// Why it ended.
    pub finish: Finish,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// From the call until the first token was picked.
    pub time_to_first: Duration,
    /// Between the first and the last pick.
    pub decode_time: Duration,
    /// Picks after the first, a stop token's included: what `decode_time` was spent on.
    pub decoded: usize,
}

impl Generation {
    /// Tokens per second from the first pick to the last; `None` if there was but one.
    pub fn decode_rate(&self) -> Option<f64> {
        rate(self.decoded, self.decode_time)
    }

    /// Tokens of the prompt per second until the first pick.
    pub fn prompt_rate(&self) -> Option<f64> {
        rate(self.prompt_tokens, self.time_to_first)
    }
}

fn rate(tokens: usize, time: Duration) -> Option<f64> {
    (tokens > 0 && !time.is_zero()).then(|| tokens as f64 / time.as_secs_f64())
}

impl Session {
    /// Appends `prompt` to the sequence and generates from there: an iterator over tokens, whose
    /// [`text`](GeneratedTokens::text) is one over pieces of text. The session then holds the prompt and the tokens
    /// taken but the last: what the device did beyond them is undone.
    ///
    /// # Errors
    /// If the prompt is empty or does not fit the context, or the device fails.
    pub fn generate(&mut self, prompt: &[u32], options: &GenerateOptions) -> Result<GeneratedTokens<'_>, Error> {
        self.generate_by(prompt, options, |session, settings| {
            Ok(Box::new(session.stream(prompt, settings)?))
        })
    }

    /// The same by what `begin` makes for the settings.
    fn generate_by<'s>(
        &'s mut self,
        prompt: &[u32],
        options: &GenerateOptions,
        begin: impl FnOnce(&'s mut Session, &Settings) -> Result<Box<dyn Reports + 's>, Error>,
    ) -> Result<GeneratedTokens<'s>, Error> {
        let start = Instant::now();
        let position = self.position() + prompt.len();
        if options.max_tokens == Some(0) {
            self.feed(prompt)?;
            return Ok(GeneratedTokens::new(None, position, prompt.len(), start, options));
        }
        let settings = options.settings(position);
        options.bias(self, &settings)?;
        let source = Some(begin(self, &settings)?);
        Ok(GeneratedTokens::new(source, position, prompt.len(), start, options))
    }
}

#[cfg(test)]
mod tests;
