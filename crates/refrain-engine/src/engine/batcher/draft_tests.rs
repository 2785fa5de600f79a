//! Texts with drafts equal those without, on devices.

use std::sync::mpsc::Receiver;

use refrain::Device;

use super::Batcher;
use super::drafts::Speculator;
use super::test_support::{self, EveryThird, Scripted, TestRequest, ask, gpu, load, options, prompt, speculating};
use crate::engine::EngineOptions;
use crate::engine::request::EngineEvent;
use crate::engine::runner::DeviceRunner;
use crate::engine::speculation::{Draft, Proposer, Speculation};
use crate::{Finish, GenerateOptions, Model, Sampler, SamplerOptions};

const TOKENS: usize = 40;

/// Returns a request's tokens alone, its prompt included. Requests are seeded and penalise repetitions.
fn alone(model: &Model, number: u64) -> Vec<u32> {
    [prompt(number), test_support::alone(model, number, TOKENS)].concat()
}

/// Returns a batcher whose requests are drafted for by another model.
fn drafting_by(draft: &Model, model: &Model) -> Batcher<DeviceRunner> {
    let options = EngineOptions {
        context: 256,
        streams: 6,
        cache_tokens: 6 * 256,
        speculation: Speculation::Model,
        draft: Some(draft.clone()),
        ..EngineOptions::default()
    };
    Batcher::new(model, &options).expect("fits")
}

fn drafting(model: &Model, texts: &[Vec<u32>], wrong_one_in: u32) -> Batcher<DeviceRunner> {
    let mut batcher = speculating(model, Speculation::Off);
    batcher.speculator = Some(Speculator::new(Box::new(Scripted::new(texts.to_vec(), wrong_one_in))).eager());
    batcher
}

fn answer(events: &Receiver<EngineEvent>) -> (Vec<u32>, Option<Finish>) {
    let (mut tokens, mut end) = (vec![], None);
    for event in events.try_iter() {
        match event {
            EngineEvent::Token(token) => tokens.push(token.id),
            EngineEvent::End(finish) => end = Some(finish),
            other => panic!("{other:?}"),
        }
    }
    (tokens, end)
}

fn check(model: &Model, numbers: std::ops::Range<u64>) {
    let texts: Vec<Vec<u32>> = numbers.clone().map(|number| alone(model, number)).collect();
    for wrong_one_in in [0, 3] {
        let mut batcher = drafting(model, &texts, wrong_one_in);
        let submitted: Vec<_> = numbers
            .clone()
            .zip(&texts)
            .map(|(number, text)| {
                let prompt = prompt(number);
                // Odd requests end at a token of their answers.
                let stop = text[prompt.len() + TOKENS / 2];
                let request = TestRequest {
                    number,
                    tokens: TOKENS,
                    stop_ids: if number % 2 == 1 { vec![stop] } else { vec![] },
                    prompt,
                    ..TestRequest::default()
                };
                (request.clone().submit(&mut batcher).0, request, text)
            })
            .collect();
        while !batcher.is_idle() {
            batcher.step().expect("goes on");
        }
        for (events, request, text) in &submitted {
            let all = &text[request.prompt.len()..];
            let stop = all.iter().position(|token| request.stop_ids.contains(token));
            let expected = match stop {
                Some(stop) => (all[..stop].to_vec(), Some(Finish::Stop)),
                None => (all.to_vec(), Some(Finish::Length)),
            };
            assert_eq!(answer(events), expected, "request {}", request.number);
        }
        let load = batcher.load();
        let accepted: u64 = load.accepted_tokens.iter().sum();
        assert!(accepted > 20, "{load:?}");
        assert!(wrong_one_in > 0 || 2 * accepted > load.draft_tokens, "{load:?}");
    }
}

