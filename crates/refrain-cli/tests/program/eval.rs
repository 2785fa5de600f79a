//! Perplexity and KL divergence, compared with those of transformers.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{fixture, run, run_with_input};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[track_caller]
fn close(found: &Value, expected: &Value, relative: f64) {
    let (found, expected) = (found.as_f64().unwrap(), expected.as_f64().unwrap());
    assert!(
        (found - expected).abs() <= relative * expected.abs(),
        "{found}, expected {expected}"
    );
}

#[test]
fn quantised_caches_keep_the_perplexity() {
    if !refrain_testing::drawn(8) {
        return;
    }
    let text = root().join("demo/story.txt");
    let perplexity = |types: &str| {
        let text = text.to_str().unwrap();
        let result = run(&["eval", "demo", "--text", text, "--kv-type", types, "--json"]).json();
        result["perplexity"].as_f64().unwrap()
    };
    let exact = perplexity("f16");
    for (types, bound) in [("bf16", 1.001), ("q8_0", 1.002), ("q8_0,q4_0", 1.03), ("q4_0", 1.03)] {
        let found = perplexity(types);
        assert!(found <= bound * exact, "{types}: {found}, with f16 {exact}");
    }
}

#[test]
fn perplexity_and_divergence_match_transformers() {
    let cases: Value = serde_json::from_slice(&std::fs::read(fixture("perplexity.json")).unwrap()).unwrap();
    for case in cases.as_array().unwrap() {
        let path = |key: &str| {
            case[key]
                .as_str()
                .map(|path| root().join(path).to_str().unwrap().to_owned())
        };
        let number = |key: &str| case[key].to_string();
        let [model, text] = ["model", "text"].map(|key| path(key).unwrap());
        let (context, stride) = (number("context"), number("stride"));
        let mut arguments = vec!["eval", &model, "--text", &text, "--json"];
        arguments.extend(["--context", &context, "--stride", &stride]);
        let against = path("against");
        if let Some(against) = &against {
            arguments.extend(["--against", against]);
        }
        let result = run(&arguments).json();
        let score = if against.is_some() { &result["model"] } else { &result };
        assert_eq!(score["tokens"], case["tokens"], "{case}");
        for key in ["nll", "perplexity", "standard_error"] {
            close(&score[key], &case[key], 1e-3);
        }
        if against.is_some() {
            close(&result["kl"]["mean"], &case["kl_mean"], 1e-3);
            close(&result["kl"]["max"], &case["kl_max"], 1e-3);
            close(&result["top1_agreement"], &case["top1_agreement"], 1e-3);
        }
    }
}

#[test]
fn model_does_not_diverge_from_itself() {
    let result = run_with_input(
        &["eval", "demo", "--text", "-", "--against", "demo", "--json"],
        b"Once upon a time, there was a little fox.",
    )
    .json();
    assert_eq!(result["kl"]["max"], 0.0);
    assert_eq!(result["top1_agreement"], 1.0);
    assert_eq!(result["model"], result["reference"]);
}

#[test]
fn prints_one_line_of_text() {
    let text = run_with_input(&["eval", "demo", "--text", "-", "--context", "8"], b"Once upon a time.").done();
    assert!(
        text.starts_with("perplexity ") && text.contains(" ± ") && text.contains("windows of 8 every 4"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1);
}

#[test]
fn errors_say_why_nothing_can_be_measured() {
    let eval = |arguments: &[&str], input: &[u8]| {
        run_with_input(&[&["eval", "demo", "--text", "-"], arguments].concat(), input)
    };
    let text = b"Once upon a time there was a fox.";
    eval(&[], b"").failed(1, &["0 tokens", "at least two"]);
    eval(&["--context", "5000"], text).failed(2, &["--context 5000", "1024"]);
    eval(&["--context", "8", "--stride", "9"], text).failed(2, &["--stride 9", "8 tokens"]);
    let other = fixture("qwen3-bf16");
    eval(&["--against", other.to_str().unwrap()], text).failed(1, &["cannot be compared", "2048", "311"]);
    run(&["eval", "demo", "--text", "no-such-file"]).failed(1, &["no-such-file"]);
    run(&["eval", "synthetic:tiny:q4_0", "--text", "README.md"]).failed(1, &["README.md"]);
}
