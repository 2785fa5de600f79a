//! Decoding: the device feeds each token into the next step by itself.

mod cache_types;
mod chunks;
#[path = "../common/mod.rs"]
mod common;
mod executors;
mod faults;
mod modes;
mod prepared;
mod states;

use std::sync::mpsc::channel;

use common::{TestGpu, engine, model};
use refrain_engine::{
    Device, Engine, EngineEvent, EngineOptions, EngineRequest, Error, GenerateOptions, Mode, PickedToken, Sampler,
    SamplerOptions,
};
use refrain_vulkan::DeviceKind;

/// Whether the device is a software implementation.
fn is_software(gpu: &TestGpu) -> bool {
    let device = gpu.device.as_vulkan().expect("a Vulkan device");
    device.info().kind == DeviceKind::Software
}

/// A dense model and a hybrid that decode a thousand tokens in seconds.
fn pair(gpu: &TestGpu) -> [&'static str; 2] {
    if is_software(gpu) {
        ["qwen3-bf16", "qwen3.5-moe-bf16"]
    } else {
        ["tiny:q4_0", "tiny-hybrid:f16"]
    }
}

fn prompt(tokens: usize) -> Vec<u32> {
    (0..tokens as u32).map(|i| i * 37 % 257).collect()
}

fn greedy(tokens: usize) -> GenerateOptions {
    sampled(SamplerOptions::default(), tokens)
}

fn seeded() -> SamplerOptions {
    SamplerOptions {
        temperature: 1.0,
        top_k: 40,
        top_p: 0.95,
        repeat_penalty: 1.1,
        repeat_last: 16,
        seed: 7,
        ..SamplerOptions::default()
    }
}

fn sampled(options: SamplerOptions, tokens: usize) -> GenerateOptions {
    GenerateOptions {
        max_tokens: Some(tokens),
        sampler: Sampler::new(options).expect("valid"),
        ..GenerateOptions::default()
    }
}

/// Options of an engine for one text of up to `context` tokens, which makes nothing ahead and caches no prefix.
fn plain(context: usize, mode: Mode) -> EngineOptions {
    EngineOptions {
        prefix_cache: false,
        prepares: false,
        mode,
        ..EngineOptions::single(context)
    }
}

/// Returns the tokens after a prompt.
fn decoded(engine: &Engine, prompt: &[u32], options: &GenerateOptions) -> Vec<u32> {
    let request = EngineRequest::new(prompt.to_vec(), options.clone());
    let tokens = engine.generate(request).expect("begins");
    tokens.collect::<Result<_, _>>().expect("goes on")
}

/// Returns the tokens of a request and their log-probabilities, or why it failed.
fn picked(engine: &Engine, request: EngineRequest) -> Result<Vec<PickedToken>, Error> {
    let (sender, events) = channel();
    let _ticket = engine.submit(request, Box::new(move |event| drop(sender.send(event))))?;
    let mut tokens = vec![];
    loop {
        match events.recv().map_err(|_| Error::EngineFailed)? {
            EngineEvent::Token(token) => tokens.push(token),
            EngineEvent::End(_) => return Ok(tokens),
            EngineEvent::Failed(error) => return Err(error),
            EngineEvent::Embedding(_) | EngineEvent::Logits(_) => panic!("a text was requested"),
        }
    }
}

/// Returns how many tokens of prompts were found in the prefix cache so far.
fn cached_tokens(engine: &Engine) -> usize {
    // Counters are updated after a step, and calls are answered between steps.
    engine.memory().expect("works");
    engine.load().cached_tokens as usize
}

/// Returns what the reference sampler picks at each of `tokens`, from the logits of the text before it.
fn expected(engine: &Engine, prompt: &[u32], options: &GenerateOptions, tokens: &[u32]) -> Vec<u32> {
    let settings = options.sampler.settings();
    let text = [prompt, tokens].concat();
    let logits = engine
        .logits(&text[..text.len() - 1], prompt.len() - 1)
        .expect("computes");
    let rows = logits.chunks_exact(engine.vocabulary()).zip(prompt.len()..);
    let picked = rows.map(|(row, length)| {
        let mut row = row.to_vec();
        let counts = refrain_lm::sample::counts(&text[..length], settings.window, row.len());
        refrain_lm::sample::adjust(&mut row, &counts, &[], &settings);
        refrain_lm::sample::pick(&row, &settings, length as u64).expect("numbers")
    });
    picked.collect()
}

#[test]
fn cpu_executor_matches_the_reference_sampler() {
    let model = model("tiny:f32", &Device::cpu());
    for options in [greedy(40), sampled(seeded(), 40)] {
        let tokens = decoded(&engine(&model, 128, 512), &prompt(9), &options);
        assert_eq!(tokens.len(), 40);
        // The reference computes one token at a time.
        let reference = engine(&model, 128, 1);
        assert_eq!(tokens, expected(&reference, &prompt(9), &options, &tokens));
    }
}

#[test]
fn decoding_records_and_allocates_nothing_per_token() {
    if !refrain_testing::drawn(8) {
        return;
    }
    const TOKENS: u64 = 48;
    let gpu = TestGpu::open();
    let model = model("tiny:q4_0", &gpu.device);
    let options = EngineOptions {
        tokens_per_submit: Some(8),
        ..plain(600, Mode::Fixed(&refrain::Replay))
    };
    let engine = Engine::start(&model, &options).expect("starts");
    // Returns what a text of so many tokens takes. All of them are in one page.
    let taken = |tokens: u64| {
        let before = model.counters();
        let text = decoded(&engine, &prompt(4), &greedy(tokens as usize));
        assert_eq!(text.len() as u64, tokens);
        model.counters() - before
    };
    // What follows another text is recorded with the second one.
    for _ in 0..2 {
        taken(8);
    }
    let programs = model.device().program_counts();
    let (few, many) = (taken(8), taken(8 + TOKENS));
    let since = many - few;
    assert!(since.submits <= TOKENS / 8, "{since:?}");
    let (runs, layers) = (since.batches, model.config().layers as u64);
    assert!(runs >= TOKENS, "{since:?}");
    assert!(since.dispatches <= 7 * layers * runs, "{since:?}");
    assert!(since.barriers <= 6 * layers * runs, "{since:?}");
    assert_eq!(
        (
            since.transfer_submits,
            since.copies,
            since.allocations,
            since.bytes_staged
        ),
        (0, 0, 0, 0)
    );
    assert_eq!(many.record_cpu_ns, 0, "nothing is translated again");
    let now = model.device().program_counts();
    assert_eq!((now.lowerings, now.hits), (programs.lowerings, programs.hits));
    gpu.assert_silent();
}
