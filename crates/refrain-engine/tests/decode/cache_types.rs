//! KV caches that are not in the device's own float type.

use std::path::Path;

use refrain_engine::{
    CacheTypes, Device, Engine, EngineOptions, EngineRequest, Error, LoadOptions, Mode, Model, Restored,
};
use refrain_models::Checkpoint;

use crate::common::{TestGpu, engine, relative_l2};
use crate::{cached_tokens, greedy, picked, plain, prompt};

/// Types, and the largest error of logits against a cache of f32.
const TYPES: [(&str, f64); 4] = [("bf16", 1e-2), ("q8_0", 3e-2), ("q4_0", 4e-1), ("q8_0,q4_0", 4e-1)];
/// A dense model, a hybrid, and one with windows.
const FIXTURES: [&str; 3] = ["qwen3-bf16", "qwen3.5-moe-bf16", "cohere2-bf16"];

fn load(fixture: &str, device: &Device, types: Option<&str>) -> Result<Model, Error> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    let checkpoint = Checkpoint::open(&fixtures.join(fixture)).expect("a fixture");
    let options = LoadOptions {
        cache: types.map(|types| types.parse().expect("types")),
        ..LoadOptions::default()
    };
    Model::load(&checkpoint, device, &options)
}

fn logits(model: &Model, tokens: &[u32]) -> Vec<f32> {
    engine(model, 128, 24).logits(tokens, 0).expect("computes")
}

#[test]
fn logits_stay_close_to_those_over_floats() {
    for fixture in FIXTURES {
        let exact = logits(&load(fixture, &Device::cpu(), None).expect("loads"), &prompt(40));
        for (types, bound) in TYPES {
            let model = load(fixture, &Device::cpu(), Some(types)).expect("loads");
            let error = relative_l2(&logits(&model, &prompt(40)), &exact);
            println!("{fixture} with {types}: {error:.2e}");
            assert!(error > 0.0 && error <= bound, "{fixture} with {types}: {error:.2e}");
        }
    }
}

#[test]
fn prompts_and_decoding_on_the_gpu_agree_with_the_cpu() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let gpu = TestGpu::open();
    for (fixture, types) in [
        ("qwen3-bf16", "q8_0"),
        ("qwen3.5-moe-bf16", "q4_0"),
        ("gpt-oss-bf16", "q8_0,q4_0"),
        ("qwen3-bf16", "bf16"),
    ] {
        let [gpu, cpu] = [&gpu.device, &Device::cpu()].map(|device| load(fixture, device, Some(types)).expect("loads"));
        let (found, expected) = (logits(&gpu, &prompt(40)), logits(&cpu, &prompt(40)));
        let error = relative_l2(&found, &expected);
        println!("{fixture} with {types}: {error:.2e}");
        // A value that is rounded the other way moves by a whole step.
        assert!(error <= 2e-2, "{fixture} with {types}: {error:.2e}");
        // The last token sees keys and values, and states where a page ends, of tokens that were decoded.
        let options = EngineOptions {
            prefix_cache: true,
            ..plain(128, Mode::Auto)
        };
        let engine = Engine::start(&gpu, &options).expect("starts");
        let tokens = picked(&engine, EngineRequest::new(prompt(30), greedy(40))).expect("goes on");
        let ids = tokens.iter().map(|token| token.id);
        let all: Vec<u32> = prompt(30).into_iter().chain(ids).collect();
        let found = engine.logits(&all, all.len() - 1).expect("computes");
        let cached = cached_tokens(&engine);
        assert!(cached >= 64, "{fixture}: {cached}");
        let expected = logits(&cpu, &all);
        let error = relative_l2(&found, &expected[expected.len() - found.len()..]);
        println!("{fixture} with {types}, decoded: {error:.2e}");
        assert!(error <= 2e-2, "{fixture} with {types}, decoded: {error:.2e}");
    }
    gpu.assert_silent();
}

#[test]
fn snapshots_are_restored_into_engines_of_the_same_types_only() {
    let start = |types| {
        let model = load("qwen3-bf16", &Device::cpu(), Some(types)).expect("loads");
        let options = EngineOptions {
            cache_tokens: 128,
            ..EngineOptions::single(64)
        };
        Engine::start(&model, &options).expect("starts")
    };
    let first = start("q8_0");
    let text = [&prompt(20)[..], &[7]].concat();
    first.logits(&prompt(20), 0).expect("computes");
    let snapshot = first.snapshot(&prompt(20)).expect("a snapshot");
    let expected = first.logits(&text, 20).expect("computes");
    for (types, restored) in [
        ("q8_0", Restored::Resumed),
        ("q4_0", Restored::Recompute),
        ("q8_0,q4_0", Restored::Recompute),
        ("f16", Restored::Recompute),
    ] {
        let other = start(types);
        assert_eq!(other.restore(snapshot.clone()).expect("fits"), restored, "{types}");
        let found = other.logits(&text, 20).expect("computes");
        assert_eq!(found == expected, restored == Restored::Resumed, "{types}");
        let cached = cached_tokens(&other);
        assert_eq!(cached > 0, restored == Restored::Resumed, "{types}");
    }
}

#[test]
fn memory_follows_the_types() {
    let bytes = |types: &str| {
        let model = load("qwen3-bf16", &Device::cpu(), Some(types)).expect("loads");
        let kv_bytes = engine(&model, 256, 24).memory().expect("works").kv_bytes;
        let types: CacheTypes = types.parse().expect("types");
        assert_eq!(kv_bytes, 256 * types.bytes_per_token(model.config()));
        kv_bytes
    };
    let floats = bytes("f16");
    // Heads of 32 values: 64 bytes, 40 with their scale and padding, or 20.
    assert_eq!(bytes("q8_0"), floats * 40 / 64);
    assert_eq!(bytes("q4_0"), floats * 20 / 64);
    assert_eq!(bytes("f16,q4_0"), floats * 84 / 128);
}

#[test]
fn heads_that_are_no_whole_blocks_are_refused() {
    let error = load("deepseek-v3-bf16", &Device::cpu(), Some("q8_0")).expect_err("refused");
    assert!(error.to_string().contains("multiple of 32; use f16"), "{error}");
}
