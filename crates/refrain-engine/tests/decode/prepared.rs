//! Preparation of a session, so that the first prompt compiles nothing.

use refrain_engine::{Device, Model, Session};
use refrain_lm::sample::Settings;

use super::common::null::reporting;
use super::common::{TestGpu, model};
use super::{decoded, pair, prompt};

/// Tokens of a prompt of several calls, the last one padded.
const TOKENS: usize = 700;

/// Programs that a device has lowered or found again, and the model traces of a session.
fn programs(session: &Session) -> (u64, u64, u64) {
    let counts = session.model().device().program_counts();
    (counts.lowerings, counts.hits, session.model_calls())
}

#[test]
fn the_first_prompt_of_a_prepared_session_creates_no_programs() {
    const FEW: usize = 40;
    let gpu = TestGpu::open();
    for name in pair(&gpu) {
        let model = model(name, &gpu.device);
        let mut session = Session::new(&model, 128).expect("fits");
        session.prepare(FEW).expect("prepares");
        assert_eq!(session.position(), 0, "nothing was run");
        let (made, before) = (programs(&session), model.counters());
        let tokens = decoded(&mut session, &prompt(FEW), &Settings::default(), 8);
        let since = model.counters() - before;
        assert_eq!(programs(&session), made, "{name}");
        let later = (since.pipelines_compiled, since.allocations, since.record_cpu_ns);
        assert_eq!(later, (0, 0, 0), "{name}");

        let mut unprepared = Session::new(&model, 128).expect("fits");
        let before = model.counters().record_cpu_ns;
        assert_eq!(decoded(&mut unprepared, &prompt(FEW), &Settings::default(), 8), tokens);
        assert!(model.counters().record_cpu_ns > before, "{name}");
        assert_eq!(session.memory(), unprepared.memory(), "{name}");
        assert_eq!(session.model_calls(), unprepared.model_calls(), "{name}");
    }
    gpu.assert_silent();
}

/// Returns the programs that `run` creates in a session prepared by `prepare`, and in an unprepared one.
fn programs_created_by(model: &Model, prepare: impl Fn(&mut Session), run: impl Fn(&mut Session)) -> [u64; 2] {
    [true, false].map(|prepared| {
        let mut session = Session::new(model, 2 * TOKENS).expect("fits");
        if prepared {
            prepare(&mut session);
        }
        let (before, allocated) = (session.model_calls(), model.counters().allocations);
        run(&mut session);
        let made = session.model_calls() - before;
        assert!(!prepared || model.counters().allocations == allocated);
        made
    })
}

#[test]
fn preparation_covers_all_calls_of_a_long_prompt() {
    let (device, _) = reporting(&[]);
    let model = model("tiny:q4_0", &device);
    let streamed = programs_created_by(
        &model,
        |session| session.prepare(TOKENS).expect("prepares"),
        |session| drop(decoded(session, &prompt(TOKENS), &Settings::default(), 4)),
    );
    assert_eq!(streamed, [0, 3], "chunks of 512 and 187 tokens, and a decode step");
    let prefilled = programs_created_by(
        &model,
        |session| session.prepare_prefill(TOKENS).expect("prepares"),
        |session| drop(session.prefill(&prompt(TOKENS)).expect("computes")),
    );
    assert_eq!(prefilled, [0, 2], "chunks of 512 and 188 tokens");
    let behind_others = programs_created_by(
        &model,
        |session| {
            session.append(&prompt(TOKENS)).expect("is taken in");
            session.prepare(9).expect("prepares");
        },
        |session| drop(decoded(session, &prompt(9), &Settings::default(), 4)),
    );
    assert_eq!(behind_others, [0, 2]);
}

#[test]
fn preparation_is_limited_by_the_context() {
    let model = model("tiny:f32", &Device::cpu());
    let mut session = Session::new(&model, 20).expect("fits");
    session.prepare(usize::MAX).expect("prepares");
    assert_eq!(session.model_calls(), 2, "20 tokens and a decode step");
    session.prefill(&prompt(21)).expect_err("too long all the same");
}
