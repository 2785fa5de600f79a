//! Devices that fail during decoding: no token that was not computed, and nothing lost in a retry.

use std::collections::BTreeMap;

use refrain_engine::{Engine, EngineOptions, EngineRequest, Error, Mode};
use refrain_testing::sample;
use refrain_vulkan::Fault;

use crate::common::null::reporting;
use crate::{decoded, greedy, model, plain, prompt};

const MODES: [Mode; 2] = [Mode::Fixed(&refrain::Replay), Mode::Fixed(&refrain::Eager)];
/// Tokens of a text: each takes a list of its own.
const TOKENS: usize = 30;

/// Loses the device at a list while an engine decodes a text on it, and returns how many tokens the text got.
fn tokens_before_loss(mode: Mode, fault: Fault) -> usize {
    let (device, _) = reporting(&[fault]);
    let model = model("tiny:f16", &device);
    let engine = Engine::start(&model, &plain(64, mode)).expect("starts");
    let request = || EngineRequest::new(vec![1], greedy(TOKENS));
    let mut tokens = engine.generate(request()).expect("begins");
    let given = tokens.by_ref().take_while(Result::is_ok).count();
    assert!(given < TOKENS, "{mode:?} {fault:?}: the text is complete");
    assert!(tokens.finish().is_none(), "{mode:?} {fault:?}");
    // Nothing is computed any more.
    assert!(engine.has_failed(), "{mode:?} {fault:?}");
    let refused = engine.generate(request());
    assert!(matches!(refused, Err(Error::EngineFailed)), "{mode:?} {fault:?}");
    assert!(
        matches!(engine.memory(), Err(Error::EngineFailed)),
        "{mode:?} {fault:?}"
    );
    assert!(device.as_vulkan().is_some_and(|device| device.is_lost()), "{fault:?}");
    given
}

#[test]
fn lost_devices_emit_no_token_whatever_run_they_are_lost_at() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let kinds = [Fault::SilentFrom, Fault::CounterJumpsAt, Fault::LostAt];
    for mode in MODES {
        for list in sample(1..=TOKENS as u64, 5) {
            for fault in kinds.map(|kind| kind(list)) {
                let tokens = tokens_before_loss(mode, fault);
                assert!(tokens < list as usize, "{mode:?} {fault:?}: {tokens} tokens");
            }
        }
    }
}

#[test]
fn requests_are_told_of_a_device_loss() {
    for list in [1, 12] {
        let (device, _) = reporting(&[Fault::LostAt(list)]);
        let engine = Engine::start(&model("tiny:f16", &device), &plain(64, MODES[0])).expect("starts");
        let tokens = engine.generate(EngineRequest::new(vec![1], greedy(TOKENS)));
        let error = tokens
            .expect("begins")
            .find_map(Result::err)
            .expect("the device is lost");
        let why = error.to_string();
        assert!(why.contains("the device was lost"), "{why}");
        assert!(why.matches("\"step\"").count() <= 1, "{why}");
    }
}

/// Returns the words that a text of 20 tokens over a page boundary writes to the device if the submit `fails` fails and
/// is retried, and the range of its submit calls.
fn delivered(name: &str, mode: Mode, fails: Option<u64>) -> (BTreeMap<u64, u32>, (u64, u64)) {
    let faults: Vec<Fault> = fails.map(Fault::SubmitFails).into_iter().collect();
    let (device, delivered) = reporting(&faults);
    let model = model(name, &device);
    let options = EngineOptions {
        // The eager executor submits each run.
        tokens_per_submit: Some(if mode == MODES[0] { 4 } else { 1 }),
        ..plain(600, mode)
    };
    let engine = Engine::start(&model, &options).expect("starts");
    let first = model.counters().submits;
    let tokens = decoded(&engine, &prompt(250), &greedy(20));
    assert_eq!(tokens.len(), 20, "{name}, {mode:?}, {fails:?}");
    let last = model.counters().submits;
    let load = engine.load();
    assert_eq!(load.preemptions, u64::from(fails.is_some()), "{load:?}");
    drop(engine);
    let delivered = delivered.lock().unwrap().clone();
    (delivered, (first, last))
}

#[test]
fn failed_submits_are_retried_with_all_their_writes() {
    if !refrain_testing::drawn(8) {
        return;
    }
    for name in ["tiny:f16", "tiny-hybrid:f16"] {
        for mode in MODES {
            let (whole, (first, last)) = delivered(name, mode, None);
            assert!(
                whole.len() > 10 && last - first >= 5,
                "{} words, {first}..{last}",
                whole.len()
            );
            // The eager executor submits each token.
            let every = if mode == Mode::Fixed(&refrain::Eager) { 3 } else { 1 };
            for fails in sample((first + 1..=last).step_by(every), 8) {
                let (repeated, _) = delivered(name, mode, Some(fails));
                let other = whole
                    .iter()
                    .filter(|(address, word)| repeated.get(address) != Some(word));
                let other: Vec<_> = other.collect();
                // The token and the position from which the text goes on, and a page that is written directly.
                assert!(
                    other.len() <= 3,
                    "{name}, {mode:?}, call {fails} of {first}..{last}: {other:?}"
                );
            }
        }
    }
}
