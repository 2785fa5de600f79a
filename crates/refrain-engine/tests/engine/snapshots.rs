//! States of texts that outlive an engine, and engines for one request at a time.

use std::sync::atomic::Ordering;

use refrain_engine::{Device, Engine, EngineOptions, EngineRequest, Error, Finish, Restored, Restriction, Snapshot};
use refrain_formats::{Encoding, State};

use super::common::{TestGpu, model};
use super::{alone, greedy, options, prompt};

/// Generates after a prompt; also returns how many of its tokens were cached.
fn generated(engine: &Engine, prompt: &[u32], tokens: usize) -> (Vec<u32>, usize) {
    let request = EngineRequest::new(prompt.to_vec(), greedy(tokens));
    let cached = request.cached_tokens.clone();
    let ids = engine.generate(request).expect("begins");
    let ids = ids.collect::<Result<_, _>>().expect("goes on");
    (ids, cached.load(Ordering::Relaxed))
}

#[test]
fn a_text_goes_on_in_another_engine() {
    let gpu = TestGpu::open();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    for device in [&Device::cpu(), &gpu.device] {
        for (name, is_recurrent) in [("qwen3-bf16", false), ("qwen3.5-moe-bf16", true)] {
            let model = model(name, device);
            let first = prompt(1, 130);
            let engine = Engine::start(&model, &options(1, 256)).expect("starts");
            let (ids, _) = generated(&engine, &first, 12);
            let text = [&first[..], &ids].concat();
            engine.snapshot(&text).expect("reads").save(&path).expect("writes");
            drop(engine);
            let snapshot = Snapshot::open(&path).expect("a whole file");
            assert_eq!(snapshot.tokens(), text);
            let engine = Engine::start(&model, &options(1, 256)).expect("starts");
            assert_eq!(engine.restore(snapshot).expect("fits"), Restored::Resumed, "{name}");
            let next = [&text[..], &prompt(2, 20)].concat();
            let (ids, cached) = generated(&engine, &next, 10);
            // All but the last token, whose keys and values nobody needed; or to the end of a page.
            assert_eq!(cached, if is_recurrent { 128 } else { 141 }, "{name}");
            assert_eq!(ids, alone(&model, 256, &next, &greedy(10)), "{name}");
        }
    }
    gpu.assert_silent();
}

#[test]
fn states_that_do_not_fit_are_computed_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    for name in ["tiny:f32", "tiny-hybrid:f32"] {
        let model = model(name, &Device::cpu());
        let engine = Engine::start(&model, &options(1, 256)).expect("starts");
        let text = prompt(1, 150);
        generated(&engine, &text, 1);
        engine.snapshot(&text).expect("reads").save(&path).expect("writes");
        let good = State::open(&path).expect("reads");
        let damage: [&dyn Fn(&mut State); 8] = [
            &|state| state.key.cache = Encoding::F16,
            &|state| state.tokens.truncate(8),
            &|state| state.planes.truncate(1),
            &|state| state.planes[0].row = vec![usize::MAX, usize::MAX],
            &|state| state.planes[1].encoding = Encoding::F16,
            &|state| state.planes[1].bytes.truncate(4),
            &|state| state.planes.iter_mut().for_each(|plane| plane.bytes.clear()),
            &|state| state.planes.push(state.planes[0].clone()),
        ];
        for (number, change) in damage.into_iter().enumerate() {
            let mut bad = good.clone();
            change(&mut bad);
            bad.save(&path).expect("writes");
            let engine = Engine::start(&model, &options(1, 256)).expect("starts");
            let restored = engine.restore(Snapshot::open(&path).expect("a whole file"));
            assert!(
                matches!(restored, Ok(Restored::Recompute)),
                "{name}, {number}: {restored:?}"
            );
            let (ids, cached) = generated(&engine, &text, 5);
            assert_eq!(
                (ids, cached),
                (alone(&model, 256, &text, &greedy(5)), 0),
                "{name}, {number}"
            );
        }
        let refused = |change: &dyn Fn(&mut State)| {
            let mut other = good.clone();
            change(&mut other);
            other.save(&path).expect("writes");
            engine.restore(Snapshot::open(&path).expect("a whole file"))
        };
        assert!(matches!(
            refused(&|state| state.key.model ^= 1),
            Err(Error::Snapshot(_))
        ));
        assert!(matches!(
            refused(&|state| state.tokens.resize(257, 1)),
            Err(Error::ContextFull { .. })
        ));
        assert!(matches!(
            refused(&|state| state.tokens[0] = 1 << 30),
            Err(Error::TokenRange { .. })
        ));
    }
}

#[test]
fn a_text_that_is_dropped_makes_room_for_the_next() {
    let model = model("tiny:f32", &Device::cpu());
    let engine = Engine::start(&model, &options(1, 256)).expect("starts");
    let mut ids = engine
        .generate(EngineRequest::new(prompt(1, 20), greedy(200)))
        .expect("begins");
    ids.next().expect("a token").expect("goes on");
    drop(ids);
    let (ids, _) = generated(&engine, &prompt(2, 20), 5);
    assert_eq!(ids, alone(&model, 256, &prompt(2, 20), &greedy(5)));
    // The limit, and the context.
    for (tokens, finish) in [(3, Finish::Length), (1000, Finish::Context)] {
        let mut ids = engine
            .generate(EngineRequest::new(prompt(3, 250), greedy(tokens)))
            .expect("begins");
        let count = ids.by_ref().count();
        assert_eq!((count, ids.finish()), (tokens.min(6), Some(finish)));
    }
    assert!(engine.memory().expect("works").kv_bytes > 0);
}

/// The chunks of a prompt and the step that follows are made ahead, so a request makes nothing.
#[test]
fn preparing_makes_what_a_request_needs() {
    let gpu = TestGpu::open();
    for name in ["qwen3-bf16", "qwen3.5-moe-bf16"] {
        let model = model(name, &gpu.device);
        let options = EngineOptions {
            prepares: false,
            ..options(1, 256)
        };
        let engine = Engine::start(&model, &options).expect("starts");
        engine.prepare((0, 100), Restriction::Never).expect("compiles");
        let before = model.counters();
        generated(&engine, &prompt(1, 100), 3);
        let made = model.counters() - before;
        assert_eq!((made.pipelines_compiled, made.pipeline_cache_hits), (0, 0), "{name}");
    }
    gpu.assert_silent();
}
