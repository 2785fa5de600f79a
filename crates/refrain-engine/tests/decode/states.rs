//! Texts go on from what is cached of them as if they had been computed from the start.

use std::path::Path;

use refrain_engine::{
    Device, Engine, EngineOptions, EngineRequest, Error, GenerateOptions, LoadOptions, Mode, Model, Restored,
};
use refrain_models::Checkpoint;

use crate::common::{TestGpu, relative_l2};
use crate::{cached_tokens, decoded, greedy, is_software, model, pair, plain, prompt, sampled, seeded};

/// Starts an engine that caches prefixes, with several tokens per submit.
fn caching(model: &Model, context: usize) -> Engine {
    let options = EngineOptions {
        prefix_cache: true,
        // A text that begins with a part of a cached page has a page of its own.
        cache_tokens: 2 * context.max(64),
        tokens_per_submit: Some(8),
        ..plain(context, Mode::Auto)
    };
    Engine::start(model, &options).expect("starts")
}

/// Takes some tokens of a text that has no end, and interrupts it.
fn interrupted(engine: &Engine, prompt: &[u32], options: &GenerateOptions, tokens: usize) -> Vec<u32> {
    let request = EngineRequest::new(prompt.to_vec(), options.clone());
    let text = engine.generate(request).expect("begins");
    text.take(tokens).collect::<Result<_, _>>().expect("goes on")
}

/// Interrupts a text at `at` tokens, while the device computes more. Both what continues it, and what differs from
/// there on, must be as without anything cached.
fn assert_continues(model: &Model, at: usize, bound: f64) {
    let context = at + 128;
    let endless = sampled(seeded(), usize::MAX);
    let engine = caching(model, context);
    let first = interrupted(&engine, &prompt(30), &endless, at - 30);
    let text = [&prompt(30)[..], &first].concat();
    for tail in [vec![7, 8, 9], prompt(40)] {
        let text = [&text[..], &tail].concat();
        let before = cached_tokens(&engine);
        let found = engine.logits(&text, at).expect("computes");
        let cached = cached_tokens(&engine) - before;
        assert!(cached + 128 > at, "{cached} of {at} tokens");
        let expected = crate::engine(model, context, 512).logits(&text, at).expect("computes");
        let error = relative_l2(&found, &expected);
        println!("{at} tokens and {}: {error:.2e}", tail.len());
        assert!(error <= bound, "{at} tokens and {}: {error:.2e}", tail.len());
    }
}

#[test]
fn texts_interrupted_at_500_tokens_go_on_as_if_computed_from_the_start() {
    for name in ["qwen3-bf16", "qwen3.5-moe-bf16"] {
        assert_continues(&model(name, &Device::cpu()), 500, 1e-5);
    }
}

#[test]
fn texts_interrupted_on_a_device_go_on_as_if_computed_from_the_start() {
    if !refrain_testing::drawn(8) {
        return;
    }
    let gpu = TestGpu::open();
    let at = if is_software(&gpu) { 100 } else { 500 };
    for name in pair(&gpu) {
        assert_continues(&model(name, &gpu.device), at, 5e-3);
    }
    gpu.assert_silent();
}

fn assert_parts_equal_the_whole(model: &Model, name: &str) {
    let options = EngineOptions {
        prefix_cache: true,
        tokens_per_submit: Some(4),
        ..plain(128, Mode::Auto)
    };
    let engine = Engine::start(model, &options).expect("starts");
    let endless = sampled(seeded(), usize::MAX);
    let whole = decoded(&crate::engine(model, 128, 512), &prompt(50), &sampled(seeded(), 40));
    let mut text = prompt(50);
    // Each part ends within a submit, with another one in flight.
    for tokens in [3, 16, 1, 20] {
        text.extend(interrupted(&engine, &text, &endless, tokens));
    }
    assert_eq!(text[50..], whole, "{name}");
    assert!(cached_tokens(&engine) > 0, "{name}");
}

#[test]
fn work_beyond_the_last_token_taken_is_undone() {
    for name in ["tiny:f32", "tiny-hybrid:f32"] {
        assert_parts_equal_the_whole(&model(name, &Device::cpu()), name);
    }
}

