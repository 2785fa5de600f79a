//! The command line: exit codes, help, version, completions.

use crate::examples::commands;
use crate::support::{Outcome, refrain, run};

#[test]
fn invalid_command_lines_exit_with_2() {
    for arguments in [
        &[][..],
        &["dance"],
        &["run", "--no-such-option"],
        &["run", "demo", "hi", "--temp", "-1"],
        &["run", "demo", "hi", "--top-p", "0"],
        &["run", "demo", "hi", "--min-p", "2"],
        &["run", "demo", "hi", "--repeat-penalty", "0"],
        &["run", "demo", "hi", "--presence-penalty", "nan"],
        &["run", "demo", "hi", "--logit-bias", "42"],
        &["run", "demo", "hi", "--logit-bias", "123456+1"],
        &["run", "demo", "hi", "-n", "many"],
        &["run", "demo", "hi", "--ctx", "0"],
        &["run", "demo", "hi", "--stop", ""],
        &["run", "demo", "hi", "--raw", "--system", "x"],
        &["run", "demo", "hi", "-q", "-v"],
        &["tokenize", "demo", "text", "--file", "too"],
        &["logits", "demo"],
        &["logits", "demo", "--tokens", "a", "--out", "b", "--chunk", "0"],
        &["bench", "demo", "-p", "4000"],
    ] {
        let outcome = run(arguments);
        assert_eq!(outcome.code, Some(2), "{arguments:?}: {outcome:?}");
        assert_eq!(outcome.stdout, "", "{arguments:?}");
        assert!(!outcome.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn help_and_version_go_to_standard_output() {
    assert!(run(&["--version"]).done().starts_with("refrain "));
    assert!(run(&["--help"]).done().contains("tokenize"));
    for command in commands() {
        assert!(
            run(&[command.as_str(), "--help"]).done().contains("--device"),
            "{command}"
        );
    }
}

#[test]
fn no_color_disables_colours() {
    for arguments in [
        &["--help"][..],
        &["run", "--no-such-option"],
        &["devices"],
        &["inspect", "nowhere"],
    ] {
        let output = refrain(arguments)
            .env("NO_COLOR", "1")
            .env("CLICOLOR_FORCE", "")
            .output()
            .unwrap();
        let outcome = Outcome::from(output);
        assert!(
            !outcome.stdout.contains('\x1b') && !outcome.stderr.contains('\x1b'),
            "{outcome:?}"
        );
    }
}

#[test]
fn ignores_empty_environment_variables() {
    let output = refrain(&["devices"])
        .env("REFRAIN_DEVICE", "")
        .env("REFRAIN_DISABLE", "")
        .output();
    Outcome::from(output.unwrap()).done();
}

#[test]
fn inspect_shows_the_checkpoint_with_equal_layers_once() {
    let text = run(&["inspect", "demo", "--no-device"]).done();
    for word in [
        "qwen3",
        "7.9 M",
        "model.embed_tokens.weight",
        "MLX 8-bit/64",
        "1024 tokens",
    ] {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
    // The 8 layers are equal and shown once, unless every tensor is requested.
    let layer = "model.layers.7.mlp.down_proj.weight";
    assert!(
        text.contains("model.layers.0-7: 8 layers") && !text.contains(layer),
        "{text}"
    );
    assert!(text.lines().count() < 40, "{text}");
    let all = run(&["inspect", "demo", "--no-device", "--all"]).done();
    assert!(all.contains(layer), "{all}");
    let json = run(&["inspect", "demo", "--no-device", "--json"]).json();
    assert_eq!(json["tensors"].as_array().unwrap().len(), 90);
    assert_eq!(json["device"], serde_json::Value::Null);
}

#[test]
fn version_shows_build_and_drivers() {
    let printed = run(&["--version"]).done();
    for word in ["target", "rustc 1.", "glslang", "Vulkan"] {
        assert!(printed.contains(word), "no {word:?} in {printed}");
    }
    assert_eq!(run(&["-V"]).done(), format!("refrain {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn completions_and_manual_pages_cover_every_command() {
    let commands = commands();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = run(&["completions", shell]).done();
        for command in &commands {
            assert!(script.contains(command.as_str()), "{shell}: {command}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    run(&["man", folder.path().to_str().unwrap()]).done();
    for command in &commands {
        let page = std::fs::read_to_string(folder.path().join(format!("refrain-{command}.1"))).unwrap();
        assert!(page.contains("Examples:"), "{command}");
    }
    assert!(run(&["man"]).done().contains(".TH refrain 1"));
    run(&["man", "/dev/null/pages"]).failed(1, &["/dev/null/pages"]);
}
