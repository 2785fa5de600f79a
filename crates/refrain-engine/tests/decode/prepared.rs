//! Preparation of an engine, so that a request compiles nothing.

use refrain_engine::{Device, Engine, EngineOptions, EngineRequest, Mode, Model, Restriction, TokenConstraint};

use super::common::null::reporting;
use super::common::{TestGpu, model};
use super::{cached_tokens, decoded, greedy, pair, picked, plain, prompt};

/// Tokens of a prompt of several calls, the last one padded.
const TOKENS: usize = 700;
/// Tokens that fill pages.
const CACHED: usize = 704;

/// Returns the number of programs that a device has lowered or found again.
fn programs(model: &Model) -> u64 {
    let counts = model.device().program_counts();
    counts.lowerings + counts.hits
}

#[test]
fn the_first_prompt_of_a_prepared_engine_creates_no_programs() {
    const FEW: usize = 40;
    let gpu = TestGpu::open();
    for name in pair(&gpu) {
        let model = model(name, &gpu.device);
        let engine = Engine::start(&model, &plain(128, Mode::Auto)).expect("starts");
        engine.prepare((0, FEW), Restriction::Never).expect("prepares");
        assert_eq!(engine.load().prompt_tokens, 0, "nothing was run");
        let (made, before) = (programs(&model), model.counters());
        let tokens = decoded(&engine, &prompt(FEW), &greedy(8));
        let since = model.counters() - before;
        assert_eq!(programs(&model), made, "{name}");
        let later = (since.pipelines_compiled, since.allocations, since.record_cpu_ns);
        assert_eq!(later, (0, 0, 0), "{name}");

        let unprepared = Engine::start(&model, &plain(128, Mode::Auto)).expect("starts");
        let before = model.counters().record_cpu_ns;
        assert_eq!(decoded(&unprepared, &prompt(FEW), &greedy(8)), tokens);
        assert!(model.counters().record_cpu_ns > before, "{name}");
        assert!(programs(&model) > made, "{name}");
        let memory = |engine: &Engine| engine.memory().expect("works");
        assert_eq!(memory(&engine), memory(&unprepared), "{name}");
    }
    gpu.assert_silent();
}

/// Returns the programs that `run` creates in an engine prepared by `prepare`, and in an unprepared one. `before` comes
/// first in both. Without it, nothing is cached.
fn programs_created_by(
    model: &Model,
    before: Option<&dyn Fn(&Engine)>,
    prepare: impl Fn(&Engine),
    run: impl Fn(&Engine),
) -> [u64; 2] {
    [true, false].map(|prepared| {
        let options = EngineOptions {
            prefix_cache: before.is_some(),
            ..plain(2 * TOKENS, Mode::Auto)
        };
        let engine = Engine::start(model, &options).expect("starts");
        before.inspect(|before| before(&engine));
        if prepared {
            prepare(&engine);
        }
        let (made, allocated) = (programs(model), model.counters().allocations);
        run(&engine);
        assert!(!prepared || model.counters().allocations == allocated);
        programs(model) - made
    })
}

/// Allows every token.
struct Anything;

impl TokenConstraint for Anything {
    fn fill_mask(&mut self, bits: &mut [u32]) -> Result<(), String> {
        bits.fill(u32::MAX);
        Ok(())
    }

    fn accept(&mut self, _token: u32) -> Result<bool, String> {
        Ok(false)
    }
}

fn constrained(engine: &Engine, tokens: usize) {
    let request = EngineRequest {
        constraint: Some(Box::new(Anything)),
        ..EngineRequest::new(prompt(tokens), greedy(4))
    };
    assert_eq!(picked(engine, request).expect("goes on").len(), 4);
}

#[test]
fn preparation_covers_all_calls_of_a_long_prompt() {
    let (device, _) = reporting(&[]);
    for name in ["tiny:q4_0", "tiny-hybrid:f16"] {
        let model = model(name, &device);
        let prepare =
            |prompt, restriction| move |engine: &Engine| engine.prepare(prompt, restriction).expect("prepares");
        let [made, needed] = programs_created_by(&model, None, prepare((0, TOKENS), Restriction::Never), |engine| {
            drop(decoded(engine, &prompt(TOKENS), &greedy(4)))
        });
        assert!(made == 0 && needed >= 3, "{name}: {made} and {needed}");
        let [made, needed] = programs_created_by(&model, None, prepare((0, 9), Restriction::Always), |engine| {
            constrained(engine, 9)
        });
        assert!(made == 0 && needed >= 2, "{name}, constrained: {made} and {needed}");
    }
}

#[test]
fn preparation_covers_what_follows_a_cached_prefix() {
    let (device, _) = reporting(&[]);
    let model = model("tiny:q4_0", &device);
    let text = [prompt(CACHED), vec![5; 9]].concat();
    let [made, needed] = programs_created_by(
        &model,
        Some(&|engine| drop(decoded(engine, &text[..CACHED], &greedy(2)))),
        |engine| engine.prepare((CACHED, 9), Restriction::Never).expect("prepares"),
        |engine| {
            drop(decoded(engine, &text, &greedy(4)));
            assert_eq!(cached_tokens(engine), CACHED);
        },
    );
    assert!(made == 0 && needed >= 1, "{made} and {needed}");
}

#[test]
fn preparation_covers_a_prompt_that_fills_the_context() {
    let model = model("tiny:f32", &Device::cpu());
    let engine = Engine::start(&model, &plain(20, Mode::Auto)).expect("starts");
    engine.prepare((0, 20), Restriction::Never).expect("prepares");
    let made = programs(&model);
    decoded(&engine, &prompt(19), &greedy(1));
    assert_eq!(programs(&model), made);
    engine
        .generate(EngineRequest::new(prompt(20), greedy(1)))
        .err()
        .expect("too long all the same");
}
