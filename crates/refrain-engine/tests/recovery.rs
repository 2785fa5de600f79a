//! Devices that fail under an engine, and requests that panic: nobody else hears of it.

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::null::{reporting, reporting_within};
use common::{TestGpu, model};
use refrain::Array;
use refrain_engine::{
    Device, Engine, EngineEvent, EngineListener, EngineLoad, EngineOptions, EngineRequest, EngineTicket, Error, Finish,
    GenerateOptions, LoadOptions, Model, Sampler, SamplerOptions, Session, TokenConstraint,
};
use refrain_models::Checkpoint;
use refrain_vulkan::Fault;

fn prompt(number: u32, length: u32) -> Vec<u32> {
    (0..length).map(|at| (7 * number + 13 * at) % 200 + 3).collect()
}

fn options(tokens: usize, seed: u64) -> GenerateOptions {
    let sampler = SamplerOptions {
        temperature: 0.9,
        repeat_penalty: 1.1,
        seed,
        ..SamplerOptions::default()
    };
    GenerateOptions {
        max_tokens: Some(tokens),
        sampler: Sampler::new(sampler).expect("valid"),
        ..GenerateOptions::default()
    }
}

fn engine_options(streams: usize) -> EngineOptions {
    EngineOptions {
        context: 256,
        streams,
        cache_tokens: 64 * streams,
        queue: 1000,
        ..EngineOptions::default()
    }
}

struct Asked(
    #[allow(dead_code, reason = "it ends with this")] EngineTicket,
    Receiver<EngineEvent>,
);

impl Asked {
    fn answer(&self) -> Result<(Vec<u32>, Finish), Error> {
        let mut tokens = vec![];
        loop {
            match self
                .1
                .recv_timeout(Duration::from_secs(120))
                .expect("the engine goes on")
            {
                EngineEvent::Token(token) => tokens.push(token.id),
                EngineEvent::End(finish) => return Ok((tokens, finish)),
                EngineEvent::Failed(error) => return Err(error),
                EngineEvent::Embedding(_) => panic!("a text was asked for"),
            }
        }
    }
}

/// Asks; `and` is called with each event too, on the engine's thread.
fn ask(engine: &Engine, request: EngineRequest, mut and: impl FnMut(&EngineEvent) + Send + 'static) -> Asked {
    let (events, heard) = channel();
    let listener: EngineListener = Box::new(move |event| {
        and(&event);
        let _ = events.send(event);
    });
    Asked(engine.submit(request, listener).expect("taken"), heard)
}

/// What was counted, once nobody is served: counters are shown behind a round, within which answers end.
fn settled(engine: &Engine) -> EngineLoad {
    refrain_testing::wait_until("nobody is served", || engine.load().running == 0);
    engine.load()
}

fn alone(model: &Model, prompt: &[u32], options: &GenerateOptions) -> Vec<u32> {
    let mut session = Session::new(model, 256).expect("fits");
    let tokens = session.generate(prompt, options).expect("begins");
    tokens.collect::<Result<_, _>>().expect("goes on")
}

#[test]
fn texts_go_on_from_their_tokens_when_the_device_is_opened_again() {
    let request = |number: u32| (prompt(number, 20 + 30 * number), options(24, number.into()));
    let gpu = TestGpu::open();
    let expected: Vec<Vec<u32>> = (0..4)
        .map(|number| {
            alone(
                &model("qwen3-bf16", &gpu.device),
                &request(number).0,
                &request(number).1,
            )
        })
        .collect();
    let first = model("qwen3-bf16", &gpu.device);
    let open = Arc::new(Mutex::new(gpu));
    let reload = {
        let open = open.clone();
        move |_: &Error| {
            let mut gpu = open.lock().unwrap();
            gpu.assert_silent();
            *gpu = TestGpu::open();
            Ok(model("qwen3-bf16", &gpu.device))
        }
    };
    let engine = Engine::start_reloading(first, &engine_options(4), Box::new(reload)).expect("starts");
    let count = Arc::new(AtomicU64::new(0));
    let asked: Vec<Asked> = (0..4)
        .map(|number| {
            let (prompt, options) = request(number);
            let (open, count) = (open.clone(), count.clone());
            ask(&engine, EngineRequest::new(prompt, options), move |event| {
                let tokens = count.fetch_add(1, Ordering::Relaxed);
                if matches!(event, EngineEvent::Token(_)) && [3, 31, 32, 70].contains(&tokens) {
                    let device = open.lock().unwrap().device.clone();
                    if device.check_status().is_err() {
                        return;
                    }
                    // What runs on a real card has ended when the card is lost.
                    let one = Array::from_slice(&device, &[1f32], &[1]);
                    (&one + &one).to_vec::<f32>().expect("in order behind all others");
                    device.note_loss();
                }
            })
        })
        .collect();
    for (asked, expected) in asked.iter().zip(expected) {
        assert_eq!(asked.answer().expect("no error"), (expected, Finish::Length));
    }
    let load = settled(&engine);
    assert!((2..=4).contains(&load.restarts), "{load:?}");
    assert_eq!(load.generated_tokens, 4 * 24, "each token is told once");
    assert!(!engine.has_failed() && !engine.is_recovering());
    drop(engine);
    open.lock().unwrap().assert_silent();
}

