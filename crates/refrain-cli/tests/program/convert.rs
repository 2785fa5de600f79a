//! `refrain convert`.

use std::fs;
use std::path::Path;

use crate::support::{refrain, run};

const QUESTION: [&str; 5] = ["run", "What is 7 + 8?", "--temp", "0", "-q"];

fn answer(model: &str) -> String {
    run(&[&["run", model], &QUESTION[1..]].concat()).done()
}

fn entries(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    names.map(|name| name.into_string().unwrap()).collect()
}

#[test]
fn demo_model_answers_the_same_in_every_format() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let expected = answer("demo");
    assert!(expected.contains("15"), "{expected}");
    let formats = [
        ("f16", "f16.gguf"),
        ("q8_0", "q8_0.gguf"),
        ("q4_k_m", "q4_k_m.gguf"),
        ("f16", "f16"),
        ("mlx8", "mlx8"),
    ];
    for (format, name) in refrain_testing::sample(formats, 6) {
        let out = folder.path().join(name);
        let out = out.to_str().unwrap();
        let report = run(&["convert", "demo", out, "--format", format, "--json"]).json();
        assert_eq!(report["tensors"].as_array().unwrap().len(), 90, "{format}");
        assert!(
            report["relative_rms_error"].as_f64().unwrap() < 0.1,
            "{format}: {report}"
        );
        assert_eq!(answer(out), expected, "{format}");
    }
}

#[test]
fn prints_a_line_per_tensor_and_overwrites_only_with_force() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("m.gguf");
    let out = out.to_str().unwrap();
    let text = run(&["convert", "synthetic:tiny:f16", out, "--format", "q4_0"]).done();
    assert!(
        text.lines()
            .any(|line| line.starts_with("model.layers.0.mlp.down_proj.weight") && line.contains("Q4_0"))
    );
    assert!(
        text.lines().last().unwrap().starts_with(&format!("wrote {out}: ")),
        "{text}"
    );
    run(&["convert", "demo", out, "--format", "q4_0"]).failed(1, &[out, "already exists", "--force"]);
    let quiet = ["convert", "demo", out, "--format", "Q4_0", "--force", "--quiet"];
    assert_eq!(run(&quiet).done(), "");
    run(&["convert", "demo", out, "--format", "mlx4", "--force"]).failed(1, &[out, "mlx4 writes a directory"]);
    run(&["convert", "demo", out, "--format", "q3"]).failed(2, &["q4_k_m"]);
}

#[test]
#[cfg(unix)]
fn full_disk_is_an_error_and_leaves_no_files() {
    let folder = tempfile::tempdir().unwrap();
    for (format, name) in [("f16", "m.gguf"), ("mlx8", "m")] {
        // Limits files of the shell's children to 2 MB.
        let script = "trap '' XFSZ; ulimit -f 4096; exec \"$@\"";
        let mut program = std::process::Command::new("sh");
        program.args(["-c", script, "sh", env!("CARGO_BIN_EXE_refrain"), "convert", "demo"]);
        program.arg(folder.path().join(name)).args(["--format", format]);
        let outcome = crate::support::Outcome::from(program.output().unwrap());
        outcome.failed(1, &["cannot write", "too large"]);
        assert_eq!(entries(folder.path()), [""; 0], "{format}");
    }
}

