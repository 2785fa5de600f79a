//! Devices that fail under an engine, and requests that panic: other requests are not affected.

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::null::{reporting, reporting_within};
use common::{TestGpu, engine, model};
use refrain::Array;
use refrain_engine::{
    Device, Engine, EngineEvent, EngineListener, EngineLoad, EngineOptions, EngineRequest, EngineTicket, Error, Finish,
    GenerateOptions, LoadOptions, Model, ReloadedModels, Sampler, SamplerOptions, TokenConstraint,
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

fn greedy(tokens: usize) -> GenerateOptions {
    GenerateOptions {
        max_tokens: Some(tokens),
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

struct Submitted(
    #[allow(dead_code, reason = "it ends with this")] EngineTicket,
    Receiver<EngineEvent>,
);

impl Submitted {
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
                EngineEvent::Embedding(_) | EngineEvent::Logits(_) => panic!("a text was requested"),
            }
        }
    }
}

/// Submits a request; `and` is also called with each event, on the engine's thread.
fn ask(engine: &Engine, request: EngineRequest, mut and: impl FnMut(&EngineEvent) + Send + 'static) -> Submitted {
    let (sender, events) = channel();
    let listener: EngineListener = Box::new(move |event| {
        and(&event);
        let _ = sender.send(event);
    });
    Submitted(engine.submit(request, listener).expect("taken"), events)
}

/// Returns the counters once no request is running: they are updated after a step, within which requests end.
fn settled_load(engine: &Engine) -> EngineLoad {
    refrain_testing::wait_until("no request is running", || engine.load().running == 0);
    engine.load()
}

fn alone(model: &Model, prompt: &[u32], options: &GenerateOptions) -> Vec<u32> {
    let request = EngineRequest::new(prompt.to_vec(), options.clone());
    let tokens = engine(model, 256, 512).generate(request).expect("begins");
    tokens.collect::<Result<_, _>>().expect("goes on")
}

#[test]
fn requests_continue_after_the_device_is_reopened() {
    if !refrain_testing::drawn(6) {
        return;
    }
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
            Ok(model("qwen3-bf16", &gpu.device).into())
        }
    };
    let engine = Engine::start_reloading(first, &engine_options(4), Box::new(reload)).expect("starts");
    let count = Arc::new(AtomicU64::new(0));
    let submitted: Vec<Submitted> = (0..4)
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
                    // Work submitted to a real device has ended when the device is lost.
                    let one = Array::from_slice(&device, &[1f32], &[1]);
                    (&one + &one).to_vec::<f32>().expect("in order after all others");
                    device.mark_lost();
                }
            })
        })
        .collect();
    for (submitted, expected) in submitted.iter().zip(expected) {
        assert_eq!(submitted.answer().expect("no error"), (expected, Finish::Length));
    }
    let load = settled_load(&engine);
    assert!((2..=4).contains(&load.restarts), "{load:?}");
    assert_eq!(load.generated_tokens, 4 * 24, "each token is emitted once");
    assert!(!engine.has_failed() && !engine.is_recovering());
    drop(engine);
    open.lock().unwrap().assert_silent();
}

#[test]
fn no_tokens_are_lost_to_device_losses_at_random_points() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let mut random = 1u64;
    let mut lost_somewhere = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let list = 20 + (random >> 33) % 300;
        let faults = [
            Fault::LostAt(list),
            Fault::SilentFrom(list),
            Fault::CounterJumpsAt(list),
        ];
        model("tiny:f16", &reporting(&[faults[(random >> 60) as usize % 3]]).0)
    };
    let first = lost_somewhere();
    let engine = Engine::start_reloading(
        first,
        &engine_options(32),
        Box::new(move |_| Ok(lost_somewhere().into())),
    );
    let engine = engine.expect("starts");
    let tokens = |number: usize| 1 + number % 23;
    let submitted: Vec<Submitted> = (0..1000)
        .map(|number| {
            let prompt = prompt(number as u32, 1 + number as u32 % 90);
            ask(&engine, EngineRequest::new(prompt, greedy(tokens(number))), |_| ())
        })
        .collect();
    for (number, submitted) in submitted.iter().enumerate() {
        let (events, finish) = submitted
            .answer()
            .unwrap_or_else(|why| panic!("stream {number}: {why}"));
        assert_eq!(
            (events.len(), finish),
            (tokens(number), Finish::Length),
            "stream {number}"
        );
    }
    assert!(engine.load().restarts >= 3, "{:?}", engine.load());
}

