//! Forked, rewound and rolled-back sessions continue like fresh ones.

use std::path::Path;

use refrain_engine::{Device, Error, LoadOptions, Mode, Model, Restored, Session, Snapshot};
use refrain_formats::{Encoding, State};
use refrain_lm::sample::Settings;
use refrain_models::Checkpoint;

use crate::common::{TestGpu, relative_l2};
use crate::{decoded, is_software, model, pair, prompt, seeded};

/// Returns a session's state and the logits it computed last.
fn state_of(session: &mut Session) -> (Snapshot, Vec<f32>) {
    (
        session.snapshot().expect("a snapshot"),
        session.last_logits().expect("logits"),
    )
}

/// Decodes until the session holds `end` tokens, and returns them. Nothing runs beyond the last one.
fn decode_until(session: &mut Session, prompt: &[u32], settings: &Settings, end: usize) -> Vec<u32> {
    let settings = Settings {
        last_position: end as u32,
        ..settings.clone()
    };
    let tokens = end + 1 - session.position() - prompt.len();
    decoded(session, prompt, &settings, tokens)
}

/// Forks at `at` tokens, continues both to `end`, and rewinds. Fails unless all equal sessions that did only that.
fn assert_forks_and_rewinds(model: &Model, at: usize, end: usize) {
    let other = Settings {
        temperature: 0.7,
        seed: 8,
        ..Settings::default()
    };
    let new = || {
        let mut session = Session::new(model, 1000).expect("fits");
        session.set_tokens_per_submit(Some(8));
        session
    };
    let alone = |settings: &Settings| {
        let mut session = new();
        let mut tokens = decode_until(&mut session, &prompt(30), &seeded(), at);
        let last = tokens[tokens.len() - 1..].to_vec();
        tokens.extend(decode_until(&mut session, &last, settings, end));
        (tokens, state_of(&mut session))
    };
    let (one, another) = (alone(&seeded()), alone(&other));
    assert!(one.0 != another.0, "the ways part");

    let mut session = new();
    let first = decode_until(&mut session, &prompt(30), &seeded(), at);
    assert_eq!(session.position(), at);
    let last = &first[first.len() - 1..];
    let mut fork = session.fork().expect("forks");
    fork.set_tokens_per_submit(Some(8));
    for (session, settings, expected) in [(&mut fork, &other, &another), (&mut session, &seeded(), &one)] {
        let rest = decode_until(session, last, settings, end);
        assert_eq!([&first[..], &rest].concat(), expected.0);
        assert!(state_of(session) == expected.1, "the states or logits differ");
    }

    // Recurrent models rewind by recomputing their tokens, in chunks like a prompt.
    let expected = if model.config().delta_net.is_some() {
        let mut fresh = new();
        fresh.append(&session.tokens()[..at]).expect("computes");
        let rest = decode_until(&mut fresh, last, &other, end);
        ([&first[..], &rest].concat(), state_of(&mut fresh))
    } else {
        another
    };
    for session in [&mut session, &mut fork] {
        session.rewind(at);
        assert_eq!(session.position(), at);
        let rest = decode_until(session, last, &other, end);
        assert_eq!([&first[..], &rest].concat(), expected.0);
        assert!(
            state_of(session) == expected.1,
            "the states or logits differ after a rewind"
        );
    }
}

#[test]
fn forks_and_rewinds_at_500_tokens_match_fresh_sessions() {
    for name in ["qwen3-bf16", "qwen3.5-moe-bf16"] {
        assert_forks_and_rewinds(&model(name, &Device::cpu()), 500, 540);
    }
}

#[test]
fn forks_and_rewinds_on_a_device_match_fresh_sessions() {
    if !refrain_testing::drawn(8) {
        return;
    }
    let gpu = TestGpu::open();
    let (at, end) = if is_software(&gpu) { (70, 100) } else { (500, 600) };
    for name in pair(&gpu) {
        assert_forks_and_rewinds(&model(name, &gpu.device), at, end);
    }
    gpu.assert_silent();
}

