//! An engine's output for each request equals that of an engine of its own.

#[path = "../common/mod.rs"]
mod common;
mod constraints;
mod prompt_outputs;
mod sharing;
mod snapshots;
mod speculation;

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use common::{TestGpu, engine, model};
use refrain_engine::{
    Device, Engine, EngineEvent, EngineOptions, EngineRequest, EngineTicket, Error, Finish, GenerateOptions, Model,
    PickedToken, Sampler, SamplerOptions,
};
use refrain_testing::wait_until;

const MAX_WAIT: Duration = Duration::from_secs(120);

/// Returns `length` tokens that depend on `number`.
fn prompt(number: u32, length: u32) -> Vec<u32> {
    (0..length)
        .map(|at| (7 * number + 13 * at + at * at) % 200 + 3)
        .collect()
}

fn greedy(tokens: usize) -> GenerateOptions {
    GenerateOptions {
        max_tokens: Some(tokens),
        ..GenerateOptions::default()
    }
}

fn seeded(tokens: usize, seed: u64) -> GenerateOptions {
    let options = SamplerOptions {
        temperature: 0.9,
        top_k: 20,
        repeat_penalty: 1.1,
        seed,
        ..SamplerOptions::default()
    };
    GenerateOptions {
        sampler: Sampler::new(options).expect("valid"),
        ..greedy(tokens)
    }
}

/// A request in flight.
struct Submitted {
    _ticket: EngineTicket,
    events: Receiver<EngineEvent>,
}

impl Submitted {
    fn next(&self) -> EngineEvent {
        self.events.recv_timeout(MAX_WAIT).expect("the engine goes on")
    }

    fn answer(self) -> (Vec<u32>, Finish) {
        let (tokens, finish) = self.picked();
        (tokens.iter().map(|token| token.id).collect(), finish)
    }

    fn picked(self) -> (Vec<PickedToken>, Finish) {
        let mut tokens = vec![];
        loop {
            match self.next() {
                EngineEvent::Token(token) => tokens.push(token),
                EngineEvent::End(finish) => return (tokens, finish),
                EngineEvent::Failed(error) => panic!("{error}"),
                EngineEvent::Embedding(_) | EngineEvent::Logits(_) => panic!("a text was requested"),
            }
        }
    }
}

fn ask(engine: &Engine, prompt: &[u32], options: &GenerateOptions) -> Result<Submitted, Error> {
    ask_for(engine, EngineRequest::new(prompt.to_vec(), options.clone()))
}

fn ask_for(engine: &Engine, request: EngineRequest) -> Result<Submitted, Error> {
    let (sender, events) = channel();
    let ticket = engine.submit(request, Box::new(move |event| drop(sender.send(event))))?;
    Ok(Submitted {
        _ticket: ticket,
        events,
    })
}

fn alone(model: &Model, context: usize, prompt: &[u32], options: &GenerateOptions) -> Vec<u32> {
    let request = EngineRequest::new(prompt.to_vec(), options.clone());
    let tokens = engine(model, context, 512).generate(request).expect("begins");
    tokens.collect::<Result<_, _>>().expect("goes on")
}

/// Submits all requests, some later than others, and compares each with its own engine.
fn compare(model: &Model, options: &EngineOptions, requests: &[(Vec<u32>, GenerateOptions)]) {
    let engine = Engine::start(model, options).expect("starts");
    compare_on(&engine, model, requests);
}

/// As [`compare`], with an engine.
fn compare_on(engine: &Engine, model: &Model, requests: &[(Vec<u32>, GenerateOptions)]) {
    let (first, later) = requests.split_at(requests.len() / 2);
    let mut submitted: Vec<Submitted> = first.iter().map(|(p, o)| ask(engine, p, o).expect("taken")).collect();
    // The others join while these are running.
    std::thread::sleep(Duration::from_millis(30));
    submitted.extend(later.iter().map(|(p, o)| ask(engine, p, o).expect("taken")));
    for (number, (submitted, (prompt, generate))) in submitted.into_iter().zip(requests).enumerate() {
        let (tokens, finish) = submitted.answer();
        assert_eq!(
            tokens,
            alone(model, engine.options().context, prompt, generate),
            "request {number}"
        );
        assert_eq!(finish, Finish::Length, "request {number}");
    }
}

