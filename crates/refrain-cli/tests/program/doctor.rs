//! `refrain doctor`. These tests need a Vulkan driver, such as Mesa's software driver.

use std::fs;

use serde_json::Value;

use crate::support::{Outcome, refrain, run};

fn outcome(command: &mut std::process::Command) -> Outcome {
    command.output().unwrap().into()
}

fn findings(printed: &Value) -> Vec<&str> {
    let findings = printed["findings"].as_array().unwrap().iter();
    findings.map(|finding| finding["what"].as_str().unwrap()).collect()
}

#[test]
fn tests_every_kernel_family_and_reads_every_heap() {
    if !refrain_testing::drawn(12) {
        return;
    }
    let arguments = ["doctor", "--json", "--device", "0", "--disable", "storage8"];
    let printed = outcome(&mut refrain(&arguments)).json();
    let families = printed["device"]["self_test"].as_array().unwrap();
    assert!(families.len() >= 12, "{printed}");
    for family in families {
        assert_eq!(family["error"], Value::Null, "{family}");
        assert!(family["results"].as_u64().unwrap() > 0, "{family}");
    }
    let heaps = printed["device"]["heaps"].as_array().unwrap();
    assert!(
        heaps
            .iter()
            .any(|heap| heap["read_gb_per_s"].as_f64().is_some_and(|rate| rate > 0.01))
    );
    assert!(printed["device"]["dependent_step_us"].as_f64().unwrap() >= 0.0);
    let missing = printed["device"]["missing_features"].as_array().unwrap();
    assert!(missing.iter().any(|feature| feature["name"] == "storage8"), "{printed}");
    assert!(printed["loader"]["version"].as_str().unwrap().starts_with("1."));
    let drivers = printed["drivers"].as_array().unwrap().iter();
    let offered: Vec<&Value> = drivers
        .flat_map(|driver| driver["devices"].as_array().unwrap())
        .collect();
    assert!(offered.contains(&&printed["device"]["name"]), "{printed}");
    assert_eq!(findings(&printed), [""; 0]);
}

#[test]
fn checks_a_model_against_the_device_without_loading_it() {
    let text = run(&["doctor", "synthetic:qwen3-8b:q4_0", "--ctx", "1024"]).stdout;
    for word in [
        "CPU executor",
        "needs 4",
        "a context of 1024 tokens",
        "tokens/s at 1024 tokens",
        "bottleneck: reading",
        "of weights",
    ] {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
    let printed = run(&["doctor", "demo", "--json"]).json();
    assert_eq!(printed["model"]["fits"], true);
    assert_eq!(printed["model"]["context"], 1024);
    let speeds = printed["model"]["tokens_per_s"].as_array().unwrap();
    assert!(
        speeds[0].as_f64() > speeds[1].as_f64() && speeds[1].as_f64() > Some(0.0),
        "{printed}"
    );
}

#[test]
fn names_a_driver_that_does_not_load_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = folder.path().join("broken.json");
    let text =
        r#"{"file_format_version": "1.0.0", "ICD": {"library_path": "/no/such/driver.so", "api_version": "1.3.0"}}"#;
    fs::write(&manifest, text).unwrap();
    let mut command = refrain(&["doctor"]);
    command
        .env("VK_DRIVER_FILES", &manifest)
        .env("VK_ICD_FILENAMES", &manifest);
    let text = outcome(&mut command).done();
    for word in [
        "broken.json: does not work: /no/such/driver.so",
        "warning: the driver of",
        "CPU executor",
        "fix: ",
    ] {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
}

#[test]
fn errors_give_exit_code_1() {
    let printed = outcome(&mut refrain(&["doctor", "--device", "no such card", "--json"]));
    assert_eq!(printed.code, Some(1), "{printed:?}");
    let printed: Value = serde_json::from_str(&printed.stdout).unwrap();
    assert!(findings(&printed)[0].contains("no such card"), "{printed}");
    assert_eq!(printed["findings"][0]["broken"], true);
    run(&["doctor", "no/such/model"]).failed(1, &["no/such/model"]);
}

#[test]
fn unwritable_cache_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cache");
    fs::write(&file, "").unwrap();
    let mut command = refrain(&["doctor", "--device", "cpu"]);
    let text = outcome(command.env("XDG_CACHE_HOME", &file)).done();
    assert!(text.contains("warning: compiled shaders cannot be cached"), "{text}");
}

#[test]
fn report_is_markdown_with_the_version_and_the_build() {
    let text = run(&["doctor", "demo", "--device", "cpu", "--report"]).done();
    let inside = text
        .strip_prefix("```text\nrefrain ")
        .and_then(|text| text.strip_suffix("```\n"));
    let inside = inside.unwrap_or_else(|| panic!("no block of text: {text}"));
    assert!(inside.starts_with(env!("CARGO_PKG_VERSION")), "{text}");
    for word in ["rustc 1.", "\ndevices ", "\ncaches ", "\nmodel "] {
        assert!(inside.contains(word), "no {word:?} in {text}");
    }
    run(&["doctor", "--report", "--json"]).failed(2, &["--json"]);
}