#[test]
fn forks_keep_the_decoding_mode() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let gpu = TestGpu::open();
    let model = model("tiny:q4_0", &gpu.device);
    let mut session = Session::new(&model, 64).expect("fits");
    session.set_mode(Mode::Fixed(&refrain::Eager), None);
    session.append(&prompt(5)).expect("computes");
    assert_eq!(session.fork().expect("fits").mode().0.name(), "eager");
    gpu.assert_silent();
}

#[test]
fn work_beyond_the_last_token_taken_is_undone() {
    if !refrain_testing::drawn(8) {
        return;
    }
    let gpu = TestGpu::open();
    for name in pair(&gpu) {
        let model = model(name, &gpu.device);
        let session = || {
            let mut session = Session::new(&model, 128).expect("fits");
            session.set_mode(Mode::Fixed(&refrain::Replay), None);
            session.set_tokens_per_submit(Some(4));
            session
        };
        let whole = decoded(&mut session(), &prompt(5), &seeded(), 20);
        let mut parts = session();
        let mut prompt = prompt(5);
        let mut taken: Vec<u32> = vec![];
        // Each part ends within a submit, with another one in flight.
        for tokens in [3, 6, 1, 10] {
            taken.extend(decoded(&mut parts, &prompt, &seeded(), tokens));
            prompt = taken[taken.len() - 1..].to_vec();
        }
        assert_eq!(taken, whole, "{name}");
    }
    gpu.assert_silent();
}

#[test]
fn refuses_biases_of_the_wrong_length() {
    let model = model("tiny:f32", &Device::cpu());
    let short = Session::new(&model, 64).expect("fits").set_bias(&[0.0; 3]);
    assert!(matches!(short, Err(Error::BiasLength { found: 3, .. })), "{short:?}");
}

#[test]
fn dropped_streams_leave_no_state() {
    for name in ["tiny:f32", "tiny-hybrid:f32"] {
        let model = model(name, &Device::cpu());
        let mut session = Session::new(&model, 64).expect("fits");
        let mut stream = session.stream(&prompt(9), &Settings::default()).expect("begins");
        (0..3).for_each(|_| assert!(stream.next_tokens().expect("goes on").is_some()));
        drop(stream);
        assert_eq!(session.tokens(), &prompt(9)[..8]);
        let after = session.prefill(&[7, 8, 9]).expect("computes");
        let mut fresh = Session::new(&model, 64).expect("fits");
        let whole = [&prompt(9)[..8], &[7, 8, 9]].concat();
        let error = relative_l2(&after, &fresh.prefill(&whole).expect("computes"));
        assert!(error <= 1e-5, "{name}: {error:.2e}");
    }
}

#[test]
fn logits_after_a_rewind_match_the_whole_prompt() {
    for name in ["tiny:f32", "tiny-hybrid:f32"] {
        let model = model(name, &Device::cpu());
        let new = || Session::new(&model, 64).expect("fits");
        let tokens = prompt(40);
        let whole = new().logits(&tokens).expect("computes");
        let mut session = new();
        session.append(&tokens[..30]).expect("computes");
        session.rewind(20);
        assert_eq!((session.position(), session.tokens()), (20, &tokens[..20]));
        let rest = session.extend_logits(&tokens[20..]).expect("computes");
        let error = relative_l2(&rest, &whole[whole.len() / 2..]);
        assert!(error <= 1e-5, "{name}: {error:.2e}");
        assert_eq!(session.tokens(), tokens);
    }
}

#[test]
fn configurations_predict_session_memory() {
    for name in ["tiny:f32", "tiny-hybrid:f32"] {
        let model = model(name, &Device::cpu());
        let (context, sequences) = (256, 3);
        let session = Session::several(&model, context, sequences).expect("fits");
        let keys_and_values = context as u64 * Session::kv_bytes_per_token(model.config(), model.cache_types());
        let each = keys_and_values + model.config().recurrent_bytes();
        assert_eq!(session.memory().kv_bytes, sequences as u64 * each, "{name}");
    }
}