/// Submits a request, greedy or seeded with penalties and a bias. Returns its events, and its tokens alone.
fn submit_sampled(
    batcher: &mut Batcher<DeviceRunner>,
    model: &Model,
    number: u64,
) -> (Receiver<EngineEvent>, Vec<u32>) {
    let sampler = SamplerOptions {
        temperature: 0.9,
        presence_penalty: 0.5,
        penalises_generated: true,
        logit_bias: vec![(7, 1.0)],
        seed: number,
        ..SamplerOptions::default()
    };
    let options = match number % 3 {
        0 => GenerateOptions::default(),
        1 => options(number),
        _ => GenerateOptions {
            sampler: Sampler::new(sampler).expect("valid"),
            ..GenerateOptions::default()
        },
    };
    let options = GenerateOptions {
        max_tokens: Some(TOKENS),
        ..options
    };
    let alone = test_support::alone_with(model, prompt(number), options.clone());
    let request = TestRequest {
        number,
        tokens: TOKENS,
        prompt: prompt(number),
        ..TestRequest::default()
    };
    (request.submit_with(batcher, options).0, alone)
}

/// Texts with drafts of a model equal those without, with more texts than it caches. At least so many of a hundred
/// guesses are right.
fn check_draft_model(draft: &Model, model: &Model, percent: u64) {
    let mut batcher = drafting_by(draft, model);
    let submitted: Vec<_> = (0..6)
        .map(|number| submit_sampled(&mut batcher, model, number))
        .collect();
    while !batcher.is_idle() {
        batcher.step().expect("goes on");
    }
    for (number, (events, alone)) in submitted.into_iter().enumerate() {
        assert_eq!(answer(&events), (alone, Some(Finish::Length)), "request {number}");
    }
    let load = batcher.load();
    let accepted: u64 = load.accepted_tokens.iter().sum();
    assert!(load.drafts > 0, "{load:?}");
    assert!(100 * accepted >= percent * load.draft_tokens, "{load:?}");
}

/// Promises drafts, but proposes nothing, as a model that fails.
struct Failing;

impl Proposer for Failing {
    fn prefill(&mut self, _slot: usize, _tokens: &[u32], _options: &GenerateOptions) {}

    fn commit(&mut self, _slot: usize, _tokens: &[u32]) {}

    fn length(&mut self, _slot: usize, max: usize) -> usize {
        max
    }

    fn propose(&mut self, _slot: usize, _max: usize) -> Draft {
        Draft::default()
    }
}

#[test]
fn texts_go_on_if_promised_drafts_are_missing() {
    let model = load("tiny:f32", &Device::cpu());
    let mut batcher = speculating(&model, Speculation::Off);
    batcher.speculator = Some(Speculator::new(Box::new(Failing)));
    let submitted: Vec<_> = (0..3).map(|number| ask(&mut batcher, number, TOKENS)).collect();
    while !batcher.is_idle() {
        batcher.step().expect("goes on");
    }
    for (events, number) in submitted.iter().zip(0..) {
        let text = [prompt(number), answer(events).0].concat();
        assert_eq!(text, alone(&model, number), "request {number}");
    }
    assert_eq!(batcher.load().drafts, 0);
}

/// Returns the texts of requests that are restricted for three tokens within their answers, prompts included.
fn restricted_texts(mut batcher: Batcher<DeviceRunner>) -> Vec<Vec<u32>> {
    let request = |number: u64| TestRequest {
        number,
        prompt: prompt(number),
        tokens: TOKENS,
        constraint: Some(EveryThird {
            remainder: 1,
            restricted: 12..15,
            length: usize::MAX,
            fails_at: usize::MAX,
            taken: 0,
        }),
        ..TestRequest::default()
    };
    let submitted: Vec<_> = (0..3).map(|number| request(number).submit(&mut batcher).0).collect();
    while !batcher.is_idle() {
        batcher.step().expect("goes on");
    }
    let texts = submitted.iter().zip(0..).map(|(events, number)| {
        let (tokens, end) = answer(events);
        assert_eq!((tokens.len(), end), (TOKENS, Some(Finish::Length)));
        [prompt(number), tokens].concat()
    });
    texts.collect()
}

