//! The README, the architecture and the release build.

use std::fs;

use super::root;

#[test]
fn the_readme_begins_with_one_command_to_run_and_one_to_test() {
    let readme = fs::read_to_string(root().join("README.md")).expect("a README");
    let blocks: Vec<Vec<&str>> = readme
        .split("```sh\n")
        .skip(1)
        .map(|block| block.split("```").next().unwrap_or("").lines().collect())
        .collect();
    let [run, test, ..] = &blocks[..] else {
        panic!("the README needs two sh blocks")
    };
    let one_answer = |line: &str| line.starts_with("cargo run --release -- run demo \"");
    assert!(
        run.len() == 1 && one_answer(run[0]),
        "one line that can be pasted: {run:?}"
    );
    assert_eq!(test[..], ["ci/test"], "one line that passes the tests");
}

#[test]
fn the_readme_and_the_architecture_are_short() {
    let read = |name: &str| fs::read_to_string(root().join(name)).expect("a document");
    let (readme, architecture) = (read("README.md"), read("ARCHITECTURE.md"));
    let lines = readme.lines().count();
    assert!(lines <= 150, "README.md has {lines} lines");
    let letters = architecture.chars().count();
    assert!(letters <= 15_000, "ARCHITECTURE.md has {letters} characters");
    for (name, text) in [("README.md", readme), ("ARCHITECTURE.md", architecture)] {
        let long = text.lines().enumerate().filter(|(_, line)| line.chars().count() > 120);
        let long: Vec<usize> = long.map(|(number, _)| number + 1).collect();
        assert!(long.is_empty(), "{name}: lines over 120 characters: {long:?}");
    }
}

#[test]
fn the_release_build_is_optimised_for_users() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("a manifest");
    let release = manifest
        .split("\n[profile.release]\n")
        .nth(1)
        .expect("a release profile");
    let settings: Vec<&str> = release.split("\n[").next().unwrap_or("").lines().collect();
    for setting in ["opt-level = 3", "panic = \"unwind\""] {
        assert!(settings.contains(&setting), "{setting} is missing in {settings:?}");
    }
    assert!(
        !manifest.contains("[profile.release."),
        "a crate has other settings than the rest of the release build"
    );
    // The README's first command and the package are one build: the same profile, the same features.
    let built = |file: &str, start: &str| -> String {
        let text = fs::read_to_string(root().join(file)).expect("a file");
        let line = text.lines().find(|line| line.starts_with(start));
        line.unwrap_or_else(|| panic!("{file}: no line begins with {start:?}"))
            .to_owned()
    };
    for command in [built("ci/package", "cargo rustc "), built("README.md", "cargo run ")] {
        assert!(command.contains(" --release"), "{command}");
        for other in ["--profile", "--features", "--no-default-features", "--config"] {
            assert!(!command.contains(other), "{command}");
        }
    }
}