#[test]
fn refuses_state_files_of_other_sizes_without_changing_the_session() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    let model = model("tiny-hybrid:f32", &Device::cpu());
    let mut session = Session::new(&model, 64).expect("fits");
    session.append(&prompt(9)).expect("computes");
    session.snapshot().expect("a snapshot").save(&path).expect("writes");
    let good = State::open(&path).expect("reads");
    let damage: [&dyn Fn(&mut State); 7] = [
        &|state| state.key.model ^= 1,
        &|state| state.tokens.extend(0..64),
        &|state| state.tokens.truncate(8),
        &|state| state.planes.truncate(1),
        &|state| state.planes[0].row = vec![usize::MAX, usize::MAX],
        &|state| state.planes[1].encoding = Encoding::F16,
        &|state| state.planes[1].bytes.truncate(4),
    ];
    for (number, change) in damage.into_iter().enumerate() {
        let mut bad = good.clone();
        change(&mut bad);
        bad.save(&path).expect("writes");
        let bad = Snapshot::open(&path).expect("a whole file");
        let refused = session.restore(&bad);
        assert!(
            matches!(refused, Err(Error::Snapshot(_) | Error::ContextFull { .. })),
            "{number}: {refused:?}"
        );
        assert_eq!(session.tokens(), prompt(9), "{number}");
    }
    good.save(&path).expect("writes");
    let whole = Snapshot::open(&path).expect("reads");
    assert!(whole == session.snapshot().expect("a snapshot"), "the session changed");
    session.restore(&whole).expect("fits");
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
            let logits = |parts: [&[u32]; 2]| {
                let mut fresh = Session::new(&model, to).expect("fits");
                fresh.append(parts[0]).expect("computes");
                fresh.extend_logits(parts[1]).expect("computes")
            };
            let mut origin = Session::new(&model, from).expect("fits");
            origin.append(&tokens[..12]).expect("computes");
            let snapshot = origin.snapshot().expect("a snapshot");
            let mut session = Session::new(&model, to).expect("fits");
            let restored = session.restore(&snapshot).expect("the same model");
            assert_eq!(restored == Restored::Recompute, differ, "{what}");
            assert_eq!(session.tokens(), &tokens[..12], "{what}");
            let mut fork = session.fork().expect("fits");
            for session in [&mut session, &mut fork] {
                let found = session.extend_logits(&tokens[12..]).expect("computes");
                assert!(found == logits([&tokens[..12], &tokens[12..]]), "{what}");
            }
            // Rewinding into tokens that are not recomputed yet must work.
            session.restore(&snapshot).expect("the same model");
            session.rewind(5);
            let found = session.extend_logits(&tokens[5..]).expect("computes");
            let error = relative_l2(&found, &logits([&tokens[..5], &tokens[5..]]));
            assert!(error <= 1e-5, "{what}: {error:.2e}");
        }
    }
}

#[test]
fn recomputes_states_with_another_cache_precision() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    for name in ["tiny:f32", "tiny-hybrid:f32"] {
        let model = model(name, &Device::cpu());
        let mut session = Session::new(&model, 64).expect("fits");
        session.append(&prompt(9)).expect("computes");
        session.snapshot().expect("a snapshot").save(&path).expect("writes");
        let expected = session.extend_logits(&prompt(12)[9..]).expect("computes");
        let mut halved = State::open(&path).expect("reads");
        halved.key.cache = Encoding::F16;
        for plane in &mut halved.planes {
            plane.bytes.fill(0x3c);
        }
        halved.save(&path).expect("writes");
        let mut other = Session::new(&model, 64).expect("fits");
        let snapshot = Snapshot::open(&path).expect("a whole file");
        assert_eq!(other.restore(&snapshot).expect("the same model"), Restored::Recompute);
        assert!(
            other.extend_logits(&prompt(12)[9..]).expect("computes") == expected,
            "{name}"
        );
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
    let whole = load();
    let mut session = Session::new(&whole, 64).expect("fits");
    session.append(&prompt(9)).expect("computes");
    let snapshot = session.snapshot().expect("a snapshot");
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
        let other = load();
        let refused = Session::new(&other, 64).expect("fits").restore(&snapshot);
        assert!(matches!(refused, Err(Error::Snapshot(_))), "{eighth}: {refused:?}");
    }
}