fn requests() -> Vec<(Vec<u32>, GenerateOptions)> {
    let lengths = [1, 70, 130, 64, 65];
    let request = |(number, length): (usize, u32)| {
        let number = number as u32;
        let options = match number % 2 {
            0 => greedy(12 + number as usize),
            _ => seeded(20, u64::from(number)),
        };
        (prompt(number, length), options)
    };
    lengths.into_iter().enumerate().map(request).collect()
}

fn options(streams: usize, cache_tokens: usize) -> EngineOptions {
    EngineOptions {
        context: 256,
        streams,
        cache_tokens,
        ..EngineOptions::default()
    }
}

#[test]
fn batched_requests_match_single_ones() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let gpu = TestGpu::open();
    for device in [&Device::cpu(), &gpu.device] {
        for spec in ["qwen3-bf16", "qwen3.5-moe-bf16"] {
            compare(&model(spec, device), &options(4, 1024), &requests());
        }
    }
    gpu.assert_silent();
}

#[test]
fn running_out_of_pages_preempts_requests_without_losing_tokens() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let gpu = TestGpu::open();
    let request = |number: u32| (prompt(number, 40), seeded(100, u64::from(number)));
    let requests: Vec<_> = (0..4).map(request).collect();
    for device in [&Device::cpu(), &gpu.device] {
        let model = model("qwen3-bf16", device);
        let engine = Engine::start(&model, &options(4, 256)).expect("starts");
        // After texts that end at once, the engine expects short ones, and reserves few pages.
        let first = alone(&model, 256, &prompt(1, 5), &greedy(1))[0];
        let stopped = GenerateOptions {
            stop_ids: vec![first],
            ..greedy(100)
        };
        for _ in 0..60 {
            let text = ask(&engine, &prompt(1, 5), &stopped).expect("taken");
            assert_eq!(text.answer(), (vec![], Finish::Stop));
        }
        // Each request eventually needs three of four pages.
        compare_on(&engine, &model, &requests);
        let load = engine.load();
        assert!(load.preemptions > 0, "{load:?}");
        assert_eq!(load.prompt_tokens, 60 * 5 + 4 * 40, "a prompt counts once");
    }
}

#[test]
fn shared_prefixes_are_not_recomputed() {
    let gpu = TestGpu::open();
    let model = model("qwen3-bf16", &gpu.device);
    let engine = Engine::start(&model, &options(2, 1024)).expect("starts");
    let mut prompt = prompt(1, 150);
    let first = ask(&engine, &prompt, &greedy(20)).expect("taken").answer().0;
    assert_eq!(engine.load().cached_tokens, 0);
    // The same prompt, its output, and more: all but the last token of the output is cached by then.
    prompt.extend(&first);
    prompt.extend([5, 6, 7]);
    prompt.extend(prompt.clone().iter().take(40));
    prompt.truncate(200);
    let second = ask(&engine, &prompt, &greedy(20)).expect("taken").answer().0;
    assert_eq!(second, alone(&model, 256, &prompt, &greedy(20)));
    assert_eq!(engine.load().cached_tokens, 169);
    let forgetful = EngineOptions {
        prefix_cache: false,
        ..options(2, 1024)
    };
    let engine = Engine::start(&model, &forgetful).expect("starts");
    for _ in 0..2 {
        ask(&engine, &prompt, &greedy(2)).expect("taken").answer();
    }
    assert_eq!(engine.load().cached_tokens, 0);
}

#[test]
fn recurrent_states_are_cached_at_prompt_ends_and_divergences() {
    if !refrain_testing::drawn(8) {
        return;
    }
    let gpu = TestGpu::open();
    for device in [&Device::cpu(), &gpu.device] {
        let model = model("qwen3.5-moe-bf16", device);
        let engine = Engine::start(&model, &options(2, 2048)).expect("starts");
        let mut cached = 0;
        // Returns the cached tokens of the prompt.
        let mut known = |prompt: &[u32]| {
            let text = ask(&engine, prompt, &greedy(3)).expect("taken").answer().0;
            assert_eq!(text, alone(&model, 256, prompt, &greedy(3)), "{} tokens", prompt.len());
            let before = std::mem::replace(&mut cached, engine.load().cached_tokens);
            (cached - before, text)
        };
        let first = prompt(1, 150);
        let (none, text) = known(&first);
        assert_eq!((none, known(&first).0), (0, 128));
        let next_turn = [&first, &text[..], &prompt(2, 20)].concat();
        assert_eq!(known(&next_turn).0, 128);
        // The tokens of the page are known, but not the states after it until a second prompt has diverged there.
        let parts = |number| [&first[..70], &prompt(number, 50)].concat();
        assert_eq!([3, 4, 5].map(|number| known(&parts(number)).0), [0, 64, 64]);
        assert_eq!(known(&next_turn).0, 128);
    }
}