/// What was sampled behind a token that begins a restriction is dropped, and is not counted by penalties.
fn check_restricted(model: &Model) {
    let expected = restricted_texts(speculating(model, Speculation::Off));
    assert_eq!(restricted_texts(drafting(model, &expected, 0)), expected);
}

/// Host and device agree on which synthetic drafts are accepted: all texts get their tokens.
fn check_synthetic(model: &Model) {
    for percent in [0, 60, 100] {
        let mut batcher = speculating(model, Speculation::Synthetic { percent });
        let submitted: Vec<_> = (0..3).map(|number| ask(&mut batcher, number, TOKENS)).collect();
        while !batcher.is_idle() {
            batcher.step().expect("goes on");
        }
        for events in &submitted {
            let (tokens, end) = answer(events);
            assert_eq!((tokens.len(), end), (TOKENS, Some(Finish::Length)), "{percent} %");
        }
        let load = batcher.load();
        let accepted: u64 = load.accepted_tokens.iter().sum();
        assert!(load.drafts > 0, "{load:?}");
        match percent {
            0 => assert_eq!(accepted, 0, "{load:?}"),
            100 => assert_eq!(accepted, load.draft_tokens, "{load:?}"),
            _ => assert!(0 < accepted && accepted < load.draft_tokens, "{load:?}"),
        }
    }
}

/// States that are saved where pages end, while texts are decoded with drafts, are those without drafts: a prompt that
/// continues a text goes on as it does alone.
fn check_next_turns(model: &Model) {
    let turn = |number: u64, prompt: Vec<u32>| TestRequest {
        number,
        prompt,
        tokens: 70,
        ..TestRequest::default()
    };
    let run = |batcher: &mut Batcher<DeviceRunner>, requests: [TestRequest; 2]| {
        let submitted = requests.map(|request| (request.prompt.clone(), request.submit(batcher).0));
        while !batcher.is_idle() {
            batcher.step().expect("goes on");
        }
        submitted.map(|(prompt, events)| [prompt, answer(&events).0].concat())
    };
    let next = |texts: &[Vec<u32>; 2]| [0, 1].map(|n| turn(n as u64 + 2, [&texts[n][..], &prompt(0)].concat()));
    let mut alone = speculating(model, Speculation::Off);
    let first = run(&mut alone, [0, 1].map(|number| turn(number, prompt(number))));
    let mut fresh = speculating(model, Speculation::Off);
    let second = run(&mut fresh, next(&first));
    let mut drafting = drafting(model, &[&first[..], &second].concat(), 5);
    let texts = run(&mut drafting, [0, 1].map(|number| turn(number, prompt(number))));
    assert_eq!(texts, first);
    for text in &texts {
        let prefix = drafting.pool.lookup(text);
        assert_eq!(prefix.pages.len(), 1, "of a text that ends in its second page");
        drafting.pool.give_back(&prefix.pages);
    }
    assert_eq!(run(&mut drafting, next(&texts)), second);
    assert!(drafting.load().accepted_tokens[0] > 0, "{:?}", drafting.load());
}

#[test]
fn drafts_work_on_the_cpu() {
    for spec in ["tiny:f32", "tiny-hybrid:f32"] {
        let model = load(spec, &Device::cpu());
        check(&model, 0..6);
        check_synthetic(&model);
        check_restricted(&model);
        check_next_turns(&model);
    }
    let model = load("tiny:f32", &Device::cpu());
    // A model guesses its own tokens right, except for rounding.
    check_draft_model(&model, &model, 90);
    check_draft_model(&model, &load("tiny-hybrid:f32", &Device::cpu()), 0);
}

#[test]
fn drafts_work_on_a_gpu() {
    if !refrain_testing::drawn(24) {
        return;
    }
    let device = gpu();
    for spec in ["tiny:f16", "tiny-hybrid:f16"] {
        let model = load(spec, &device);
        check(&model, 0..3);
        check_synthetic(&model);
        check_restricted(&model);
    }
    let model = load("tiny:f16", &device);
    check_draft_model(&model, &model, 90);
}