#[test]
fn gives_up_on_a_device_without_progress_and_reports_why() {
    if !refrain_testing::drawn(8) {
        return;
    }
    let lost = || model("tiny:f16", &reporting(&[Fault::LostAt(3)]).0);
    let reloads = Arc::new(AtomicU64::new(0));
    let reload = {
        let reloads = reloads.clone();
        move |_: &Error| match reloads.fetch_add(1, Ordering::Relaxed) {
            1 => Err("the card is not there yet".into()),
            _ => Ok(lost().into()),
        }
    };
    let engine = Engine::start_reloading(lost(), &engine_options(2), Box::new(reload)).expect("starts");
    let request = || EngineRequest::new(prompt(1, 150), options(20, 1));
    let submitted = [(); 3].map(|()| ask(&engine, request(), |_| ()));
    for submitted in &submitted {
        let why = submitted.answer().expect_err("nothing computes it").to_string();
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
    let reload = Box::new(|why: &Error| -> Result<ReloadedModels, _> {
        panic!("{why}: running out of memory is not a device loss")
    });
    Engine::start_reloading(model, &engine_options(streams), reload)
}

fn ask_greedily(engine: &Engine, number: usize, tokens: usize) -> Submitted {
    let prompt = prompt(number as u32, 1 + number as u32 % 90);
    ask(engine, EngineRequest::new(prompt, greedy(tokens)), |_| ())
}

#[test]
fn no_tokens_are_lost_to_host_out_of_memory_at_random_points() {
    let mut random = 1u64;
    let faults: Vec<Fault> = (0..60)
        .map(|number| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            Fault::SubmitFails(60 + 20 * number + (random >> 33) % 20)
        })
        .collect();
    let engine = without_reload(model("tiny:f16", &reporting(&faults).0), 16).expect("starts");
    let submitted: Vec<Submitted> = (0..300)
        .map(|number| ask_greedily(&engine, number, 1 + number % 23))
        .collect();
    for (number, submitted) in submitted.iter().enumerate() {
        let (events, finish) = submitted
            .answer()
            .unwrap_or_else(|why| panic!("stream {number}: {why}"));
        assert_eq!(
            (events.len(), finish),
            (1 + number % 23, Finish::Length),
            "stream {number}"
        );
    }
    let load = settled_load(&engine);
    assert!(load.preemptions >= 60 && load.restarts == 0, "{load:?}");
}

#[test]
fn small_devices_serve_some_requests_at_a_time_or_report_it() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let [mut started, mut short, mut refused, mut roomy] = [0; 4];
    for kilobytes in (9_000..16_384).step_by(96) {
        let (card, _) = reporting_within(kilobytes << 10, &[]);
        let checkpoint = Checkpoint::synthetic("tiny:f16").expect("a checkpoint");
        let Ok(model) = Model::load(&checkpoint, &card, &LoadOptions::default()) else {
            continue;
        };
        let Ok(engine) = without_reload(model, 8) else { continue };
        let submitted: Vec<Submitted> = (0..10).map(|number| ask_greedily(&engine, 11 * number, 5)).collect();
        started += 1;
        for submitted in &submitted {
            match submitted.answer() {
                Ok((tokens, finish)) => assert_eq!((tokens.len(), finish), (5, Finish::Length)),
                Err(Error::NoMemory(_)) => refused += 1,
                Err(other) => panic!("{kilobytes} KiB: {other}"),
            }
        }
        let load = settled_load(&engine);
        assert!(!engine.has_failed() && load.restarts == 0, "{kilobytes} KiB: {load:?}");
        short += usize::from(load.preemptions > 0);
        roomy += usize::from(load.preemptions == 0);
        if roomy > 2 {
            break;
        }
    }
    println!("{started} cards, {short} of them short of memory; {refused} requests refused");
    assert!(short > 3 && roomy > 0 && refused > 0, "{started}, {short}, {refused}");
}

struct Panics;

impl TokenConstraint for Panics {
    fn fill_mask(&mut self, bits: &mut [u32]) -> Result<(), String> {
        bits.fill(u32::MAX);
        Ok(())
    }

    fn accept(&mut self, token: u32) -> Result<bool, String> {
        panic!("made up, at token {token}");
    }
}

#[test]
fn a_panic_ends_only_its_own_request() {
    let model = model("tiny:f32", &Device::cpu());
    let engine = Engine::start(&model, &engine_options(4)).expect("starts");
    let request = |number: u32| EngineRequest::new(prompt(number, 9), options(30, number.into()));
    let sound = ask(&engine, request(1), |_| ());
    let constrained = EngineRequest {
        constraint: Some(Box::new(Panics)),
        ..request(2)
    };
    let constrained = ask(&engine, constrained, |_| ());
    let events = Arc::new(AtomicU64::new(0));
    let count = events.clone();
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
    assert_eq!(events.load(Ordering::Relaxed), 3, "who panics hears no more");
    assert!(!engine.has_failed());
}

#[test]
fn engines_shorten_chunks_when_memory_is_scarce() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let prompt = vec![1; 2500];
    let scratch_within = |megabytes: u64| {
        let (card, _) = reporting_within(megabytes << 20, &[]);
        let options = EngineOptions {
            max_chunk: Some(2048),
            prefix_cache: false,
            prepares: false,
            ..EngineOptions::single(prompt.len() + 1)
        };
        let engine = Engine::start(&model("tiny:f16", &card), &options).ok()?;
        let answer = ask(&engine, EngineRequest::new(prompt.clone(), greedy(1)), |_| ()).answer();
        let (tokens, finish) = answer.ok()?;
        assert_eq!((tokens.len(), finish), (1, Finish::Length));
        let memory = engine.memory().expect("works");
        Some((memory.shorter_chunk, memory.scratch_bytes))
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
