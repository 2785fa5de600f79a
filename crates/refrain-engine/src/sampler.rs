//! Validated sampling settings.

use std::hash::{BuildHasher, RandomState};

use refrain_formats::GenerationConfig;
use refrain_lm::sample::Settings;

/// Sampling options. [`SamplerOptions::default`] is greedy. The steps and their order are those of
/// [`refrain_lm::sample()`].
#[derive(Debug, Clone, PartialEq)]
pub struct SamplerOptions {
    /// Divides the logits; 0 is greedy.
    pub temperature: f32,
    /// Keeps the k most likely tokens; 0 keeps all.
    pub top_k: usize,
    /// Keeps the smallest set of most likely tokens whose probabilities sum to this; 1 keeps all.
    pub top_p: f32,
    /// Keeps tokens whose probability is at least this fraction of the largest; 0 keeps all.
    pub min_p: f32,
    /// Divides positive logits of recent tokens and multiplies negative ones; 1 changes nothing.
    pub repeat_penalty: f32,
    /// Subtracted from the logits of recent tokens; 0 changes nothing.
    pub presence_penalty: f32,
    /// Subtracted from the logit of a recent token once per occurrence; 0 changes nothing.
    pub frequency_penalty: f32,
    /// Number of last tokens that count as recent, unless `penalises_generated`.
    pub repeat_last: usize,
    /// Whether the presence and frequency penalties count all generated tokens and none of the prompt, and the repeat
    /// penalty counts both, as OpenAI's and vLLM's interfaces define them.
    pub penalises_generated: bool,
    /// Added to the logits of tokens; negative infinity forbids one.
    pub logit_bias: Vec<(u32, f32)>,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Default for SamplerOptions {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repeat_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            repeat_last: 64,
            penalises_generated: false,
            logit_bias: vec![],
            seed: 0,
        }
    }
}

impl SamplerOptions {
    /// Returns the settings that a model's `generation_config.json` recommends (`do_sample: false` is greedy), with
    /// llama.cpp's defaults for missing ones. The seed is 0.
    pub fn suggested(model: &GenerationConfig) -> Self {
        let greedy = (model.do_sample == Some(false)).then_some(0.0);
        Self {
            temperature: greedy.or(model.temperature).unwrap_or(0.8),
            top_k: model.top_k.unwrap_or(40),
            top_p: model.top_p.unwrap_or(0.95),
            min_p: model.min_p.unwrap_or(0.05),
            repeat_penalty: model.repetition_penalty.unwrap_or(1.0),
            ..Self::default()
        }
    }
}

/// Returns a random seed, short enough to type again.
pub fn random_seed() -> u64 {
    // The standard library seeds its hash maps from the system's random source.
    RandomState::new().hash_one(0) >> 32
}

/// A setting out of its range.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{setting} is {value}, but must be {bounds}")]
pub struct InvalidSetting {
    setting: &'static str,
    value: f32,
    bounds: &'static str,
}

/// Validated options, and the kernel settings derived from them. The default is greedy.
#[derive(Debug, Clone)]
pub struct Sampler {
    options: SamplerOptions,
    settings: Settings,
}

impl Sampler {
    /// Creates a sampler.
    ///
    /// # Errors
    /// If a setting is out of its range.
    pub fn new(options: SamplerOptions) -> Result<Self, InvalidSetting> {
        validate(&options)?;
        Ok(Self::unchecked(options))
    }

    fn unchecked(options: SamplerOptions) -> Self {
        let mut settings = Settings {
            temperature: options.temperature,
            top_k: saturating_u32(options.top_k),
            top_p: options.top_p,
            min_p: options.min_p,
            repeat_penalty: options.repeat_penalty,
            presence_penalty: options.presence_penalty,
            frequency_penalty: options.frequency_penalty,
            window: if options.penalises_generated {
                u32::MAX
            } else {
                saturating_u32(options.repeat_last)
            },
            seed: options.seed,
            biased: !options.logit_bias.is_empty(),
            ..Settings::default()
        };
        if !settings.penalises() {
            settings.window = 0;
        }
        Self { options, settings }
    }

    /// Returns the options.
    pub fn options(&self) -> &SamplerOptions {
        &self.options
    }

    /// Returns the settings for the kernels, without stop tokens or an end. The window is 0 if nothing is
    /// penalised, so that nothing is counted.
    pub fn settings(&self) -> Settings {
        self.settings.clone()
    }

    /// Returns the values to add to the logits of a vocabulary, `[V]`; empty if there are none. Tokens out of the
    /// vocabulary are ignored.
    pub fn bias(&self, vocabulary: usize) -> Vec<f32> {
        if self.options.logit_bias.is_empty() {
            return vec![];
        }
        let mut bias = vec![0.0; vocabulary];
        for &(id, value) in &self.options.logit_bias {
            if let Some(sum) = bias.get_mut(id as usize) {
                *sum += value;
            }
        }
        bias
    }
}

impl Default for Sampler {
    fn default() -> Self {
        Self::unchecked(SamplerOptions::default())
    }
}