#[test]
fn a_thousand_streams_lose_no_token_to_devices_that_are_lost_at_random_points() {
    let mut random = 1u64;
    let mut lost_somewhere = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let list = 20 + (random >> 33) % 1000;
        let faults = [Fault::LostAt(list), Fault::SilentFrom(list), Fault::JumpsAt(list)];
        model("tiny:f16", &reporting(&[faults[(random >> 60) as usize % 3]]).0)
    };
    let first = lost_somewhere();
    let engine = Engine::start_reloading(first, &engine_options(32), Box::new(move |_| Ok(lost_somewhere())));
    let engine = engine.expect("starts");
    let tokens = |number: usize| 1 + number % 23;
    let asked: Vec<Asked> = (0..1000)
        .map(|number| {
            let greedy = GenerateOptions {
                max_tokens: Some(tokens(number)),
                ..GenerateOptions::default()
            };
            let prompt = prompt(number as u32, 1 + number as u32 % 90);
            ask(&engine, EngineRequest::new(prompt, greedy), |_| ())
        })
        .collect();
    for (number, asked) in asked.iter().enumerate() {
        let (heard, finish) = asked.answer().unwrap_or_else(|why| panic!("stream {number}: {why}"));
        assert_eq!(
            (heard.len(), finish),
            (tokens(number), Finish::Length),
            "stream {number}"
        );
    }
    assert!(engine.load().restarts >= 3, "{:?}", engine.load());
}

#[test]
fn a_device_that_gives_no_more_tokens_is_given_up_and_all_hear_why() {
    let lost = || model("tiny:f16", &reporting(&[Fault::LostAt(3)]).0);
    let reloads = Arc::new(AtomicU64::new(0));
    let reload = {
        let reloads = reloads.clone();
        move |_: &Error| match reloads.fetch_add(1, Ordering::Relaxed) {
            1 => Err("the card is not there yet".into()),
            _ => Ok(lost()),
        }
    };
    let engine = Engine::start_reloading(lost(), &engine_options(2), Box::new(reload)).expect("starts");
    let request = || EngineRequest::new(prompt(1, 150), options(20, 1));
    let asked = [(); 3].map(|()| ask(&engine, request(), |_| ()));
    for asked in &asked {
        let why = asked.answer().expect_err("nothing computes it").to_string();
        assert!(why.contains("the device was lost"), "{why}");
    }
    assert_eq!(reloads.load(Ordering::Relaxed), 5);
    assert!(engine.has_failed() && !engine.is_recovering());
    assert!(matches!(
        engine.submit(request(), Box::new(|_| ())),
        Err(Error::EngineFailed)
    ));
}

fn without_reload(model: Model, streams: usize) -> Result<Engine, Error> {
    let reload = Box::new(|why: &Error| -> Result<Model, _> { panic!("{why}: memory is no loss") });
    Engine::start_reloading(model, &engine_options(streams), reload)
}

fn ask_greedily(engine: &Engine, number: usize, tokens: usize) -> Asked {
    let greedy = GenerateOptions {
        max_tokens: Some(tokens),
        ..GenerateOptions::default()
    };
    let prompt = prompt(number as u32, 1 + number as u32 % 90);
    ask(engine, EngineRequest::new(prompt, greedy), |_| ())
}

#[test]
fn no_token_is_lost_where_the_host_runs_out_of_memory_at_random_points() {
    let mut random = 1u64;
    let faults: Vec<Fault> = (0..60)
        .map(|number| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            Fault::SubmitFails(60 + 20 * number + (random >> 33) % 20)
        })
        .collect();
    let engine = without_reload(model("tiny:f16", &reporting(&faults).0), 16).expect("starts");
    let asked: Vec<Asked> = (0..300)
        .map(|number| ask_greedily(&engine, number, 1 + number % 23))
        .collect();
    for (number, asked) in asked.iter().enumerate() {
        let (heard, finish) = asked.answer().unwrap_or_else(|why| panic!("stream {number}: {why}"));
        assert_eq!(
            (heard.len(), finish),
            (1 + number % 23, Finish::Length),
            "stream {number}"
        );
    }
    let load = settled(&engine);
    assert!(load.preemptions >= 60 && load.restarts == 0, "{load:?}");
}

