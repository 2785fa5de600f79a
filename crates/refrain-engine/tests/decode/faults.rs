//! Devices that fail during decoding: no token that was not computed, and nothing lost in a retry.

use std::collections::BTreeMap;

use refrain_engine::{Error, Mode, Session};
use refrain_lm::sample::Settings;
use refrain_testing::sample;
use refrain_vulkan::{Error as DeviceError, Fault};

use crate::common::null::reporting;
use crate::{model, prompt};

const MODES: [Mode; 2] = [Mode::Fixed(&refrain::Replay), Mode::Fixed(&refrain::Eager)];

fn is_loss(error: &Error) -> bool {
    let Error::Array(refrain::Error::Vulkan(error)) = error else {
        return false;
    };
    matches!(**error, DeviceError::DeviceLost { .. })
}

/// Lists that the device completes: the first delivers a stream's initial writes, each further one is a run.
const LISTS: usize = 11;

#[test]
fn silently_lost_devices_emit_no_token() {
    for (mode, fault) in MODES.into_iter().flat_map(|mode| {
        let list = LISTS as u64 + 1;
        [
            Fault::SilentFrom(list),
            Fault::CounterJumpsAt(list),
            Fault::LostAt(list),
        ]
        .map(|fault| (mode, fault))
    }) {
        let (device, _) = reporting(&[fault]);
        let model = model("tiny:f16", &device);
        let mut session = Session::new(&model, 64).expect("fits");
        session.set_mode(mode, None);
        let mut stream = session.stream(&[1], &Settings::default()).expect("begins");
        let mut tokens = 0;
        let error = loop {
            match stream.next_tokens() {
                Ok(given) => tokens += usize::from(given.is_some()),
                Err(error) => break error,
            }
        };
        assert!(is_loss(&error), "{fault:?}: {error}");
        assert!(tokens < LISTS, "{mode:?} {fault:?}: {tokens} tokens");
        assert!(error.to_string().matches("\"step\"").count() <= 1, "{error}");
        assert!(is_loss(&stream.end().expect_err("the session is lost with it")));
        // No other run sees what the last one left half done, counters included.
        assert!(session.append(&[1, 2]).is_err_and(|error| is_loss(&error)));
        let began = session.stream(&[1], &Settings::default());
        assert!(
            began
                .and_then(|mut stream| stream.next_tokens())
                .is_err_and(|error| is_loss(&error))
        );
        assert!(device.as_vulkan().is_some_and(|device| device.is_lost()));
    }
}

#[test]
fn ending_a_stream_reports_a_device_loss_after_the_last_token() {
    let list = LISTS as u64 + 1;
    let (device, _) = reporting(&[Fault::SilentFrom(list)]);
    let model = model("tiny:f16", &device);
    let mut session = Session::new(&model, 64).expect("fits");
    session.set_mode(Mode::Fixed(&refrain::Replay), None);
    session.set_tokens_per_submit(Some(32));
    let mut stream = session.stream(&[1], &Settings::default()).expect("begins");
    stream.next_tokens().expect("was computed").expect("not full");
    assert!(is_loss(&stream.end().expect_err("the device did not get that far")));
}

/// Returns what a stream of 20 tokens over a page boundary delivers if the submits selected by `fails` fail and are
/// retried, and the range of its submit calls.
fn delivered(name: &str, mode: Mode, fails: Option<u64>) -> (BTreeMap<u64, u32>, (u64, u64)) {
    let faults: Vec<Fault> = fails.map(Fault::SubmitFails).into_iter().collect();
    let (device, delivered) = reporting(&faults);
    let model = model(name, &device);
    let mut session = Session::new(&model, 600).expect("fits");
    session.set_mode(mode, None);
    session.set_tokens_per_submit(Some(4));
    session.prepare(0).expect("prepares");
    session.append(&prompt(250)).expect("is taken in");
    let first = model.counters().submits;
    let settings = Settings {
        last_position: 270,
        ..Settings::default()
    };
    let mut stream = session.stream(&[1], &settings).expect("begins");
    let (mut tokens, mut failures) = (0, 0);
    while tokens < 20 {
        match stream.next_tokens() {
            Ok(Some(_)) => tokens += 1,
            Ok(None) => panic!("not full"),
            Err(_) => failures += 1,
        }
    }
    assert!(failures <= 1, "{failures} failures, and but one call that fails");
    let last = model.counters().submits;
    assert_eq!(failures == 1, fails.is_some_and(|fails| fails <= last));
    stream.end().expect("ends");
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
                assert_eq!(repeated, whole, "{name}, {mode:?}, call {fails} of {first}..{last}");
            }
        }
    }
}

#[test]
fn recurrent_models_recompute_failed_chunks() {
    let dispatches = |name: &str, fails: Option<u64>| {
        let faults: Vec<Fault> = fails.map(Fault::SubmitFails).into_iter().collect();
        let (device, _) = reporting(&faults);
        let model = model(name, &device);
        let mut session = Session::new(&model, 64).expect("fits");
        session.append(&prompt(8)).expect("is taken in");
        let before = model.counters();
        if fails.is_some() {
            session.append(&prompt(8)).expect_err("the call fails");
            assert_eq!(session.position(), 8);
        }
        session.append(&prompt(8)).expect("is taken in");
        assert_eq!(session.position(), 16);
        ((model.counters() - before).dispatches, before.submits)
    };
    for (name, times) in [("tiny:f16", 1), ("tiny-hybrid:f16", 2)] {
        let (once, submits) = dispatches(name, None);
        let (again, _) = dispatches(name, Some(submits + 1));
        assert_eq!(again, times * once, "{name}");
    }
}

#[test]
fn reopened_devices_decode_after_a_loss() {
    let list = LISTS as u64 + 1;
    for faults in [&[Fault::LostAt(list)][..], &[]] {
        let (device, _) = reporting(faults);
        let model = model("tiny:f16", &device);
        let mut session = Session::new(&model, 64).expect("fits");
        session.set_mode(Mode::Fixed(&refrain::Replay), None);
        let mut stream = session.stream(&[1], &Settings::default()).expect("begins");
        let tokens = (0..30).map_while(|_| stream.next_tokens().ok().flatten()).count();
        assert_eq!(tokens == 30, faults.is_empty(), "{tokens} tokens");
        assert_eq!(stream.end().is_ok(), faults.is_empty());
    }
}
