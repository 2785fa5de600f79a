//! Random mixes of requests to small models on the CPU: tokens are those of each request alone, and in deterministic
//! engines log probabilities and embeddings are, too, bit for bit.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

use refrain::Device;

use super::Batcher;
use super::simulated_tests::{Random, random_request, step};
use super::test_support::{TestRequest, load};
use crate::Model;
use crate::engine::EngineOptions;
use crate::engine::request::EngineEvent;
use crate::engine::runner::DeviceRunner;
use crate::engine::speculation::Speculation;

const MIXES: u64 = 200;
const CONTEXT: usize = 128;
/// Limit of the tokens that a request generates.
const MAX_ANSWER: usize = 20;

/// What a request was told, in words that can be compared: tokens, and with `bits` all numbers.
fn told(events: &Receiver<EngineEvent>, with_bits: bool) -> Vec<String> {
    let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let mut logits = vec![];
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
    // How many rows come at once is not told.
    let others = events.try_iter().filter_map(|event| match event {
        EngineEvent::Logits(rows) => {
            logits.extend(if with_bits { bits(&rows) } else { vec![0; rows.len()] });
            None
        }
        other => Some(other),
    });
    let mut all: Vec<String> = others.map(told).collect();
    all.push(format!("{logits:?}"));
    all
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
        (second.tokens, second.embeds) = (first.tokens, first.embeds);
        second.prompt_outputs = first.prompt_outputs;
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
            expected.starts_with(&found[..found.len() - 1])
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
    if !refrain_testing::drawn(12) {
        return;
    }
    let models = ["tiny:f32", "tiny-hybrid:f32"].map(|spec| load(spec, &Device::cpu()));
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

/// Texts of one token are ready for their last tokens in the same step.
#[test]
fn texts_that_are_ready_at_once_are_embedded_as_each_alone() {
    let model = load("tiny:f32", &Device::cpu());
    let options = EngineOptions {
        context: CONTEXT,
        streams: 4,
        cache_tokens: 4 * CONTEXT,
        deterministic: true,
        ..EngineOptions::default()
    };
    let request = |number: u64| TestRequest {
        number,
        prompt: vec![7 + number as u32],
        tokens: 1,
        embeds: true,
        ..TestRequest::default()
    };
    let mut batcher = Batcher::new(&model, &options).expect("fits");
    let submitted: Vec<_> = (0..4)
        .map(|number| (request(number), request(number).submit(&mut batcher)))
        .collect();
    while !batcher.is_idle() {
        step(&mut batcher);
    }
    let mut alone = Alone::default();
    for (request, (events, _cancelled)) in &submitted {
        let found = told(events, true);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found, alone.told(&model, &options, request), "{request:?}");
    }
}