fn validate(options: &SamplerOptions) -> Result<(), InvalidSetting> {
    let check = |setting, value: f32, valid: bool, bounds| {
        if valid && value.is_finite() {
            Ok(())
        } else {
            Err(InvalidSetting { setting, value, bounds })
        }
    };
    let SamplerOptions {
        temperature,
        top_p,
        min_p,
        repeat_penalty,
        presence_penalty,
        frequency_penalty,
        ..
    } = *options;
    check("temperature", temperature, temperature >= 0.0, "0 or more")?;
    check("top-p", top_p, top_p > 0.0 && top_p <= 1.0, "above 0 and at most 1")?;
    check("min-p", min_p, (0.0..=1.0).contains(&min_p), "between 0 and 1")?;
    check("repeat penalty", repeat_penalty, repeat_penalty > 0.0, "above 0")?;
    check("presence penalty", presence_penalty, true, "a number")?;
    check("frequency penalty", frequency_penalty, true, "a number")?;
    let unusable = |value: f32| value.is_nan() || value == f32::INFINITY;
    match options.logit_bias.iter().find(|(_, value)| unusable(*value)) {
        None => Ok(()),
        Some(&(_, value)) => Err(InvalidSetting {
            setting: "logit bias",
            value,
            bounds: "a number or negative infinity",
        }),
    }
}

/// Converts to u32, saturating.
fn saturating_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler(change: impl FnOnce(&mut SamplerOptions)) -> Sampler {
        let mut options = SamplerOptions::default();
        change(&mut options);
        Sampler::new(options).unwrap()
    }

    #[test]
    fn refuses_settings_out_of_range() {
        let refused = |change: &dyn Fn(&mut SamplerOptions)| {
            let mut options = SamplerOptions::default();
            change(&mut options);
            Sampler::new(options).unwrap_err().to_string()
        };
        assert_eq!(
            refused(&|o| o.temperature = -1.0),
            "temperature is -1, but must be 0 or more"
        );
        assert!(refused(&|o| o.temperature = f32::NAN).contains("NaN"));
        assert!(refused(&|o| o.temperature = f32::INFINITY).contains("inf"));
        assert!(refused(&|o| o.top_p = 0.0).contains("top-p"));
        assert!(refused(&|o| o.min_p = 1.5).contains("min-p"));
        assert!(refused(&|o| o.repeat_penalty = 0.0).contains("repeat penalty"));
        assert!(refused(&|o| o.presence_penalty = f32::NAN).contains("presence penalty"));
        assert!(refused(&|o| o.frequency_penalty = f32::INFINITY).contains("frequency penalty"));
        assert!(refused(&|o| o.logit_bias = vec![(1, 2.0), (3, f32::NAN)]).contains("logit bias"));
    }

    #[test]
    fn recommended_settings_override_the_defaults() {
        let silent = SamplerOptions::suggested(&GenerationConfig::default());
        assert_eq!((silent.temperature, silent.top_k, silent.top_p), (0.8, 40, 0.95));
        assert_eq!((silent.min_p, silent.repeat_penalty, silent.seed), (0.05, 1.0, 0));
        let model = GenerationConfig {
            temperature: Some(0.6),
            top_k: Some(20),
            repetition_penalty: Some(1.1),
            ..GenerationConfig::default()
        };
        let suggested = SamplerOptions::suggested(&model);
        assert_eq!(
            (suggested.temperature, suggested.top_k, suggested.repeat_penalty),
            (0.6, 20, 1.1)
        );
        let greedy = GenerationConfig {
            do_sample: Some(false),
            ..model
        };
        assert_eq!(SamplerOptions::suggested(&greedy).temperature, 0.0);
    }

    #[test]
    fn default_sampler_equals_the_default_options() {
        let default = Sampler::default();
        let made = sampler(|_| ());
        assert_eq!(default.options(), made.options());
        assert_eq!(default.settings().encode().unwrap(), made.settings().encode().unwrap());
    }

    #[test]
    fn adds_up_biases_and_ignores_unknown_tokens() {
        let biased = sampler(|o| o.logit_bias = vec![(1, 3.0), (3, f32::NEG_INFINITY), (1, 0.5), (9, 1.0)]);
        assert!(biased.settings().biased);
        assert_eq!(biased.bias(4), [0.0, 3.5, 0.0, f32::NEG_INFINITY]);
        let unbiased = sampler(|_| ());
        assert!(!unbiased.settings().biased && unbiased.bias(4).is_empty());
    }

    #[test]
    fn counts_tokens_only_if_they_are_penalised() {
        assert_eq!(sampler(|o| o.repeat_last = 3).settings().window, 0);
        let penalising = sampler(|o| (o.repeat_last, o.presence_penalty) = (3, 0.5));
        assert_eq!(penalising.settings().window, 3);
        let generated = sampler(|o| (o.penalises_generated, o.presence_penalty) = (true, 0.5));
        assert_eq!(generated.settings().window, u32::MAX);
    }
}
