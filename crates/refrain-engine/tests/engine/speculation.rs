//! Texts with prompt lookup equal those without.

use super::*;
use refrain_engine::Speculation;

fn speculating(streams: usize) -> EngineOptions {
    EngineOptions {
        speculation: Speculation::Ngram,
        ..options(streams, 256 * streams)
    }
}

/// A prompt that repeats itself, so that there is something to look up.
fn repetitive(number: u32) -> Vec<u32> {
    prompt(number, 20).repeat(4)
}

fn accepted(engine: &Engine) -> u64 {
    engine.load().accepted_tokens.iter().sum()
}

#[test]
fn prompt_lookup_changes_no_text() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let gpu = TestGpu::open();
    for device in [&Device::cpu(), &gpu.device] {
        for spec in ["qwen3-bf16", "granite-bf16"] {
            let model = model(spec, device);
            let engine = Engine::start(&model, &speculating(4)).expect("starts");
            // Greedy texts of random weights soon repeat themselves.
            let request = |number: u32| match number % 3 {
                2 => (repetitive(number), seeded(60, u64::from(number))),
                _ => (repetitive(number), greedy(100)),
            };
            let requests: Vec<_> = (0..6).map(request).collect();
            compare_on(&engine, &model, &requests);
            let load = engine.load();
            assert!(load.drafts > 0 && accepted(&engine) > 0, "{spec}: {load:?}");
        }
    }
    gpu.assert_silent();
}

#[test]
fn log_probabilities_of_accepted_drafts_are_those_of_the_text() {
    let model = model("granite-bf16", &Device::cpu());
    let picked = |options: &EngineOptions| {
        let engine = Engine::start(&model, options).expect("starts");
        let request = EngineRequest {
            top_logprobs: Some(3),
            ..EngineRequest::new(repetitive(1), greedy(100))
        };
        let picked = ask_for(&engine, request).expect("taken").picked().0;
        (picked, accepted(&engine))
    };
    let (plain, none) = picked(&options(1, 256));
    let (drafted, accepted) = picked(&speculating(1));
    assert!(none == 0 && accepted > 0, "{accepted}");
    assert_eq!(plain.len(), drafted.len());
    for (plain, drafted) in plain.iter().zip(&drafted) {
        let [plain_logprobs, drafted_logprobs] =
            [plain, drafted].map(|token| token.logprobs.as_ref().expect("asked for"));
        assert_eq!(plain.id, drafted.id);
        assert!((plain_logprobs.sampled - drafted_logprobs.sampled).abs() < 1e-3);
        let ids = |logprobs: &refrain_engine::Logprobs| logprobs.top.iter().map(|top| top.0).collect::<Vec<_>>();
        assert_eq!(ids(plain_logprobs), ids(drafted_logprobs));
    }
}

#[test]
fn hybrids_and_deterministic_engines_do_not_speculate() {
    for (spec, deterministic) in [("qwen3.5-moe-bf16", false), ("qwen3-bf16", true)] {
        let model = model(spec, &Device::cpu());
        let options = EngineOptions {
            deterministic,
            ..speculating(1)
        };
        let engine = Engine::start(&model, &options).expect("starts");
        let text = ask(&engine, &repetitive(1), &greedy(20)).expect("taken").answer().0;
        assert_eq!((text.len(), engine.load().drafts), (20, 0), "{spec}");
    }
}
