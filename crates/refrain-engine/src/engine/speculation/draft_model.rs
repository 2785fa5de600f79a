//! Drafts of a smaller model. It samples each token with the text's own settings and random number, so a guess is
//! right if both models prefer the same token.

use std::time::{Duration, Instant};

use refrain_models::{CacheTypes, ModelConfig};

use super::{Draft, MAX_DRAFTS, Proposer};
use crate::{Engine, EngineOptions, EngineRequest, Error, GenerateOptions, Model};

/// Maximum number of texts whose keys and values are kept.
const MAX_TEXTS: usize = 4;
/// Maximum difference of the sizes of two vocabularies. Models of one tokenizer pad them differently.
const MAX_PADDING: usize = 128;

/// Returns why one model cannot draft for another; `None` if it can. Whether their tokens mean the same is up to the
/// caller.
pub fn draft_obstacle(draft: &ModelConfig, target: &ModelConfig) -> Option<String> {
    let (size, needed) = (draft.vocab_size, target.vocab_size);
    if draft.recurrent_bytes() > 0 {
        Some("it has recurrent states, which cannot go back to the last accepted token".to_owned())
    } else if size.abs_diff(needed) > MAX_PADDING {
        Some(format!(
            "its vocabulary has {size} tokens, that of the other model {needed}"
        ))
    } else {
        None
    }
}

/// Returns the bytes of the keys and values that a draft model keeps for an engine of `streams` requests of up to
/// `context` tokens.
pub fn draft_memory(draft: &ModelConfig, cache: CacheTypes, context: usize, streams: usize) -> u64 {
    let tokens = cached_texts(streams) * context.min(draft.max_position);
    tokens as u64 * cache.bytes_per_token(draft)
}

/// Returns how many texts of `streams` are cached.
fn cached_texts(streams: usize) -> usize {
    streams.clamp(1, MAX_TEXTS)
}

/// Proposes what a model generates, in an engine of its own. It proposes nothing more once that has failed.
pub struct ModelProposer {
    /// `None` once it failed.
    model: Option<Model>,
    /// Started for the first draft.
    engine: Option<Engine>,
    /// Maximum tokens of a text with drafts.
    context: usize,
    /// Number of tokens of the model that verifies.
    vocabulary: usize,
    texts: Vec<Text>,
    /// See [`Proposer::take_setup_time`].
    setup: Duration,
}

/// The text in a slot.
#[derive(Default)]
struct Text {
    tokens: Vec<u32>,
    options: GenerateOptions,
    /// Tokens that the text began with.
    prompt: usize,
    has_drafts: bool,
}

impl ModelProposer {
    /// Creates one for `slots` slots with texts of up to `context` tokens. `vocabulary` is that of the model that
    /// verifies.
    pub fn new(model: Model, context: usize, slots: usize, vocabulary: usize) -> ModelProposer {
        ModelProposer {
            context: context.min(model.config().max_position),
            model: Some(model),
            engine: None,
            vocabulary,
            texts: (0..slots).map(|_| Text::default()).collect(),
            setup: Duration::ZERO,
        }
    }

    /// Returns the engine, which keeps what it computed of several texts in its prefix cache.
    fn engine(&mut self, model: &Model) -> Result<&Engine, Error> {
        let engine = match self.engine.take() {
            Some(engine) => engine,
            None => {
                let options = EngineOptions {
                    cache_tokens: cached_texts(self.texts.len()).saturating_mul(self.context),
                    prepares: false,
                    tokens_per_submit: Some(MAX_DRAFTS),
                    ..EngineOptions::single(self.context)
                };
                Engine::start(model, &options)?
            }
        };
        Ok(self.engine.insert(engine))
    }

    /// Generates `count` tokens, or fewer up to a stop token, that follow a slot's text.
    fn generate(&mut self, slot: usize, count: usize, model: &Model) -> Result<Vec<u32>, Error> {
        let begun = Instant::now();
        let text = &mut self.texts[slot];
        let options = GenerateOptions {
            max_tokens: Some(count),
            // They are proposed, too.
            stop_ids: vec![],
            ..text.options.clone()
        };
        let request = EngineRequest {
            generated_tokens: text.tokens.len() - text.prompt,
            ..EngineRequest::new(text.tokens.clone(), options)
        };
        let is_first = !std::mem::replace(&mut text.has_drafts, true);
        let mut tokens = vec![];
        for token in self.engine(model)?.generate(request)? {
            tokens.push(token?);
            if is_first && tokens.len() == 1 {
                self.setup += begun.elapsed();
            }
        }
        let stop_ids = &self.texts[slot].options.stop_ids;
        if let Some(stop) = tokens.iter().position(|token| stop_ids.contains(token)) {
            tokens.truncate(stop + 1);
        }
        Ok(tokens)
    }
}

impl Proposer for ModelProposer {
    fn prefill(&mut self, slot: usize, tokens: &[u32], options: &GenerateOptions) {
        self.texts[slot] = Text {
            tokens: tokens.to_vec(),
            options: options.clone(),
            prompt: tokens.len(),
            has_drafts: false,
        };
    }

    fn commit(&mut self, slot: usize, tokens: &[u32]) {
        self.texts[slot].tokens.extend_from_slice(tokens);
    }