#[test]
fn cancelled_requests_free_their_slot_and_pages() {
    let model = model("tiny:f32", &Device::cpu());
    let engine = Engine::start(&model, &options(1, 256)).expect("starts");
    let long = ask(&engine, &prompt(1, 3), &greedy(250)).expect("taken");
    let waiting = ask(&engine, &prompt(2, 3), &greedy(2)).expect("taken");
    assert!(matches!(long.next(), EngineEvent::Token(_)));
    drop(long);
    assert_eq!(waiting.answer().0.len(), 2);
    wait_until("no request is running", || {
        engine.load().running + engine.load().pages_in_use == 0
    });
    assert_eq!((engine.load().running, engine.load().waiting), (0, 0));
    assert_eq!(engine.load().pages_in_use, 0, "what is only remembered is free");
}

#[test]
fn texts_end_at_stop_tokens_limits_and_full_contexts() {
    let model = model("tiny:f32", &Device::cpu());
    let engine = Engine::start(&model, &options(2, 256)).expect("starts");
    let finish =
        |length: u32, options: &GenerateOptions| ask(&engine, &prompt(1, length), options).expect("taken").answer();
    let (tokens, end) = finish(4, &greedy(9));
    assert_eq!((tokens.len(), end), (9, Finish::Length));
    let stop = GenerateOptions {
        stop_ids: vec![tokens[4]],
        ..greedy(9)
    };
    let until = tokens.iter().position(|id| *id == tokens[4]).expect("there");
    assert_eq!(finish(4, &stop), (tokens[..until].to_vec(), Finish::Stop));
    let (tokens, end) = finish(250, &GenerateOptions::default());
    assert_eq!((tokens.len(), end), (6, Finish::Context));
    assert_eq!(finish(250, &greedy(0)).1, Finish::Length);
}

#[test]
fn refuses_invalid_requests_and_overload() {
    let model = model("tiny:f32", &Device::cpu());
    let narrow = EngineOptions {
        queue: 1,
        ..options(1, 256)
    };
    let engine = Engine::start(&model, &narrow).expect("starts");
    let refusal = |prompt: &[u32]| match ask(&engine, prompt, &greedy(1)) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("taken"),
    };
    assert!(refusal(&[]).contains("the prompt is empty"));
    assert!(refusal(&prompt(0, 256)).contains("257 tokens do not fit in a context of 256"));
    assert!(refusal(&[1, u32::MAX]).contains("out of range"));
    // The engine is blocked by a listener, so that no request ends.
    let (release, gate) = channel::<()>();
    let held = EngineRequest::new(vec![1, 2], greedy(2));
    let listener = Box::new(move |_| {
        let _ = gate.recv();
    });
    let held = engine.submit(held, listener).expect("taken");
    let waiting = ask(&engine, &[1, 2], &greedy(2)).expect("taken");
    assert!(refusal(&[1]).contains("2 requests are already running or waiting"));
    drop((release, held, waiting));
    wait_until("there is room", || ask(&engine, &[1], &greedy(1)).is_ok());
    assert!(Engine::start(&model, &options(1, 256)).is_ok());
    let beyond = EngineOptions {
        context: model.config().max_position + 1,
        ..narrow
    };
    assert!(matches!(
        Engine::start(&model, &beyond),
        Err(Error::ContextRange { .. })
    ));
}

/// Returns the log-softmax of the logits after each token but the last.
fn log_probabilities(model: &Model, tokens: &[u32]) -> Vec<Vec<f64>> {
    let engine = engine(model, 256, 512);
    let logits = engine.logits(&tokens[..tokens.len() - 1], 0).expect("computes");
    let of_row = |row: &[f32]| {
        let total: f64 = row.iter().map(|logit| f64::from(*logit).exp()).sum();
        row.iter().map(|logit| f64::from(*logit) - total.ln()).collect()
    };
    logits.chunks_exact(engine.vocabulary()).map(of_row).collect()
}