/// Kills the program while it writes a tensor of 165 MB.
#[test]
#[cfg(target_os = "linux")]
fn uses_little_memory_and_a_killed_conversion_leaves_no_usable_file() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("m.gguf");
    let mut command = refrain(&[
        "convert",
        "synthetic:qwen3-0.6b:f16",
        out.to_str().unwrap(),
        "--format",
        "q8_0",
    ]);
    let mut child = command.spawn().unwrap();
    let partial = loop {
        assert!(child.try_wait().unwrap().is_none(), "ended before it could be killed");
        let found = entries(folder.path()).into_iter().map(|name| folder.path().join(name));
        if let Some(path) = found
            .into_iter()
            .find(|path| path.metadata().is_ok_and(|m| m.len() > 60 << 20))
        {
            break path;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(peak < 60 << 10, "{peak} kB");
    assert!(!out.exists());
    run(&["inspect", partial.to_str().unwrap()]).failed(1, &["neither a directory"]);
    run(&["inspect", folder.path().to_str().unwrap()]).failed(1, &["config.json"]);
    // The next run removes the leftovers, but not what another process is still writing.
    let mut other = begun(folder.path(), &["synth", "qwen3-0.6b:f16"], "other");
    let living: Vec<String> = entries(folder.path())
        .into_iter()
        .filter(|name| *name != partial.file_name().unwrap().to_str().unwrap())
        .collect();
    run(&["synth", "tiny:q8_0", folder.path().join("small.gguf").to_str().unwrap()]).done();
    assert!(!partial.exists());
    assert!(other.try_wait().unwrap().is_none(), "ended before it could be killed");
    assert!(
        living.iter().all(|name| folder.path().join(name).exists()),
        "{living:?}"
    );
    other.kill().unwrap();
    other.wait().unwrap();
    run(&["synth", "tiny:f16", folder.path().join("small").to_str().unwrap()]).done();
    let mut left = entries(folder.path());
    left.sort();
    assert_eq!(left, ["small", "small.gguf"]);
}

/// Starts a program that writes to `name` in a folder, and waits until it has begun.
#[cfg(target_os = "linux")]
fn begun(folder: &Path, command: &[&str], name: &str) -> std::process::Child {
    let before = entries(folder);
    let path = folder.join(name);
    let mut child = refrain(&[command, &[path.to_str().unwrap()]].concat()).spawn().unwrap();
    while entries(folder).iter().all(|name| before.contains(name)) {
        assert!(child.try_wait().unwrap().is_none(), "ended before it could be seen");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child
}

#[test]
fn does_not_replace_a_directory_with_foreign_files() {
    let folder = tempfile::tempdir().unwrap();
    let project = folder.path().join("p");
    fs::create_dir_all(project.join(".git")).unwrap();
    fs::create_dir(project.join("src")).unwrap();
    fs::write(project.join("config.json"), "{}").unwrap();
    fs::write(project.join("src/a"), "x").unwrap();
    let path = project.to_str().unwrap();
    let words = [path, ".git, src, which is not part of a checkpoint"];
    run(&["convert", "demo", path, "--format", "mlx4", "--force"]).failed(1, &words);
    assert!(project.join(".git").exists());
    assert_eq!(fs::read_to_string(project.join("src/a")).unwrap(), "x");
    let thesis = folder.path().join("thesis.txt");
    fs::write(&thesis, "kept").unwrap();
    let path = thesis.to_str().unwrap();
    run(&["convert", "demo", path, "--format", "mlx4", "--force"]).failed(1, &[path, "is a file"]);
    run(&["run", "demo", "2 + 2", "-n", "1", "--save-state", path]).failed(1, &[path, "is not a state file"]);
    assert_eq!(fs::read_to_string(&thesis).unwrap(), "kept");
}

#[test]
fn inspect_shows_metadata_of_unsupported_models() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    let model = path.to_str().unwrap();
    run(&["synth", "tiny:f16", model]).done();
    let text = fs::read_to_string(path.join("config.json")).unwrap();
    for (change, reason) in [
        (
            r#""model_type": "gpt_neox""#,
            "architecture \"gpt_neox\" is not supported",
        ),
        (
            r#""model_type": "qwen3", "attn_logit_softcapping": 50.0"#,
            "attn_logit_softcapping 50.0 is not supported",
        ),
    ] {
        fs::write(
            path.join("config.json"),
            text.replace(r#""model_type": "qwen3""#, change),
        )
        .unwrap();
        let shown = run(&["inspect", model, "--all"]);
        assert_eq!(shown.code, Some(1), "{shown:?}");
        assert!(shown.stderr.contains(reason), "{shown:?}");
        for word in [
            "architecture",
            "hidden_size",
            "model.layers.0.mlp.down_proj.weight",
            "F16",
        ] {
            assert!(shown.stdout.contains(word), "no {word} in {shown:?}");
        }
        let shown = run(&["inspect", model, "--json"]);
        let json: serde_json::Value = serde_json::from_str(&shown.stdout).unwrap();
        assert!(json["error"].as_str().unwrap().contains(reason), "{json}");
        assert!(json["tensors"].as_array().unwrap().len() > 10);
    }
}
