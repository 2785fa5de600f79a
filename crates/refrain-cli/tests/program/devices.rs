//! Device selection. These tests need a Vulkan driver, such as Mesa's software driver.

use std::fs;

use crate::support::{Copy, Outcome, fixture, refrain};

fn outcome(command: &mut std::process::Command) -> Outcome {
    command.output().unwrap().into()
}

/// The program without any Vulkan driver.
fn without_driver(arguments: &[&str]) -> std::process::Command {
    let mut command = refrain(arguments);
    command.env("VK_DRIVER_FILES", "/no/such/driver.json");
    command.env("VK_ICD_FILENAMES", "/no/such/driver.json");
    command
}

#[test]
fn lists_every_device_with_the_selection_and_its_reason() {
    let listed = outcome(&mut refrain(&["devices", "--json"])).json();
    let devices = listed["devices"].as_array().unwrap();
    assert!(
        !devices.is_empty(),
        "no Vulkan driver is installed, and these tests need one"
    );
    for key in [
        "device",
        "name",
        "kind",
        "driver",
        "vulkan",
        "memory_bytes",
        "usable",
        "reason",
        "features",
    ] {
        assert!(!devices[0][key].is_null(), "{key}: {listed}");
    }
    assert!(listed["cpu"]["threads"].as_u64().unwrap() >= 1);
    assert!(!listed["reason"].as_str().unwrap().is_empty());
    let text = outcome(&mut refrain(&["devices"])).done();
    assert!(text.contains(devices[0]["name"].as_str().unwrap()), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("* ")).count(), 2, "{text}");
}

#[test]
fn selects_a_device_by_option_or_environment() {
    let chosen = |command: &mut std::process::Command| outcome(command).json()["chosen"].clone();
    assert_eq!(chosen(&mut refrain(&["devices", "--json", "--device", "cpu"])), "cpu");
    assert_eq!(chosen(&mut refrain(&["--device", "0", "devices", "--json"])), 0);
    assert_eq!(
        chosen(refrain(&["devices", "--json"]).env("REFRAIN_DEVICE", "CPU")),
        "cpu"
    );
    assert_eq!(
        chosen(refrain(&["devices", "--json", "--device", "0"]).env("REFRAIN_DEVICE", "cpu")),
        0
    );
}

#[test]
fn rejects_an_unknown_device_and_lists_available_ones() {
    for requested in ["9000", "no such card"] {
        outcome(&mut refrain(&["devices", "--device", requested])).failed(1, &[requested, "0 (", "cpu"]);
        outcome(&mut refrain(&["run", "demo", "hi", "--device", requested])).failed(1, &[requested, "0 (", "cpu"]);
    }
}

#[test]
fn falls_back_to_the_cpu_without_a_driver_with_a_note() {
    let run = outcome(&mut without_driver(&[
        "run",
        "demo",
        "What is 2 + 2?",
        "--temp",
        "0",
        "-n",
        "3",
    ]));
    let notes = run
        .stderr
        .lines()
        .filter(|line| line.contains("no Vulkan driver"))
        .count();
    assert_eq!(notes, 1, "{run:?}");
    assert!(run.stderr.contains("running on the CPU"));
    assert!(!run.done().is_empty());
    let quiet = outcome(&mut without_driver(&["-q", "run", "demo", "hi", "-n", "1"]));
    assert_eq!(quiet.stderr, "");
    assert_eq!(
        outcome(&mut without_driver(&["devices", "--json"])).json()["chosen"],
        "cpu"
    );
}

#[test]
fn rejects_a_vulkan_device_without_a_driver_with_a_hint() {
    outcome(&mut without_driver(&["devices", "--device", "0"]))
        .failed(1, &["no working Vulkan driver", "--device cpu"]);
}

#[test]
fn names_a_driver_that_does_not_load_with_the_loader_error() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = folder.path().join("nvidia_icd.json");
    let text =
        r#"{"file_format_version": "1.0.0", "ICD": {"library_path": "/no/libEGL.so.1", "api_version": "1.3.0"}}"#;
    fs::write(&manifest, text).unwrap();
    let printed = |arguments: &[&str]| {
        let mut command = refrain(arguments);
        command
            .env("VK_DRIVER_FILES", &manifest)
            .env("VK_ICD_FILENAMES", &manifest);
        outcome(&mut command)
    };
    let text = printed(&["devices"]).done();
    for word in [
        "nvidia_icd.json",
        "/no/libEGL.so.1: cannot open",
        "apt install libegl1",
        "selected",
    ] {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
    let json = printed(&["devices", "--json"]).json();
    assert!(
        json["broken_drivers"][0]["error"]
            .as_str()
            .unwrap()
            .contains("cannot open"),
        "{json}"
    );
    // The note about falling back to the CPU names the installed driver.
    let run = printed(&["run", "demo", "hi", "-n", "1"]);
    assert!(run.stderr.contains("nvidia_icd.json"), "{run:?}");
}

