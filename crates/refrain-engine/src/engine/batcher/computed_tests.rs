//! Random mixes of requests to small models on the CPU: tokens are those of each request alone, and in deterministic
//! engines log probabilities and embeddings are, too, bit for bit.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

use refrain::Device;
use refrain_models::Checkpoint;

use super::Batcher;
use super::simulated_tests::{Random, random_request, step};
use super::test_support::TestRequest;
use crate::engine::EngineOptions;
use crate::engine::request::EngineEvent;
use crate::engine::runner::DeviceRunner;
use crate::engine::speculation::Speculation;
use crate::{LoadOptions, Model};

const MIXES: u64 = 200;
const CONTEXT: usize = 128;
/// Limit of the tokens that a request generates.
const MAX_ANSWER: usize = 20;

fn load(spec: &str) -> Model {
    let checkpoint = Checkpoint::synthetic(spec).expect("a checkpoint");
    Model::load(&checkpoint, &Device::cpu(), &LoadOptions::default()).expect("loads")
}

/// What a request was told, in words that can be compared: tokens, and with `bits` all numbers.
fn told(events: &Receiver<EngineEvent>, with_bits: bool) -> Vec<String> {
    let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let told = |event: EngineEvent| match event {
        EngineEvent::Token(token) if !with_bits => token.id.to_string(),
        EngineEvent::Embedding(_) if !with_bits => "an embedding".to_owned(),
        EngineEvent::Token(token) => {
            let logprobs = token.logprobs.map(|all| {
                let (ids, top): (Vec<u32>, Vec<f32>) = all.top.iter().copied().unzip();
                (all.sampled.to_bits(), ids, bits(&top))
            });
            format!("{} {logprobs:?}", token.id)
        }
        EngineEvent::Embedding(hidden) => format!("{:?}", bits(&hidden)),
        other => format!("{other:?}"),
    };
    events.try_iter().map(told).collect()
}

/// Batchers with one request at a time, without the prefixes of others, by number of slots and whether they are
/// deterministic.
#[derive(Default)]
struct Alone(HashMap<(usize, bool), Batcher<DeviceRunner>>);

impl Alone {
    /// Returns what a request is told in an engine with such options.
    fn told(&mut self, model: &Model, options: &EngineOptions, request: &TestRequest) -> Vec<String> {
        let batcher = (self.0.entry((options.streams, options.deterministic))).or_insert_with(|| {
            let options = EngineOptions {
                cache_tokens: options.streams * CONTEXT,
                prefix_cache: false,
                speculation: Speculation::Off,
                ..options.clone()
            };
            Batcher::new(model, &options).expect("fits")
        });
        let (events, _cancelled) = request.clone().submit(batcher);
        while !batcher.is_idle() {
            step(batcher);
        }
        told(&events, options.deterministic)
    }
}

fn random_options(random: &mut Random) -> EngineOptions {
    let streams = 1 + random.below(6);
    EngineOptions {
        context: CONTEXT,
        streams,
        cache_tokens: CONTEXT + random.below(2 * CONTEXT),
        prefix_cache: !random.one_in(4),
        deterministic: random.one_in(2),
        speculation: [Speculation::Off, Speculation::Ngram][random.below(2)],
        ..EngineOptions::default()
    }
}

/// Runs requests that come at random times. Returns how often one was preempted.
fn check_mix(seed: u64, model: &Model, alone: &mut Alone) -> u64 {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let options = random_options(&mut random);
    let mut batcher = Batcher::new(model, &options).expect("fits");
    if random.one_in(2) {
        // Texts are expected to be short, so that requests are admitted that are preempted later.
        (0..60).for_each(|_| batcher.growth.ended(1, 100));
    }
    let mut waiting: Vec<TestRequest> = (0..1 + random.below(7) as u64)
        .map(|number| {
            let request = random_request(&mut random, number, CONTEXT);
            TestRequest {
                tokens: request.tokens.min(MAX_ANSWER),
                top_logprobs: random.one_in(3).then_some(3),
                ..request
            }
        })
        .collect();
    if let [first, second, ..] = &mut waiting[..]
        && random.one_in(3)
    {
        // The same prompt twice, at different seeds.
        second.prompt.clone_from(&first.prompt);
        second.tokens = first.tokens;
    }
    let mut submitted = vec![];
    while !waiting.is_empty() || !batcher.is_idle() {
        if (random.one_in(3) || batcher.is_idle())
            && let Some(request) = waiting.pop()
        {
            submitted.push((request.clone(), request.submit(&mut batcher)));
        }
        if random.one_in(60) && !submitted.is_empty() {
            let chosen = random.below(submitted.len());
            submitted[chosen].1.1.store(true, Ordering::Relaxed);
        }
        step(&mut batcher);
    }
    for (request, (events, cancelled)) in &submitted {
        let (found, expected) = (
            told(events, options.deterministic),
            alone.told(model, &options, request),
        );
        let was_cancelled = cancelled.load(Ordering::Relaxed);
        let is_equal = if was_cancelled {
            expected.starts_with(&found)
        } else {
            expected == found
        };
        assert!(
            is_equal,
            "mix {seed}, {options:?}, {request:?}:\n{found:#?}\ninstead of\n{expected:#?}"
        );
    }
    batcher.load().preemptions
}

#[test]
fn random_mixes_on_the_cpu_get_what_each_request_gets_alone() {
    let models = ["tiny:f32", "tiny-hybrid:f32"].map(load);
    let mut alone = [Alone::default(), Alone::default()];
    let mixes = refrain_testing::sample(0..MIXES, 20);
    let are_all = mixes.len() as u64 == MIXES;
    let preemptions: u64 = mixes
        .into_iter()
        .map(|seed| {
            let number = (seed % 2) as usize;
            check_mix(seed, &models[number], &mut alone[number])
        })
        .sum();
    assert!(preemptions > 0 || !are_all, "no request was preempted");
}