#[test]
fn logprobs_reach_only_requests_that_ask_and_change_no_text() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let gpu = TestGpu::open();
    let reference = model("granite-bf16", &Device::cpu());
    for device in [&Device::cpu(), &gpu.device] {
        let model = model("granite-bf16", device);
        let engine = Engine::start(&model, &options(4, 1024)).expect("starts");
        // Requests without log-probabilities are decoded beside those with them.
        let requests = requests();
        let top_logprobs = [Some(20), None, Some(3), Some(0), Some(5)];
        let submitted = requests
            .iter()
            .zip(top_logprobs)
            .map(|((prompt, options), top_logprobs)| {
                let request = EngineRequest::new(prompt.clone(), options.clone());
                ask_for(
                    &engine,
                    EngineRequest {
                        top_logprobs,
                        ..request
                    },
                )
                .expect("taken")
            });
        let submitted: Vec<Submitted> = submitted.collect();
        for (number, (submitted, (prompt, options))) in submitted.into_iter().zip(&requests).enumerate() {
            let (picked, _) = submitted.picked();
            let ids: Vec<u32> = picked.iter().map(|token| token.id).collect();
            assert_eq!(ids, alone(&model, 256, prompt, options), "request {number}");
            let all = log_probabilities(&reference, &[&prompt[..], &ids].concat());
            for (token, expected) in picked.iter().zip(&all[prompt.len() - 1..]) {
                let Some(logprobs) = &token.logprobs else {
                    assert_eq!(top_logprobs[number], None);
                    continue;
                };
                let near = |found: f32, id: u32| {
                    let expected = expected[id as usize];
                    assert!((f64::from(found) - expected).abs() < 1e-3, "{found} is not {expected}");
                };
                near(logprobs.sampled, token.id);
                assert_eq!(Some(logprobs.top.len()), top_logprobs[number]);
                logprobs.top.iter().for_each(|&(id, found)| near(found, id));
                assert!(logprobs.top.is_sorted_by(|a, b| a.1 >= b.1), "{logprobs:?}");
                let most = expected.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                if let Some(&(first, likely)) = logprobs.top.first() {
                    assert!((f64::from(likely) - most).abs() < 1e-3);
                    // Even requests are greedy.
                    assert!(number % 2 == 1 || first == token.id);
                }
            }
        }
    }
    gpu.assert_silent();
}

#[test]
fn deterministic_engines_are_bit_identical_beside_other_requests() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let gpu = TestGpu::open();
    for device in [&Device::cpu(), &gpu.device] {
        let model = model("qwen3-gguf-q4_0/model.gguf", device);
        let options = EngineOptions {
            deterministic: true,
            ..options(3, 512)
        };
        let submitted = |engine: &Engine, number: u32| {
            let request = EngineRequest::new(prompt(number, 20 + 45 * number), seeded(40, u64::from(number)));
            let top_logprobs = Some(3);
            ask_for(
                engine,
                EngineRequest {
                    top_logprobs,
                    ..request
                },
            )
            .expect("taken")
        };
        let together = Engine::start(&model, &options).expect("starts");
        let all: Vec<Submitted> = (0..5).map(|number| submitted(&together, number % 4)).collect();
        for (number, answer) in all.into_iter().enumerate() {
            let alone = Engine::start(&model, &options).expect("starts");
            let number = number as u32 % 4;
            assert_eq!(answer.picked(), submitted(&alone, number).picked(), "request {number}");
        }
    }
    gpu.assert_silent();
}

#[test]
fn waiting_clients_are_served_fairly() {
    let model = model("tiny:f32", &Device::cpu());
    let engine = Engine::start(&model, &options(1, 256)).expect("starts");
    let (ended, order) = channel();
    let ask = |client: u64, number: u32| {
        let request = EngineRequest::new(prompt(number, 3), greedy(40));
        let ended = ended.clone();
        let listener = Box::new(move |event| {
            if matches!(event, EngineEvent::End(_)) {
                let _ = ended.send(client);
            }
        });
        engine
            .submit(EngineRequest { client, ..request }, listener)
            .expect("taken")
    };
    let tickets: Vec<EngineTicket> = (0..5).map(|number| ask(7, number)).chain([ask(8, 9)]).collect();
    let order: Vec<u64> = tickets
        .iter()
        .map(|_| order.recv_timeout(MAX_WAIT).expect("ends"))
        .collect();
    let index = order.iter().position(|client| *client == 8).expect("there");
    assert!(
        index <= 2,
        "the last request waits for at most one request of the other client: {order:?}"
    );
}
