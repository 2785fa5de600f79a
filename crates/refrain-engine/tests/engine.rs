//! An engine of requests says of each what a session says of it alone.

mod common;

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use common::TestGpu;
use refrain_engine::{
    Device, Engine, EngineEvent, EngineOptions, EngineRequest, EngineTicket, Error, Finish, GenerateOptions,
    LoadOptions, Model, Sampler, SamplerOptions, Session,
};
use refrain_models::Checkpoint;

const LONGEST_WAIT: Duration = Duration::from_secs(120);

fn model(spec: &str, device: &Device) -> Model {
    let checkpoint = Checkpoint::synthetic(spec).expect("a checkpoint");
    Model::load(&checkpoint, device, &LoadOptions::default()).expect("loads")
}

/// `length` tokens that differ by `number`.
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

/// A request under way.
struct Asked {
    _ticket: EngineTicket,
    heard: Receiver<EngineEvent>,
}

impl Asked {
    fn next(&self) -> EngineEvent {
        self.heard.recv_timeout(LONGEST_WAIT).expect("the engine goes on")
    }

    fn answer(self) -> (Vec<u32>, Finish) {
        let mut tokens = vec![];
        loop {
            match self.next() {
                EngineEvent::Token(id) => tokens.push(id),
                EngineEvent::End(finish) => return (tokens, finish),
                EngineEvent::Failed(error) => panic!("{error}"),
            }
        }
    }
}

fn ask(engine: &Engine, prompt: &[u32], options: &GenerateOptions) -> Result<Asked, Error> {
    let (events, heard) = channel();
    let request = EngineRequest {
        prompt: prompt.to_vec(),
        options: options.clone(),
    };
    let ticket = engine.submit(request, Box::new(move |event| drop(events.send(event))))?;
    Ok(Asked { _ticket: ticket, heard })
}

fn alone(model: &Model, context: usize, prompt: &[u32], options: &GenerateOptions) -> Vec<u32> {
    let mut session = Session::new(model, context).expect("fits");
    let tokens = session.generate(prompt, options).expect("begins");
    tokens.collect::<Result<_, _>>().expect("goes on")
}

/// Asks for all at once, some of them later than others, and compares with each alone.
fn compare(model: &Model, options: &EngineOptions, requests: &[(Vec<u32>, GenerateOptions)]) -> Engine {
    let engine = Engine::start(model, options).expect("starts");
    let (first, later) = requests.split_at(requests.len() / 2);
    let mut asked: Vec<Asked> = first.iter().map(|(p, o)| ask(&engine, p, o).expect("taken")).collect();
    // The others join while these are under way.
    std::thread::sleep(Duration::from_millis(30));
    asked.extend(later.iter().map(|(p, o)| ask(&engine, p, o).expect("taken")));
    for (number, (asked, (prompt, generate))) in asked.into_iter().zip(requests).enumerate() {
        let (tokens, finish) = asked.answer();
        assert_eq!(
            tokens,
            alone(model, options.context, prompt, generate),
            "request {number}"
        );
        assert_eq!(finish, Finish::Length, "request {number}");
    }
    engine
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
fn texts_computed_together_are_those_computed_alone() {
    let gpu = TestGpu::open();
    for device in [&Device::cpu(), &gpu.device] {
        for spec in ["tiny:f32", "tiny-hybrid:f32"] {
            compare(&model(spec, device), &options(4, 1024), &requests());
        }
    }
    gpu.assert_silent();
}

#[test]
fn where_pages_run_out_the_last_come_waits_and_nothing_is_lost() {
    let gpu = TestGpu::open();
    let request = |number: u32| (prompt(number, 40), seeded(100, u64::from(number)));
    let requests: Vec<_> = (0..4).map(request).collect();
    for device in [&Device::cpu(), &gpu.device] {
        // Each request comes to need three of four pages.
        compare(&model("tiny:f32", device), &options(4, 256), &requests);
    }
}

#[test]
fn a_prompt_that_begins_like_another_is_computed_from_where_they_part() {
    let gpu = TestGpu::open();
    let model = model("tiny:f32", &gpu.device);
    let engine = Engine::start(&model, &options(2, 1024)).expect("starts");
    let mut prompt = prompt(1, 150);
    let first = ask(&engine, &prompt, &greedy(20)).expect("taken").answer().0;
    assert_eq!(engine.load().cached_tokens, 0);
    // The same, what was said, and more: three pages of 64 are known then.
    prompt.extend(&first);
    prompt.extend([5, 6, 7]);
    prompt.extend(prompt.clone().iter().take(40));
    prompt.truncate(200);
    let second = ask(&engine, &prompt, &greedy(20)).expect("taken").answer().0;
    assert_eq!(second, alone(&model, 256, &prompt, &greedy(20)));
    assert_eq!(engine.load().cached_tokens, 128);
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
fn who_leaves_makes_room() {
    let model = model("tiny:f32", &Device::cpu());
    let engine = Engine::start(&model, &options(1, 256)).expect("starts");
    let long = ask(&engine, &prompt(1, 3), &greedy(250)).expect("taken");
    let waiting = ask(&engine, &prompt(2, 3), &greedy(2)).expect("taken");
    assert!(matches!(long.next(), EngineEvent::Token(_)));
    drop(long);
    assert_eq!(waiting.answer().0.len(), 2);
    let begin = Instant::now();
    while engine.load().running + engine.load().pages_in_use > 0 && begin.elapsed() < LONGEST_WAIT {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!((engine.load().running, engine.load().waiting), (0, 0));
    assert_eq!(engine.load().pages_in_use, 0, "what is only remembered is free");
}

#[test]
fn texts_end_by_a_stop_token_at_their_length_or_with_the_context() {
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
fn what_cannot_be_computed_is_refused() {
    let model = model("tiny:f32", &Device::cpu());
    let narrow = EngineOptions {
        queue: 1,
        ..options(1, 256)
    };
    let engine = Engine::start(&model, &narrow).expect("starts");
    let said = |prompt: &[u32]| match ask(&engine, prompt, &greedy(1)) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("taken"),
    };
    assert!(said(&[]).contains("the prompt is empty"));
    assert!(said(&prompt(0, 256)).contains("257 tokens do not fit in a context of 256"));
    assert!(said(&[1, u32::MAX]).contains("out of range"));
    // The engine stands still while somebody listens, so that none of these comes to its end.
    let (release, gate) = channel::<()>();
    let held = EngineRequest {
        prompt: vec![1, 2],
        options: greedy(2),
    };
    let listener = Box::new(move |_| {
        let _ = gate.recv();
    });
    let held = engine.submit(held, listener).expect("taken");
    let waiting = ask(&engine, &[1, 2], &greedy(2)).expect("taken");
    assert!(said(&[1]).contains("2 requests are running or waiting already"));
    drop((release, held, waiting));
    let begin = Instant::now();
    while ask(&engine, &[1], &greedy(1)).is_err() && begin.elapsed() < LONGEST_WAIT {
        std::thread::sleep(Duration::from_millis(5));
    }
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
