//! Replay and eager decode bit-identically.

use refrain_engine::{Error, Freeze, Mode, Model, Session, Snapshot, Verified};
use refrain_lm::sample::Settings;
use refrain_testing::{sample, share};

use crate::common::TestGpu;
use crate::{decoded, model, pair, prompt, seeded};

/// Results of a run of 1,000 tokens, or a sample of them.
struct Thousand {
    tokens: Vec<u32>,
    /// The logits after each part of the run.
    logits: Vec<Vec<f32>>,
    /// Keys, values and recurrent states of all tokens and layers.
    states: Snapshot,
}

/// Decodes 1,000 tokens past three page boundaries, in parts: greedy and sampled, one by one and many per submit.
fn thousand(model: &Model, mode: Mode) -> Thousand {
    let drawn = Settings {
        presence_penalty: 0.25,
        frequency_penalty: 0.125,
        min_p: 0.01,
        ..seeded()
    };
    let greedy = Settings::default();
    let parts = [
        (share(130, 6), 1, &greedy),
        (1, share(60, 6), &drawn),
        (share(130, 6), 1, &greedy),
        (1, share(200, 6), &drawn),
        (1, share(280, 6), &greedy),
        (1, share(200, 6), &drawn),
    ];
    let all: usize = parts.iter().map(|(times, part, _)| times * part).sum();
    let mut session = Session::new(model, 1100).expect("fits");
    session.set_mode(mode, None);
    session.set_tokens_per_submit(Some(8));
    let (mut tokens, mut logits): (Vec<u32>, Vec<Vec<f32>>) = (vec![], vec![]);
    let mut next = prompt(21);
    for (times, part, settings) in parts {
        for _ in 0..times {
            // Exactly as many runs as tokens, so that the last logits are those of the last token.
            let settings = Settings {
                last_position: (session.position() + next.len() - 1 + part) as u32,
                ..settings.clone()
            };
            tokens.extend(decoded(&mut session, &next, &settings, part));
            logits.push(session.last_logits().expect("logits"));
            next = tokens[tokens.len() - 1..].to_vec();
        }
    }
    assert_eq!((tokens.len(), session.position()), (all, all + 20));
    let states = session.snapshot().expect("a snapshot");
    Thousand { tokens, logits, states }
}

fn assert_same_thousand(gpu: &TestGpu, name: &str) {
    let model = model(name, &gpu.device);
    let [replay, eager] =
        [Mode::Fixed(&refrain::Replay), Mode::Fixed(&refrain::Eager)].map(|mode| thousand(&model, mode));
    assert_eq!(replay.tokens, eager.tokens, "{name}");
    for (part, (one, other)) in replay.logits.iter().zip(&eager.logits).enumerate() {
        assert!(one == other, "{name}: the logits differ after part {part}");
    }
    assert!(replay.states == eager.states, "{name}: the states differ");
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
fn measuring_modes_changes_no_token() {
    if !refrain_testing::drawn(8) {
        return;
    }
    let gpu = TestGpu::open();
    let names = [
        "qwen3-gguf-q4_0/model.gguf",
        "qwen3.5-moe-bf16",
        "gpt-oss-mxfp4",
        "glm4-moe-bf16",
        "cohere2-bf16",
        "deepseek-v3-bf16",
    ];
    for name in sample(names, 6) {
        let model = model(name, &gpu.device);
        let run = |mode| {
            let mut session = Session::new(&model, 300).expect("fits");
            session.set_mode(mode, None);
            decoded(&mut session, &prompt(9), &seeded(), 110)
        };
        assert_eq!(run(Mode::Auto), run(Mode::Fixed(&refrain::Replay)), "{name}");
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