#[test]
fn work_of_a_device_beyond_the_last_token_taken_is_undone() {
    if !refrain_testing::drawn(8) {
        return;
    }
    let gpu = TestGpu::open();
    for name in pair(&gpu) {
        assert_parts_equal_the_whole(&model(name, &gpu.device), name);
    }
    gpu.assert_silent();
}

#[test]
fn configurations_predict_an_engines_memory() {
    for name in ["tiny:f32", "tiny-hybrid:f32"] {
        let model = model(name, &Device::cpu());
        let (context, streams) = (256, 3);
        let options = EngineOptions {
            context,
            streams,
            cache_tokens: streams * context,
            ..EngineOptions::default()
        };
        let engine = Engine::start(&model, &options).expect("fits");
        let keys_and_values = context as u64 * model.cache_types().bytes_per_token(model.config());
        let each = keys_and_values + model.config().recurrent_bytes();
        let kv_bytes = engine.memory().expect("works").kv_bytes;
        assert_eq!(kv_bytes, streams as u64 * each, "{name}");
    }
}

#[test]
fn recomputes_states_with_other_rotary_embeddings() {
    // LongRoPE changes beyond 24 tokens, dynamic NTK at each token from there on; YaRN does not depend on the
    // context.
    for (name, [one, other], differ) in [
        ("phi3-longrope-bf16", [22, 100], true),
        ("phi3-longrope-bf16", [40, 100], false),
        ("llama-dynamic-bf16", [22, 40], true),
        ("llama-dynamic-bf16", [30, 48], true),
        ("llama-dynamic-bf16", [20, 24], false),
        ("qwen2-yarn-bf16", [22, 100], false),
    ] {
        let model = model(name, &Device::cpu());
        let tokens = prompt(20);
        for [from, to] in [[one, other], [other, one]] {
            let what = format!("{name} from {from} to {to}");
            let origin = caching(&model, from);
            origin.logits(&tokens[..12], 0).expect("computes");
            let snapshot = origin.snapshot(&tokens[..12]).expect("a snapshot");
            assert_eq!(snapshot.tokens(), &tokens[..12], "{what}");
            let engine = caching(&model, to);
            let restored = engine.restore(snapshot).expect("the same model");
            assert_eq!(restored == Restored::Recompute, differ, "{what}");
            let fresh = caching(&model, to);
            if !differ {
                // Computed in the same parts.
                fresh.logits(&tokens[..12], 0).expect("computes");
            }
            let [found, expected] = [&engine, &fresh].map(|engine| engine.logits(&tokens, 12).expect("computes"));
            assert!(found == expected, "{what}");
            let cached = cached_tokens(&engine);
            assert_eq!(cached > 0, !differ, "{what}: {cached} tokens");
        }
    }
}

#[test]
fn refuses_states_of_other_weights() {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/qwen3-mlx4");
    for entry in std::fs::read_dir(&fixture).expect("a fixture") {
        let path = entry.expect("readable").path();
        std::fs::copy(&path, folder.path().join(path.file_name().expect("a name"))).expect("copies");
    }
    let load = || {
        let checkpoint = Checkpoint::open(folder.path()).expect("opens");
        Model::load(&checkpoint, &Device::cpu(), &LoadOptions::default()).expect("loads")
    };
    let whole = caching(&load(), 64);
    decoded(&whole, &prompt(9), &greedy(1));
    let snapshot = whole.snapshot(&prompt(9)).expect("a snapshot");
    let weights = folder.path().join("model.safetensors");
    let bytes = std::fs::read(&weights).expect("reads");
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
    // Quants, scales, biases and norm weights, wherever they lie.
    for eighth in 0..8 {
        let mut changed = bytes.clone();
        let length = (bytes.len() - header) / 8;
        changed[header + eighth * length..][..length]
            .iter_mut()
            .for_each(|byte| *byte ^= 1);
        std::fs::write(&weights, changed).expect("writes");
        let refused = caching(&load(), 64).restore(snapshot.clone());
        assert!(matches!(refused, Err(Error::Snapshot(_))), "{eighth}: {refused:?}");
    }
}
