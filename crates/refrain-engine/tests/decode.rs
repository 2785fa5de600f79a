//! Decoding: the device goes from token to token by itself.

#[allow(dead_code)]
mod common;

use common::Gpu;
use refrain::TapeMode;
use refrain::sample::Settings;
use refrain_engine::{Device, Error, Freeze, LoadOptions, Mode, Model, Session, Verified};
use refrain_formats::Checkpoint;

fn model(spec: &str, device: &Device) -> Model {
    let checkpoint = Checkpoint::synthetic(spec).expect("a synthetic checkpoint");
    Model::load(&checkpoint, device, &LoadOptions::default()).expect("loads")
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

/// `tokens` tokens after a prompt.
fn decoded(session: &mut Session<'_>, prompt: &[u32], settings: &Settings, tokens: usize) -> Vec<u32> {
    let mut stream = session.stream(prompt, settings).expect("begins");
    let taken = (0..tokens)
        .map(|_| stream.next_tokens().expect("goes on").expect("the context is not full")[0])
        .collect();
    stream.end().expect("ends");
    taken
}

/// The tokens that the sampler's reference picks from logits computed one token at a time.
fn expected(session: &mut Session<'_>, prompt: &[u32], settings: &Settings, tokens: usize) -> Vec<u32> {
    let mut history = prompt.to_vec();
    let mut logits = session.prefill(prompt).expect("computes");
    for _ in 0..tokens {
        let counts = refrain::sample::counts(&history, settings.window, logits.len());
        refrain::sample::adjust(&mut logits, &counts, &[], settings);
        let next = refrain::sample::pick(&logits, settings, history.len() as u64).expect("numbers");
        history.push(next);
        logits = session.prefill(&[next]).expect("computes");
    }
    history.split_off(prompt.len())
}

#[test]
fn the_cpu_executor_decodes_what_the_reference_picks() {
    let model = model("tiny:f32", &Device::cpu());
    for settings in [Settings::default(), seeded()] {
        let mut session = Session::new(&model, 128).expect("fits");
        let tokens = decoded(&mut session, &prompt(9), &settings, 40);
        let mut session = Session::new(&model, 128).expect("fits");
        assert_eq!(tokens, expected(&mut session, &prompt(9), &settings, 40));
    }
}

#[test]
fn replay_and_eager_decode_the_same_over_page_boundaries() {
    let gpu = Gpu::open();
    for spec in ["tiny:q4_0", "tiny-hybrid:f16"] {
        same_over_page_boundaries(&gpu, spec);
    }
    gpu.assert_silent();
}

fn same_over_page_boundaries(gpu: &Gpu, spec: &str) {
    let model = model(spec, &gpu.device);
    // Pages have 256 positions. Exactly as many runs as tokens, so that the last logits are those of the
    // last token.
    for (settings, held, tokens) in [(Settings::default(), 250, 12), (seeded(), 505, 14)] {
        let settings = Settings {
            last_position: held - 1 + tokens,
            ..settings
        };
        let run = |mode, per_submit| {
            let mut session = Session::new(&model, 600).expect("fits");
            session.set_mode(mode, None);
            session.set_tokens_per_submit(per_submit);
            let tokens = decoded(&mut session, &prompt(held as usize), &settings, tokens as usize);
            (tokens, session.last_logits().expect("logits"))
        };
        let eager = run(Mode::Eager, None);
        for (mode, per_submit) in [(Mode::Replay, Some(8)), (Mode::Auto, None)] {
            let (tokens, logits) = run(mode, per_submit);
            assert_eq!(tokens, eager.0, "{mode:?}");
            assert!(logits == eager.1, "the last logits differ in {mode:?}");
        }
    }
}

#[test]
fn a_token_costs_the_host_next_to_nothing() {
    const TOKENS: u64 = 48;
    let gpu = Gpu::open();
    let model = model("tiny:q4_0", &gpu.device);
    let mut session = Session::new(&model, 600).expect("fits");
    session.set_mode(Mode::Replay, None);
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
    assert_eq!(session.mode().0, TapeMode::Replay);
    gpu.assert_silent();
}

#[test]
fn a_fork_and_a_rewind_go_on_like_a_fresh_session() {
    for spec in ["tiny:f32", "tiny-hybrid:f32"] {
        let model = model(spec, &Device::cpu());
        let fresh = |tokens| {
            let mut session = Session::new(&model, 256).expect("fits");
            decoded(&mut session, &prompt(30), &seeded(), tokens)
        };
        let whole = fresh(60);
        let mut session = Session::new(&model, 256).expect("fits");
        let mut first = decoded(&mut session, &prompt(30), &seeded(), 25);
        assert_eq!(session.tokens().len(), 30 + 24);
        let mut fork = session.fork().expect("forks");
        for session in [&mut session, &mut fork] {
            let last = *first.last().expect("tokens");
            let rest = decoded(session, &[last], &seeded(), 35);
            assert_eq!([&first[..], &rest].concat(), whole, "{spec}");
        }
        fork.rewind(30);
        first.truncate(1);
        // The first token is the one at position 30: all after it are decoded anew.
        let rest = decoded(&mut fork, &first, &seeded(), 59);
        assert_eq!([&first[..], &rest].concat(), whole, "{spec}");
    }
}

#[test]
fn what_the_device_did_beyond_the_last_token_taken_is_undone() {
    let gpu = Gpu::open();
    for spec in ["tiny:q4_0", "tiny-hybrid:f16"] {
        let model = model(spec, &gpu.device);
        let session = || {
            let mut session = Session::new(&model, 128).expect("fits");
            session.set_mode(Mode::Replay, None);
            session.set_tokens_per_submit(Some(4));
            session
        };
        let whole = decoded(&mut session(), &prompt(5), &seeded(), 20);
        let mut parts = session();
        let mut prompt = prompt(5);
        let mut taken: Vec<u32> = vec![];
        // Each part ends somewhere within a submit, with another one in flight.
        for tokens in [3, 6, 1, 10] {
            taken.extend(decoded(&mut parts, &prompt, &seeded(), tokens));
            prompt = taken[taken.len() - 1..].to_vec();
        }
        assert_eq!(taken, whole, "{spec}");
    }
    gpu.assert_silent();
}

#[test]
fn replay_and_eager_are_compared_step_by_step_and_a_fault_is_named() {
    let gpu = Gpu::open();
    let hybrid = model("tiny-hybrid:f16", &gpu.device);
    let mut verified = Verified::new(&hybrid, 64, None, None).expect("fits");
    let mut tokens = verified.tokens(&prompt(9), &Settings::default()).expect("begins");
    (0..4).for_each(|_| {
        tokens.next_token().expect("both agree").expect("not full");
    });
    let model = model("tiny:q4_0", &gpu.device);
    for freeze in [None, Some(Freeze::Input), Some(Freeze::Position), Some(Freeze::State)] {
        let mut verified = Verified::new(&model, 64, None, freeze).expect("fits");
        let mut tokens = verified.tokens(&prompt(9), &Settings::default()).expect("begins");
        for _ in 0..5 {
            tokens.next_token().expect("both agree").expect("not full");
        }
    }
    let mut verified = Verified::new(&model, 64, Some("9"), None).expect("fits");
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
