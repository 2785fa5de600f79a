//! Requests to a small model, for tests that run step by step.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, channel};

use refrain::Device;
use refrain_models::Checkpoint;
use refrain_vulkan::{DeviceChoice, OpenOptions, Options, Vulkan};

use super::{Batcher, DeviceRunner, Runner, Waiting};
use crate::engine::constraint::Constraint;
use crate::engine::prefix_store::StoredPrefix;
use crate::engine::request::{EngineEvent, PromptOutputs, TokenConstraint};
use crate::engine::speculation::{Draft, Proposer, Speculation};
use crate::engine::{EngineOptions, Leaving};
use crate::{Engine, EngineRequest, Finish, GenerateOptions, LoadOptions, Model, Sampler, SamplerOptions};

/// Loads a model with random weights.
pub fn load(spec: &str, device: &Device) -> Model {
    let checkpoint = Checkpoint::synthetic(spec).expect("a checkpoint");
    Model::load(&checkpoint, device, &LoadOptions::default()).expect("loads")
}

/// Opens the device that the tests use.
pub fn gpu() -> Device {
    let vulkan = Vulkan::load(Options::default()).expect("the tests need a Vulkan driver");
    let index = vulkan.choose(&DeviceChoice::Auto).expect("a usable device");
    Device::vulkan(vulkan.open(index, &OpenOptions::default()).expect("opens"))
}

pub fn model() -> Model {
    load("tiny:f32", &Device::cpu())
}

pub fn batcher(model: &Model, streams: usize) -> Batcher<DeviceRunner> {
    batcher_with(model, streams, 256 * streams)
}

pub fn batcher_with(model: &Model, streams: usize, cache_tokens: usize) -> Batcher<DeviceRunner> {
    let options = EngineOptions {
        context: 256,
        streams,
        cache_tokens,
        ..EngineOptions::default()
    };
    Batcher::new(model, &options).expect("fits")
}

/// Returns a batcher of four requests.
pub fn speculating(model: &Model, speculation: Speculation) -> Batcher<DeviceRunner> {
    let options = EngineOptions {
        context: 256,
        streams: 4,
        cache_tokens: 1024,
        speculation,
        ..EngineOptions::default()
    };
    Batcher::new(model, &options).expect("fits")
}

pub fn options(number: u64) -> GenerateOptions {
    let sampler = SamplerOptions {
        temperature: 0.9,
        repeat_penalty: 1.1,
        seed: number,
        ..SamplerOptions::default()
    };
    GenerateOptions {
        sampler: Sampler::new(sampler).expect("valid"),
        ..GenerateOptions::default()
    }
}

pub fn prompt(number: u64) -> Vec<u32> {
    (0..10 + 17 * number as u32)
        .map(|at| (7 * number as u32 + 13 * at) % 200 + 3)
        .collect()
}

/// Submits a request for `tokens` tokens.
pub fn ask<R: Runner>(batcher: &mut Batcher<R>, number: u64, tokens: usize) -> Receiver<EngineEvent> {
    ask_with(batcher, number, prompt(number), tokens)
}

/// Submits a request for `tokens` tokens after a prompt.
pub fn ask_with<R: Runner>(
    batcher: &mut Batcher<R>,
    number: u64,
    prompt: Vec<u32>,
    tokens: usize,
) -> Receiver<EngineEvent> {
    let request = TestRequest {
        number,
        prompt,
        tokens,
        ..TestRequest::default()
    };
    request.submit(batcher).0
}

/// Returns the tokens that an engine of its own generates for a request with the options of its number.
pub fn alone(model: &Model, number: u64, tokens: usize) -> Vec<u32> {
    let options = GenerateOptions {
        max_tokens: Some(tokens),
        ..options(number)
    };
    alone_with(model, prompt(number), options)
}

/// Returns the tokens that an engine of its own generates after a prompt.
pub fn alone_with(model: &Model, prompt: Vec<u32>, options: GenerateOptions) -> Vec<u32> {
    let single = EngineOptions {
        prepares: false,
        ..EngineOptions::single(256)
    };
    let engine = Engine::start(model, &single).expect("starts");
    let answer = engine.generate(EngineRequest::new(prompt, options)).expect("begins");
    answer.collect::<Result<_, _>>().expect("goes on")
}

/// A request of a test.
#[derive(Clone, Default, Debug)]
pub struct TestRequest {
    pub number: u64,
    pub prompt: Vec<u32>,
    /// Number of tokens to generate.
    pub tokens: usize,
    pub stop_ids: Vec<u32>,
    pub prompt_outputs: Option<PromptOutputs>,
    pub embeds: bool,
    pub client: u64,
    pub constraint: Option<EveryThird>,
    pub top_logprobs: Option<usize>,
}