    fn length(&mut self, slot: usize, max: usize) -> usize {
        let tokens = &self.texts[slot].tokens;
        let Some(model) = self.model.as_ref().filter(|_| !tokens.is_empty()) else {
            return 0;
        };
        // Padding of the other vocabulary is sampled only with random weights.
        let vocabulary = model.config().vocab_size;
        if vocabulary < self.vocabulary && model.check_ids(tokens).is_err() {
            return 0;
        }
        max.min(self.context.saturating_sub(tokens.len()))
    }

    fn propose(&mut self, slot: usize, max: usize) -> Draft {
        let count = self.length(slot, max);
        let Some(model) = self.model.clone().filter(|_| count > 0) else {
            return Draft::default();
        };
        match self.generate(slot, count, &model) {
            Ok(mut tokens) => {
                let known = tokens.iter().take_while(|token| (**token as usize) < self.vocabulary);
                tokens.truncate(known.count());
                Draft { tokens, forced: 0 }
            }
            Err(_) => {
                // Requests go on without drafts. If the device failed, their own steps report it.
                (self.model, self.engine) = (None, None);
                Draft::default()
            }
        }
    }

    fn take_setup_time(&mut self) -> Duration {
        std::mem::take(&mut self.setup)
    }

    fn model(&self) -> Option<&Model> {
        self.model.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::batcher::test_support::{load, model, prompt};
    use refrain::Device;

    /// Returns a proposer that guesses for itself.
    fn proposer(context: usize) -> ModelProposer {
        let model = model();
        let vocabulary = model.config().vocab_size;
        ModelProposer::new(model, context, 8, vocabulary)
    }

    /// Returns the tokens that an engine generates after a prompt.
    fn generated(prompt: &[u32], options: &GenerateOptions) -> Vec<u32> {
        let engine = Engine::start(&model(), &EngineOptions::single(256)).expect("starts");
        let request = EngineRequest::new(prompt.to_vec(), options.clone());
        let tokens = engine.generate(request).expect("begins");
        tokens.collect::<Result<_, _>>().expect("goes on")
    }

    #[test]
    fn unsuitable_models_are_named() {
        let target = model().config().clone();
        let obstacle = |draft: &ModelConfig, target: &ModelConfig| draft_obstacle(draft, target).unwrap_or_default();
        assert_eq!(obstacle(&target, &target), "");
        let hybrid = load("tiny-hybrid:f32", &Device::cpu()).config().clone();
        assert!(obstacle(&hybrid, &target).starts_with("it has recurrent states"));
        let of_one_tokenizer = ModelConfig {
            vocab_size: target.vocab_size,
            ..hybrid
        };
        assert_eq!(obstacle(&target, &of_one_tokenizer), "");
        let sized = |vocab_size: usize| ModelConfig {
            vocab_size,
            ..target.clone()
        };
        let size = target.vocab_size;
        assert_eq!(obstacle(&sized(size + MAX_PADDING), &target), "");
        let why = obstacle(&sized(size + MAX_PADDING + 1), &target);
        assert!(
            why.contains(&(size + MAX_PADDING + 1).to_string()) && why.contains(&size.to_string()),
            "{why}"
        );
    }

    /// Drafts continue a text whose guesses were refused, and other texts that took its memory.
    #[test]
    fn drafts_are_what_the_model_generates() {
        let mut proposer = proposer(256);
        let options = GenerateOptions {
            max_tokens: Some(12),
            ..GenerateOptions::default()
        };
        let texts: Vec<_> = (0..6).map(|number| generated(&prompt(number), &options)).collect();
        for (slot, number) in (0..6).enumerate() {
            proposer.prefill(slot, &prompt(number), &options);
        }
        for (slot, text) in texts.iter().enumerate() {
            assert_eq!(proposer.length(slot, 5), 5);
            assert_eq!(proposer.propose(slot, 5).tokens, text[..5], "text {slot}");
        }
        assert!(proposer.take_setup_time() > Duration::ZERO);
        for (slot, text) in texts.iter().enumerate().rev() {
            // The third guess was another token.
            proposer.commit(slot, &text[..2]);
            assert_eq!(proposer.propose(slot, 7).tokens, text[2..9], "text {slot}");
        }
        assert_eq!(
            proposer.take_setup_time(),
            Duration::ZERO,
            "only the first drafts set up"
        );
    }

    #[test]
    fn drafts_end_with_stop_tokens_and_the_context() {
        let text = generated(
            &prompt(1),
            &GenerateOptions {
                max_tokens: Some(8),
                ..GenerateOptions::default()
            },
        );
        let length = prompt(1).len();
        let mut proposer = proposer(length + 3);
        proposer.prefill(0, &prompt(1), &GenerateOptions::default());
        assert_eq!(proposer.propose(0, 7).tokens, text[..3]);
        proposer.commit(0, &text[..3]);
        assert_eq!(proposer.length(0, 7), 0);
        let stops = GenerateOptions {
            stop_ids: vec![text[1]],
            ..GenerateOptions::default()
        };
        let end = text.iter().position(|token| *token == text[1]).expect("there");
        proposer.prefill(0, &prompt(1), &stops);
        assert_eq!(proposer.propose(0, 7).tokens, text[..=end]);
    }

    #[test]
    fn a_model_that_failed_proposes_nothing() {
        let mut proposer = proposer(256);
        proposer.prefill(0, &prompt(1), &GenerateOptions::default());
        // More than the model supports.
        proposer.context = usize::MAX;
        assert_eq!(proposer.length(0, 7), 7);
        assert_eq!(proposer.propose(0, 7), Draft::default());
        assert!(proposer.model().is_none() && proposer.length(0, 7) == 0);
    }
}
