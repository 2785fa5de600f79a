//! Cached prefixes that outlive the server.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};

use super::Server;
use crate::support::{refrain, run};

/// Returns the files of pages.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .filter(|path| path.extension().is_some_and(|ending| ending == "page"))
        .collect()
}

/// Answers a long prompt; returns the text, and how many tokens of the prompt were cached.
fn ask(server: &Server) -> (Value, u64) {
    let prompt = "The sum of 12 and 30 is 42. ".repeat(20);
    let body = json!({"prompt": prompt, "max_tokens": 8, "temperature": 0});
    let (status, answer) = server.post("/v1/completions", &body);
    assert_eq!(status, 200, "{answer}");
    let cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
    let tokens = answer["usage"]["prompt_tokens"].as_u64().unwrap();
    assert!(tokens > 150, "{answer}");
    (answer["choices"][0]["text"].clone(), cached.unwrap_or(0))
}

#[test]
fn prefixes_on_disk_survive_the_end_of_the_server_and_its_death() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("prefixes");
    let options = ["--prefix-cache-dir", directory.to_str().unwrap()];
    let first = Server::start(&options);
    let (text, cached) = ask(&first);
    assert_eq!(cached, 0);
    assert_eq!(first.end("-TERM"), Some(0));
    let stored = files(&directory).len();
    assert!(stored > 1, "{stored}");
    assert!(refrain_formats::is_private(&directory) && refrain_formats::is_private(&files(&directory)[0]));

    let second = Server::start(&options);
    let (again, cached) = ask(&second);
    assert_eq!(
        (&again, cached > 0 && cached.is_multiple_of(64)),
        (&text, true),
        "{cached}"
    );
    drop(second);

    // A server that is killed has written while it was idle.
    fs::remove_dir_all(&directory).unwrap();
    let third = Server::start(&options);
    ask(&third);
    refrain_testing::wait_until("the pages are written", || files(&directory).len() == stored);
    drop(third);
    assert_eq!(ask(&Server::start(&options)), (text, cached));
}

#[test]
fn damaged_prefixes_are_reported_and_computed_again() {
    let folder = tempfile::tempdir().unwrap();
    let options = ["--prefix-cache-dir", folder.path().to_str().unwrap()];
    let first = Server::start(&options);
    let (text, _) = ask(&first);
    assert_eq!(first.end("-TERM"), Some(0));
    let stored = files(folder.path());
    assert!(!stored.is_empty());
    for path in stored {
        fs::write(path, "no page").unwrap();
    }
    let mut second = refrain(&[&["serve", "demo", "--device", "cpu", "--port", "0"], &options[..]].concat());
    second.stderr(Stdio::piped());
    let mut second = Server::of(second);
    let mut log = second.child.stderr.take().expect("piped");
    assert_eq!(ask(&second), (text, 0));
    drop(second);
    let mut lines = String::new();
    log.read_to_string(&mut lines).unwrap();
    let warning = lines.lines().find(|line| line.starts_with("warning:")).expect(&lines);
    assert!(
        warning.contains("removed a damaged file of the prefix cache"),
        "{warning}"
    );
}

#[test]
fn a_directory_that_cannot_be_written_to_is_refused_at_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let directory = file.join("prefixes");
    let options = ["--prefix-cache-dir", directory.to_str().unwrap()];
    let refused = run(&[&["serve", "demo", "--device", "cpu", "--port", "0"], &options[..]].concat());
    assert!(refused.stderr.contains("cannot write"), "{}", refused.stderr);
    let refused = run(&["serve", "demo", options[0], options[1], "--no-prefix-cache"]);
    assert!(refused.stderr.contains("cannot be used with"), "{}", refused.stderr);
}
