//! Replay and eager decode bit-identically.

use refrain_engine::{
    Device, Engine, EngineOptions, EngineRequest, Error, Freeze, Mode, Model, PickedToken, SamplerOptions, Snapshot,
    Verified,
};
use refrain_lm::sample::Settings;
use refrain_testing::share;

use crate::common::{TestGpu, engine};
use crate::{decoded, greedy, model, pair, picked, plain, prompt, sampled, seeded};

/// Results of a run of 1,000 tokens, or a sample of them.
struct Thousand {
    /// The tokens, some with log-probabilities from the logits of their steps.
    tokens: Vec<PickedToken>,
    /// The logits after the last tokens.
    logits: Vec<f32>,
    /// Keys, values and recurrent states of all tokens and layers.
    states: Snapshot,
}

/// Decodes 1,000 tokens past page boundaries, in three texts that continue each other: greedy and sampled, with
/// log-probabilities and without.
fn thousand(model: &Model, mode: Mode, tokens_per_submit: usize) -> Thousand {
    let drawn = SamplerOptions {
        presence_penalty: 0.25,
        frequency_penalty: 0.125,
        min_p: 0.01,
        ..seeded()
    };
    let parts = [
        (greedy(share(400, 6)), None),
        (sampled(drawn, share(300, 6)), Some(20)),
        (greedy(share(300, 6)), Some(20)),
    ];
    let options = EngineOptions {
        prefix_cache: true,
        tokens_per_submit: Some(tokens_per_submit),
        ..plain(1100, mode)
    };
    let engine = Engine::start(model, &options).expect("starts");
    let (mut text, mut tokens) = (prompt(21), vec![]);
    for (options, top_logprobs) in parts {
        let request = EngineRequest {
            top_logprobs,
            ..EngineRequest::new(text.clone(), options)
        };
        let part = picked(&engine, request).expect("goes on");
        assert!(
            part.iter()
                .all(|token| token.logprobs.is_some() == top_logprobs.is_some())
        );
        text.extend(part.iter().map(|token| token.id));
        tokens.extend(part);
    }
    Thousand {
        tokens,
        states: engine.snapshot(&text).expect("a snapshot"),
        logits: engine.logits(&text, text.len() - 9).expect("computes"),
    }
}

fn assert_same_thousand(gpu: &TestGpu, name: &str) {
    let model = model(name, &gpu.device);
    let (replay, eager) = (Mode::Fixed(&refrain::Replay), Mode::Fixed(&refrain::Eager));
    let expected = thousand(&model, replay, 8);
    for (mode, tokens_per_submit) in [(eager, 8), (replay, 1)] {
        let what = format!("{name}, {mode:?}, {tokens_per_submit} tokens per submit");
        let found = thousand(&model, mode, tokens_per_submit);
        for (index, (one, other)) in found.tokens.iter().zip(&expected.tokens).enumerate() {
            assert_eq!(one, other, "{what}: token {index}");
        }
        assert_eq!(found.tokens.len(), expected.tokens.len(), "{what}");
        assert!(found.logits == expected.logits, "{what}: the logits differ");
        assert!(found.states == expected.states, "{what}: the states differ");
    }
}

#[test]
fn replay_and_eager_decode_the_same_thousand_tokens_of_a_dense_model() {
    if !refrain_testing::drawn(8) {
        return;
    }
    let gpu = TestGpu::open();
    assert_same_thousand(&gpu, pair(&gpu)[0]);
    gpu.assert_silent();
}

#[test]
fn replay_and_eager_decode_the_same_thousand_tokens_of_a_hybrid() {
    if !refrain_testing::drawn(8) {
        return;
    }
    let gpu = TestGpu::open();
    assert_same_thousand(&gpu, pair(&gpu)[1]);
    gpu.assert_silent();
}

#[test]
fn every_executor_decodes_the_most_likely_tokens_of_the_cpu() {
    if !refrain_testing::drawn(6) {
        return;
    }
    const TOKENS: usize = 40;
    let gpu = TestGpu::open();
    for name in ["llama-f32", "qwen3.5-bf16"] {
        let [on_gpu, on_cpu] = [&gpu.device, &Device::cpu()].map(|device| model(name, device));
        let [replay, eager, auto] =
            [Mode::Fixed(&refrain::Replay), Mode::Fixed(&refrain::Eager), Mode::Auto].map(|mode| {
                let engine = Engine::start(&on_gpu, &plain(64, mode)).expect("starts");
                decoded(&engine, &prompt(9), &greedy(TOKENS))
            });
        assert_eq!((&eager, &auto), (&replay, &replay), "{name}");
        let reference = engine(&on_cpu, 64, 512);
        let text = [&prompt(9)[..], &replay[..TOKENS - 1]].concat();
        let logits = reference.logits(&text, 8).expect("computes");
        for (token, row) in replay.iter().zip(logits.chunks_exact(reference.vocabulary())) {
            let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let missing = most - row[*token as usize];
            assert!(missing < 2e-2, "{name}: {token} misses {missing}");
        }
    }
    gpu.assert_silent();
}

#[test]
fn verification_compares_steps_and_names_a_fault() {
    if !refrain_testing::drawn(8) {
        return;
    }
    let gpu = TestGpu::open();
    let hybrid = model("tiny-hybrid:f16", &gpu.device);
    let verified = Verified::new(&hybrid, 64, None, None).expect("fits");
    let mut tokens = verified.tokens(&prompt(9), &Settings::default()).expect("begins");
    (0..4).for_each(|_| {
        tokens.next_token().expect("both agree").expect("not full");
    });
    let model = model("tiny:q4_0", &gpu.device);
    for freeze in [None, Some(Freeze::Input), Some(Freeze::Position), Some(Freeze::State)] {
        let verified = Verified::new(&model, 64, None, freeze).expect("fits");
        let mut tokens = verified.tokens(&prompt(9), &Settings::default()).expect("begins");
        for _ in 0..5 {
            tokens.next_token().expect("both agree").expect("not full");
        }
    }
    let verified = Verified::new(&model, 64, Some("9"), None).expect("fits");
    let mut tokens = verified.tokens(&prompt(9), &Settings::default()).expect("begins");
    let Err(Error::Differs { token: 0, difference }) = tokens.next_token() else {
        panic!("the fault is not found");
    };
    assert_eq!((difference.step, difference.element), (9, 0));
    let wrong = f64::from(12345.678f32);
    assert!(
        difference.values[0] == wrong && difference.values[1] != wrong,
        "{difference}"
    );
    let missing = Verified::new(&model, 64, Some("no_such_op"), None);
    assert!(matches!(missing, Err(Error::NoRegion { .. })));
    gpu.assert_silent();
}
