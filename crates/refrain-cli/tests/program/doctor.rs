//! `refrain doctor`. These tests need a Vulkan driver, such as Mesa's software one.

use std::fs;

use serde_json::Value;

use crate::support::{Outcome, refrain, run};

fn outcome(command: &mut std::process::Command) -> Outcome {
    command.output().unwrap().into()
}

fn findings(told: &Value) -> Vec<&str> {
    let findings = told["findings"].as_array().unwrap().iter();
    findings.map(|finding| finding["what"].as_str().unwrap()).collect()
}

#[test]
fn every_kernel_family_is_tested_and_every_heap_is_read_on_the_chosen_device() {
    let arguments = ["doctor", "--json", "--device", "0", "--disable", "storage8"];
    let told = outcome(&mut refrain(&arguments)).json();
    let families = told["device"]["self_test"].as_array().unwrap();
    assert!(families.len() >= 12, "{told}");
    for family in families {
        assert_eq!(family["error"], Value::Null, "{family}");
        assert!(family["results"].as_u64().unwrap() > 0, "{family}");
    }
    let heaps = told["device"]["heaps"].as_array().unwrap();
    assert!(
        heaps
            .iter()
            .any(|heap| heap["read_gb_per_s"].as_f64().is_some_and(|rate| rate > 0.01))
    );
    assert!(told["device"]["dependent_step_us"].as_f64().unwrap() >= 0.0);
    let missing = told["device"]["missing_features"].as_array().unwrap();
    assert!(missing.iter().any(|feature| feature["name"] == "storage8"), "{told}");
    assert!(told["loader"]["version"].as_str().unwrap().starts_with("1."));
    let drivers = told["drivers"].as_array().unwrap().iter();
    let offered: Vec<&Value> = drivers
        .flat_map(|driver| driver["devices"].as_array().unwrap())
        .collect();
    assert!(offered.contains(&&told["device"]["name"]), "{told}");
    assert_eq!(findings(&told), [""; 0]);
}

#[test]
fn a_model_is_placed_on_the_device_before_it_is_loaded() {
    let text = run(&["doctor", "synthetic:qwen3-8b:q4_0", "--ctx", "1024"]).stdout;
    for word in [
        "CPU executor",
        "needs 4",
        "a context of 1024 tokens",
        "tokens/s at 1024 tokens",
        "of weights takes most",
    ] {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
    let told = run(&["doctor", "demo", "--json"]).json();
    assert_eq!(told["model"]["fits"], true);
    assert_eq!(told["model"]["context"], 1024);
    let speeds = told["model"]["tokens_per_s"].as_array().unwrap();
    assert!(
        speeds[0].as_f64() > speeds[1].as_f64() && speeds[1].as_f64() > Some(0.0),
        "{told}"
    );
}

#[test]
fn a_driver_that_does_not_load_is_named_with_the_reason() {
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
        "note: the driver of",
        "CPU executor",
        "mend",
    ] {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
}

#[test]
fn what_cannot_work_is_told_and_the_exit_code_is_1() {
    let told = outcome(&mut refrain(&["doctor", "--device", "no such card", "--json"]));
    assert_eq!(told.code, Some(1), "{told:?}");
    let told: Value = serde_json::from_str(&told.stdout).unwrap();
    assert!(findings(&told)[0].contains("no such card"), "{told}");
    assert_eq!(told["findings"][0]["broken"], true);
    run(&["doctor", "no/such/model"]).failed(1, &["no/such/model"]);
}

#[test]
fn a_cache_that_cannot_be_kept_is_a_note() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cache");
    fs::write(&file, "").unwrap();
    let mut command = refrain(&["doctor", "--device", "cpu"]);
    let text = outcome(command.env("XDG_CACHE_HOME", &file)).done();
    assert!(text.contains("note: compiled shaders cannot be kept"), "{text}");
}
