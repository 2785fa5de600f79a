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

use common::{TestGpu, model};
use refrain_engine::{Device, Mode, Session};
use refrain_lm::sample::Settings;
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

fn seeded() -> Settings {
    Settings {
        temperature: 1.0,
        top_k: 40,
        top_p: 0.95,
        repeat_penalty: 1.1,
        window: 16,
        seed: 7,
        ..Settings::default()
    }
}

/// Decodes `tokens` tokens after a prompt.
fn decoded(session: &mut Session, prompt: &[u32], settings: &Settings, tokens: usize) -> Vec<u32> {
    let mut stream = session.stream(prompt, settings).expect("begins");
    let taken = (0..tokens)
        .map(|_| stream.next_tokens().expect("goes on").expect("the context is not full")[0])
        .collect();
    stream.end().expect("ends");
    taken
}

/// Returns the tokens that the reference sampler picks from logits computed one token at a time.
fn expected(session: &mut Session, prompt: &[u32], settings: &Settings, tokens: usize) -> Vec<u32> {
    let mut history = prompt.to_vec();
    let mut logits = session.prefill(prompt).expect("computes");
    for _ in 0..tokens {
        let counts = refrain_lm::sample::counts(&history, settings.window, logits.len());
        refrain_lm::sample::adjust(&mut logits, &counts, &[], settings);
        let next = refrain_lm::sample::pick(&logits, settings, history.len() as u64).expect("numbers");
        history.push(next);
        logits = session.prefill(&[next]).expect("computes");
    }
    history.split_off(prompt.len())
}

#[test]
fn cpu_executor_matches_the_reference_sampler() {
    let model = model("tiny:f32", &Device::cpu());
    for settings in [Settings::default(), seeded()] {
        let mut session = Session::new(&model, 128).expect("fits");
        let tokens = decoded(&mut session, &prompt(9), &settings, 40);
        let mut session = Session::new(&model, 128).expect("fits");
        assert_eq!(tokens, expected(&mut session, &prompt(9), &settings, 40));
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
    let mut session = Session::new(&model, 600).expect("fits");
    session.set_mode(Mode::Fixed(&refrain::Replay), None);
    session.set_tokens_per_submit(Some(8));
    decoded(&mut session, &prompt(4), &Settings::default(), 8);
    let calls = session.model_calls();
    let mut stream = session.stream(&[1], &Settings::default()).expect("begins");
    stream.next_tokens().expect("goes on");
    let before = model.counters();
    for _ in 0..TOKENS {
        stream.next_tokens().expect("goes on").expect("not full");
    }
    let since = model.counters() - before;
    stream.end().expect("ends");
    assert!(since.submits <= TOKENS / 8, "{since:?}");
    let (runs, layers) = (since.batches, model.config().layers as u64);
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
    assert_eq!(since.record_cpu_ns, 0, "nothing is translated again");
    assert_eq!(session.model_calls(), calls);
    assert_eq!(session.mode().0.name(), "replay");
    gpu.assert_silent();
}
