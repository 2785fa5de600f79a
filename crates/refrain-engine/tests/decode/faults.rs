//! Devices that fail while they decode: no token that was not computed, and nothing forgotten in a retry.

use std::collections::BTreeMap;

use refrain_engine::{Error, Mode, Session};
use refrain_lm::sample::Settings;
use refrain_testing::sample;
use refrain_vulkan::{Error as DeviceError, Fault};

use crate::common::null::reporting;
use crate::{model, prompt};

const MODES: [Mode; 2] = [Mode::By(&refrain::Replay), Mode::By(&refrain::Eager)];

fn loss(error: &Error) -> bool {
    let Error::Array(refrain::Error::Vulkan(error)) = error else {
        return false;
    };
    matches!(**error, DeviceError::DeviceLost { .. })
}

/// Lists that the device completes: the first delivers what a stream begins with, and each further one is a run.
const LISTS: usize = 11;

#[test]
fn a_silently_lost_device_gives_no_token() {
    for (mode, fault) in MODES.into_iter().flat_map(|mode| {
        let list = LISTS as u64 + 1;
        [Fault::SilentFrom(list), Fault::JumpsAt(list), Fault::LostAt(list)].map(|fault| (mode, fault))
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
        assert!(loss(&error), "{fault:?}: {error}");
        assert!(tokens < LISTS, "{mode:?} {fault:?}: {tokens} tokens");
        assert!(error.to_string().matches("\"step\"").count() <= 1, "{error}");
        assert!(loss(&stream.end().expect_err("the session is lost with it")));
        // What the last run left half done, counters included, no other run finds.
        assert!(session.feed(&[1, 2]).is_err_and(|error| loss(&error)));
        let began = session.stream(&[1], &Settings::default());
        assert!(
            began
                .and_then(|mut stream| stream.next_tokens())
                .is_err_and(|error| loss(&error))
        );
        assert!(device.as_vulkan().is_some_and(|device| device.is_lost()));
    }
}

#[test]
fn the_end_of_a_stream_tells_that_the_device_was_lost_behind_the_last_token() {
    let list = LISTS as u64 + 1;
    let (device, _) = reporting(&[Fault::SilentFrom(list)]);
    let model = model("tiny:f16", &device);
    let mut session = Session::new(&model, 64).expect("fits");
    session.set_mode(Mode::By(&refrain::Replay), None);
    session.set_tokens_per_submit(Some(32));
    let mut stream = session.stream(&[1], &Settings::default()).expect("begins");
    stream.next_tokens().expect("was computed").expect("not full");
    assert!(loss(&stream.end().expect_err("the device did not get that far")));
}

/// What a stream of 20 tokens over the boundary of a page delivers, where the submits that `fails` says fail
/// and are repeated; and from which to which call it submits.
fn delivered(name: &str, mode: Mode, fails: Option<u64>) -> (BTreeMap<u64, u32>, (u64, u64)) {
    let faults: Vec<Fault> = fails.map(Fault::SubmitFails).into_iter().collect();
    let (device, delivered) = reporting(&faults);
    let model = model(name, &device);
    let mut session = Session::new(&model, 600).expect("fits");
    session.set_mode(mode, None);
    session.set_tokens_per_submit(Some(4));
    session.prepare(0).expect("prepares");
    session.feed(&prompt(250)).expect("is taken in");
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
fn a_submit_that_fails_is_repeated_with_all_that_it_carried() {
    for name in ["tiny:f16", "tiny-hybrid:f16"] {
        for mode in MODES {
            let (whole, (first, last)) = delivered(name, mode, None);
            assert!(
                whole.len() > 10 && last - first >= 5,
                "{} words, {first}..{last}",
                whole.len()
            );
            // Eagerly each token is a submit.
            let every = if mode == Mode::By(&refrain::Eager) { 3 } else { 1 };
            for fails in sample((first + 1..=last).step_by(every), 8) {
                let (repeated, _) = delivered(name, mode, Some(fails));
                assert_eq!(repeated, whole, "{name}, {mode:?}, call {fails} of {first}..{last}");
            }
        }
    }
}

#[test]
fn a_chunk_that_fails_is_taken_in_again_by_what_does_not_go_back() {
    let dispatches = |name: &str, fails: Option<u64>| {
        let faults: Vec<Fault> = fails.map(Fault::SubmitFails).into_iter().collect();
        let (device, _) = reporting(&faults);
        let model = model(name, &device);
        let mut session = Session::new(&model, 64).expect("fits");
        session.feed(&prompt(8)).expect("is taken in");
        let before = model.counters();
        if fails.is_some() {
            session.feed(&prompt(8)).expect_err("the call fails");
            assert_eq!(session.position(), 8);
        }
        session.feed(&prompt(8)).expect("is taken in");
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
fn a_device_is_opened_again_after_a_loss_and_decodes() {
    let list = LISTS as u64 + 1;
    for faults in [&[Fault::LostAt(list)][..], &[]] {
        let (device, _) = reporting(faults);
        let model = model("tiny:f16", &device);
        let mut session = Session::new(&model, 64).expect("fits");
        session.set_mode(Mode::By(&refrain::Replay), None);
        let mut stream = session.stream(&[1], &Settings::default()).expect("begins");
        let tokens = (0..30).map_while(|_| stream.next_tokens().ok().flatten()).count();
        assert_eq!(tokens == 30, faults.is_empty(), "{tokens} tokens");
        assert_eq!(stream.end().is_ok(), faults.is_empty());
    }
}