#[test]
fn disables_features_and_rejects_unknown_ones() {
    let arguments = ["run", "demo", "hi", "--device", "0", "--disable", "float17"];
    outcome(&mut refrain(&arguments)).failed(2, &["float17", "float16"]);
    let listed = refrain(&["-v", "run", "demo", "hi", "--device", "cpu"])
        .env("REFRAIN_DISABLE", "nothing")
        .output();
    Outcome::from(listed.unwrap()).failed(2, &["nothing"]);
}

#[test]
fn unwritable_cache_is_a_warning() {
    let copy = Copy::of("qwen3-bf16");
    // A file is in the directory's sandbox_dir.
    let cache = copy.file("cache");
    fs::write(&cache, "").unwrap();
    let (tokens, out) = (copy.file("tokens.json"), copy.file("out.safetensors"));
    let paths = [&tokens, &out].map(|path| path.to_str().unwrap());
    let arguments = [
        "logits",
        copy.path(),
        "--tokens",
        paths[0],
        "--out",
        paths[1],
        "--device",
        "0",
    ];
    let outcome = outcome(refrain(&arguments).env("XDG_CACHE_HOME", &cache));
    let warnings = outcome.stderr.lines().filter(|line| line.starts_with("warning: "));
    assert_eq!(warnings.count(), 1, "{outcome:?}");
    outcome.done();
}

#[test]
fn second_start_compiles_no_shader() {
    if !refrain_testing::drawn(12) {
        return;
    }
    let cache = tempfile::tempdir().unwrap();
    let compiled = || {
        let arguments = ["-v", "run", "demo", "hi", "-n", "1", "--device", "0"];
        let outcome = outcome(refrain(&arguments).env("XDG_CACHE_HOME", cache.path()));
        let found = outcome
            .stderr
            .split("; ")
            .find_map(|part| part.split_once(" shaders compiled"));
        found.unwrap_or_else(|| panic!("{outcome:?}")).0.parse::<u32>().unwrap()
    };
    assert!(compiled() > 0);
    assert_eq!(compiled(), 0);
}

#[test]
fn inspect_shows_what_fits_and_the_read_bandwidth() {
    let model = fixture("llama-gguf-q4_0/model.gguf");
    let inspected = outcome(&mut refrain(&[
        "inspect",
        model.to_str().unwrap(),
        "--json",
        "--device",
        "cpu",
    ]))
    .json();
    let device = &inspected["device"];
    assert_eq!(device["name"], "CPU executor");
    assert!(device["probe_gb_per_s"].as_f64().unwrap() > 0.05);
    assert!(device["tokens_per_s_bound"].as_f64().unwrap() > 1.0);
    assert_eq!(device["context_that_fits"], inspected["context"]);
}

#[test]
fn tuning_file_changes_kernels_and_an_invalid_one_is_rejected() {
    if !refrain_testing::drawn(8) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tuning");
    let plan = |settings: Option<&str>| -> Outcome {
        let mut command = refrain(&["explain", "synthetic:tiny:q4_0", "--device", "null", "--json"]);
        if let Some(settings) = settings {
            fs::write(&file, settings).unwrap();
            command.env("REFRAIN_TUNING", &file);
        }
        outcome(&mut command)
    };
    let default = plan(None).done();
    assert_eq!(plan(Some("# nothing\n")).done(), default);
    assert_ne!(plan(Some("four_bit.threads = 64\nfour_bit.rows = 1\n")).done(), default);
    let words = ["tuning", "line 2", "four_bit.thread", "four_bit.threads"];
    plan(Some("\nfour_bit.thread = 64")).failed(1, &words);
    fs::remove_file(&file).unwrap();
    outcome(&mut refrain(&[
        "plan-check",
        "demo",
        "--device",
        "null",
        "--tuning",
        "/no/such/file",
    ]))
    .failed(1, &["--tuning /no/such/file", "No such file"]);
}