/// Allows only tokens of one remainder, for some tokens of an answer.
#[derive(Clone, Debug)]
pub struct EveryThird {
    pub remainder: u32,
    pub restricted: Range<usize>,
    /// Tokens after which the answer is complete.
    pub length: usize,
    /// The token for which there is no mask.
    pub fails_at: usize,
    pub taken: usize,
}

impl TokenConstraint for EveryThird {
    fn restricts(&self) -> bool {
        self.restricted.contains(&self.taken)
    }

    fn fill_mask(&mut self, bits: &mut [u32]) -> Result<(), String> {
        if self.taken == self.fails_at {
            return Err("no continuation".to_owned());
        }
        let allowed = (0..32 * bits.len() as u32).filter(|id| id % 3 == self.remainder);
        allowed.for_each(|id| bits[id as usize / 32] |= 1 << (id % 32));
        Ok(())
    }

    fn accept(&mut self, token: u32) -> Result<bool, String> {
        assert!(!self.restricts() || token % 3 == self.remainder, "{token}: {self:?}");
        self.taken += 1;
        Ok(self.taken == self.length)
    }
}

impl TestRequest {
    /// Submits it; returns its events, and the flag that cancels it.
    pub fn submit<R: Runner>(self, batcher: &mut Batcher<R>) -> (Receiver<EngineEvent>, Arc<AtomicBool>) {
        let options = options(self.number);
        self.submit_with(batcher, options)
    }

    /// Submits it with other options than those of its number.
    pub fn submit_with<R: Runner>(
        self,
        batcher: &mut Batcher<R>,
        options: GenerateOptions,
    ) -> (Receiver<EngineEvent>, Arc<AtomicBool>) {
        let (events, polled) = channel();
        let options = GenerateOptions {
            stop_ids: self.stop_ids,
            ..options
        };
        let limit = self.prompt.len() + self.tokens;
        let mut settings = options.settings(self.prompt.len());
        settings.last_position = limit as u32 - 1;
        settings.stop_ids.clone_from(&options.stop_ids);
        let outputs = self.prompt_outputs;
        let prompt_outputs = outputs.map(|outputs| (outputs, outputs.tokens(self.prompt.len(), self.tokens > 0)));
        let prompt_outputs = prompt_outputs.filter(|(_, tokens)| !tokens.is_empty());
        let cancelled = Arc::new(AtomicBool::new(false));
        batcher.add(Waiting {
            number: self.number,
            tokens: self.prompt,
            limit,
            at_limit: Finish::Length,
            options,
            settings,
            top_logprobs: self.top_logprobs,
            constraint: self.constraint.map(|constraint| Constraint::new(Box::new(constraint))),
            prompt_outputs,
            embeds: self.embeds,
            client: self.client,
            cached_tokens: None,
            awaited: None,
            stored: StoredPrefix::default(),
            listener: Box::new(move |event| drop(events.send(event))),
            cancelled: cancelled.clone(),
            _leaving: Leaving(Arc::default()),
        });
        (polled, cancelled)
    }
}

/// Proposes what follows in texts that are known, with mistakes.
pub struct Scripted {
    texts: Vec<Vec<u32>>,
    /// One of so many tokens is wrong; 0 for none.
    wrong_one_in: u32,
    slots: HashMap<usize, Vec<u32>>,
}

impl Scripted {
    pub fn new(texts: Vec<Vec<u32>>, wrong_one_in: u32) -> Scripted {
        Scripted {
            texts,
            wrong_one_in,
            slots: HashMap::new(),
        }
    }
}

impl Proposer for Scripted {
    fn prefill(&mut self, slot: usize, tokens: &[u32], _options: &GenerateOptions) {
        self.slots.insert(slot, tokens.to_vec());
    }

    fn commit(&mut self, slot: usize, tokens: &[u32]) {
        self.slots.get_mut(&slot).expect("a text").extend_from_slice(tokens);
    }

    fn propose(&mut self, slot: usize, max: usize) -> Draft {
        let known = &self.slots[&slot];
        let goes_on = |text: &&Vec<u32>| text.len() > known.len() && text.starts_with(known);
        let Some(text) = self.texts.iter().find(goes_on) else {
            return Draft::default();
        };
        let is_wrong =
            |at: u32| self.wrong_one_in > 0 && (at.wrapping_mul(2_654_435_761) >> 16).is_multiple_of(self.wrong_one_in);
        let next = text.iter().zip(0u32..).skip(known.len()).take(max);
        let guess = |(token, at): (&u32, u32)| if is_wrong(at) { token ^ 1 } else { *token };
        Draft {
            tokens: next.map(guess).collect(),
            forced: 0,
        }
    }
}
