//! Embeddings by an engine: the hidden state after the last token, regardless of other requests.

mod common;

use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use common::{TestGpu, relative_l2};
use refrain_engine::{
    Device, Engine, EngineEvent, EngineOptions, EngineRequest, EngineTicket, Error, GenerateOptions, LoadOptions, Model,
};
use refrain_models::Checkpoint;

fn fixture(name: &str, device: &Device) -> Model {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures")
        .join(name);
    let checkpoint = Checkpoint::open(&path).expect("a checkpoint");
    Model::load(&checkpoint, device, &LoadOptions::default()).expect("loads")
}

fn text(number: u32, length: u32) -> Vec<u32> {
    (0..length)
        .map(|at| (7 * number + 13 * at + at * at) % 200 + 3)
        .collect()
}

fn ask(engine: &Engine, request: EngineRequest) -> Result<(EngineTicket, Receiver<EngineEvent>), Error> {
    let (sender, events) = channel();
    let ticket = engine.submit(request, Box::new(move |event| drop(sender.send(event))))?;
    Ok((ticket, events))
}

fn next(events: &Receiver<EngineEvent>) -> EngineEvent {
    events
        .recv_timeout(Duration::from_secs(120))
        .expect("the engine goes on")
}

fn embedding(events: &Receiver<EngineEvent>) -> Vec<f32> {
    match next(events) {
        EngineEvent::Embedding(hidden) => {
            assert!(events.recv().is_err(), "it is the last event");
            hidden
        }
        other => panic!("{other:?}"),
    }
}

/// Texts of many lengths, some with shared prefixes, beside generated ones.
fn check(device: &Device, name: &str, bound: f64) {
    const CONTEXT: usize = 256;
    let model = fixture(name, device);
    let width = model.config().hidden_size;
    let options = EngineOptions {
        context: CONTEXT,
        streams: 3,
        cache_tokens: 2 * CONTEXT,
        ..EngineOptions::default()
    };
    let engine = Engine::start(&model, &options).expect("starts");
    let generate = GenerateOptions {
        max_tokens: Some(40),
        ..GenerateOptions::default()
    };
    let (_beside, generated) = ask(&engine, EngineRequest::new(text(9, 20), generate)).expect("taken");
    let long = text(1, CONTEXT as u32);
    let lengths = [1, 2, 33, 64, 65, 129, CONTEXT];
    let mut texts: Vec<Vec<u32>> = lengths.iter().map(|&length| long[..length].to_vec()).collect();
    texts.extend([text(2, 70), text(3, 5), long]);
    let submitted: Vec<_> = texts
        .iter()
        .map(|text| ask(&engine, EngineRequest::embedding(text.clone())).expect("taken"))
        .collect();
    let alone = common::engine(&model, CONTEXT, 512);
    for (text, (_ticket, events)) in texts.iter().zip(&submitted) {
        let hidden = embedding(events);
        let (_ticket, events) = ask(&alone, EngineRequest::embedding(text.clone())).expect("taken");
        assert_eq!(hidden.len(), width);
        let error = relative_l2(&hidden, &embedding(&events));
        assert!(error <= bound, "{name}, {} tokens: {error:.1e}", text.len());
    }
    for _ in 0..40 {
        assert!(matches!(next(&generated), EngineEvent::Token(_)));
    }
    assert!(matches!(next(&generated), EngineEvent::End(_)));
    // Events arrive before the counters are updated.
    while engine.load().running > 0 {
        std::thread::yield_now();
    }
    assert_eq!(engine.load().pages_in_use, 0);
    let longer = EngineRequest::embedding(vec![5; CONTEXT + 1]);
    assert!(matches!(
        ask(&engine, longer),
        Err(Error::ContextFull { tokens: 257, .. })
    ));
}

#[test]
fn embeddings_are_those_of_each_text_alone() {
    for name in ["qwen3-long-bf16", "qwen3.5-bf16"] {
        check(&Device::cpu(), name, 1e-4);
    }
}

#[test]
fn vulkan_embeddings_are_those_of_each_text_alone() {
    if !refrain_testing::drawn(12) {
        return;
    }
    let gpu = TestGpu::open();
    check(&gpu.device, "qwen3-long-bf16", 5e-3);
    gpu.assert_silent();
}

#[test]
fn cancelled_embeddings_free_their_slot() {
    let model = fixture("qwen3-long-bf16", &Device::cpu());
    let engine = Engine::start(
        &model,
        &EngineOptions {
            context: 256,
            ..EngineOptions::default()
        },
    )
    .expect("starts");
    for number in 0..20 {
        let (ticket, events) = ask(&engine, EngineRequest::embedding(text(number, 250))).expect("taken");
        drop((ticket, events));
    }
    let (_ticket, events) = ask(&engine, EngineRequest::embedding(text(40, 9))).expect("taken");
    assert_eq!(embedding(&events).len(), 64);
}