#[test]
fn a_card_that_is_too_small_for_all_serves_some_at_a_time_or_says_so() {
    let [mut started, mut squeezed, mut refused, mut roomy] = [0; 4];
    for kilobytes in (9_000..16_384).step_by(96) {
        let (card, _) = reporting_within(kilobytes << 10, &[]);
        let checkpoint = Checkpoint::synthetic("tiny:f16").expect("a checkpoint");
        let Ok(model) = Model::load(&checkpoint, &card, &LoadOptions::default()) else {
            continue;
        };
        let Ok(engine) = without_reload(model, 8) else { continue };
        let asked: Vec<Asked> = (0..10).map(|number| ask_greedily(&engine, 11 * number, 5)).collect();
        started += 1;
        for asked in &asked {
            match asked.answer() {
                Ok((tokens, finish)) => assert_eq!((tokens.len(), finish), (5, Finish::Length)),
                Err(Error::NoMemory(_)) => refused += 1,
                Err(other) => panic!("{kilobytes} KiB: {other}"),
            }
        }
        let load = settled(&engine);
        assert!(!engine.has_failed() && load.restarts == 0, "{kilobytes} KiB: {load:?}");
        squeezed += usize::from(load.preemptions > 0);
        roomy += usize::from(load.preemptions == 0);
        if roomy > 2 {
            break;
        }
    }
    println!("{started} cards, {squeezed} of them short of memory; {refused} requests refused");
    assert!(
        squeezed > 3 && roomy > 0 && refused > 0,
        "{started}, {squeezed}, {refused}"
    );
}

struct Panics;

impl TokenConstraint for Panics {
    fn allow(&mut self, bits: &mut [u32]) -> Result<(), String> {
        bits.fill(u32::MAX);
        Ok(())
    }

    fn take(&mut self, token: u32) -> Result<bool, String> {
        panic!("made up, at token {token}");
    }
}

#[test]
fn a_panic_in_one_request_ends_that_request_alone() {
    let model = model("tiny:f32", &Device::cpu());
    let engine = Engine::start(&model, &engine_options(4)).expect("starts");
    let request = |number: u32| EngineRequest::new(prompt(number, 9), options(30, number.into()));
    let sound = ask(&engine, request(1), |_| ());
    let constrained = EngineRequest {
        constraint: Some(Box::new(Panics)),
        ..request(2)
    };
    let constrained = ask(&engine, constrained, |_| ());
    let heard = Arc::new(AtomicU64::new(0));
    let count = heard.clone();
    let _listens = ask(&engine, request(3), move |_| {
        assert!(count.fetch_add(1, Ordering::Relaxed) < 2, "made up");
    });
    assert_eq!(
        sound.answer().expect("goes on").0,
        alone(&model, &prompt(1, 9), &options(30, 1))
    );
    let why = constrained.answer().expect_err("panics");
    assert!(
        matches!(&why, Error::Constraint(why) if why.contains("made up, at token")),
        "{why}"
    );
    assert_eq!(heard.load(Ordering::Relaxed), 3, "who panics hears no more");
    assert!(!engine.has_failed());
}

#[test]
fn a_session_takes_a_prompt_in_by_shorter_chunks_where_memory_is_short() {
    let prompt = vec![1; 2500];
    let scratch_within = |megabytes: u64| {
        let (card, _) = reporting_within(megabytes << 20, &[]);
        let mut session = Session::new(&model("tiny:f16", &card), prompt.len() + 1).ok()?;
        session.set_chunk(2048);
        session.feed(&prompt).ok()?;
        assert_eq!(session.position(), prompt.len());
        Some((session.shorter_chunk(), session.memory().scratch_bytes))
    };
    let (longest, roomy) = scratch_within(512).expect("room for anything");
    assert_eq!(longest, None);
    let all: Vec<Option<(Option<usize>, u64)>> = (16..128).step_by(4).map(scratch_within).collect();
    let shorter = all
        .iter()
        .flatten()
        .filter(|(chunk, _)| chunk.is_some_and(|chunk| chunk < 2048));
    assert!(shorter.clone().count() > 0, "{all:?}");
    assert!(
        shorter.clone().all(|(_, scratch)| *scratch < roomy / 2 + roomy / 4),
        "{all:?}, with room {roomy}"
    );
    assert_eq!(all.last(), Some(&Some((longest, roomy))));
}
