//! Prefixes on disk, on a model of a device.

use std::fs;
use std::path::Path;

use refrain_formats::{Encoding, SnapshotKey};

use super::*;
use crate::engine::prefix_store::{PrefixStore, PrefixStoreOptions};

/// Opens a store of the prefixes of a model, of so many bytes at most.
pub fn store(directory: &Path, (model, max_bytes): (u128, u64)) -> PrefixStore {
    let key = SnapshotKey {
        model,
        rotation: 1,
        cache: Encoding::F16,
    };
    let options = PrefixStoreOptions {
        directory: directory.to_owned(),
        max_bytes,
        warn: |_| {},
    };
    PrefixStore::open(&options, key).expect("opens")
}

/// An engine's life: a batch with a store in `directory` computes texts after these prompts, and is closed. Returns the
/// tokens of prompts that it computed.
fn live(directory: &Path, (model, max_bytes): (u128, u64), prompts: &[Vec<u32>], checkpoints: Option<usize>) -> usize {
    let (runner, options) = card_with(4, 4096, 4 * 4096, checkpoints);
    let mut batcher = Batcher::with_runner(runner, &options);
    batcher.keep_prefixes_in(store(directory, (model, max_bytes)));
    let request = |(prompt, number): (&Vec<u32>, u64)| TestRequest {
        number,
        prompt: prompt.clone(),
        tokens: 100,
        ..TestRequest::default()
    };
    let requests = prompts.iter().zip(0..).map(request);
    let submitted: Vec<Submitted> = requests.map(|request| submit(&mut batcher, request)).collect();
    while !batcher.is_idle() {
        step(&mut batcher);
    }
    submitted
        .iter()
        .for_each(|submitted| submitted.check(checkpoints.is_some(), "with a store"));
    assert_eq!(batcher.pool.available(), batcher.pool.count(), "pages are left");
    batcher.close();
    batcher.runner.prefilled
}

fn bytes_in(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).expect("a directory");
    entries
        .map(|entry| entry.expect("a file").metadata().expect("there").len())
        .sum()
}

#[test]
fn prefixes_outlive_the_batch() {
    for checkpoints in [None, Some(9)] {
        let folder = tempfile::tempdir().expect("a folder");
        let store = (1, 1 << 30);
        let first = numbered(1, 1000);
        assert_eq!(
            live(folder.path(), store, std::slice::from_ref(&first), checkpoints),
            999
        );
        // Another request shares 640 tokens; a hybrid knows no states there.
        let other = [&first[..640], &numbered(3, 100)].concat();
        let again = [first.clone(), other.clone()];
        let expected = 39 + if checkpoints.is_some() { 739 } else { 99 };
        assert_eq!(live(folder.path(), store, &again, checkpoints), expected);
        // By now it does.
        assert_eq!(
            live(folder.path(), store, &[other], checkpoints),
            739 % 64,
            "{checkpoints:?}"
        );
        // The next turn of the conversation: the text of the first turn is there too.
        let request = TestRequest {
            prompt: first.clone(),
            tokens: 100,
            ..TestRequest::default()
        };
        let text = [first, expected_tokens(&request, checkpoints.is_some()), numbered(9, 30)].concat();
        assert_eq!(live(folder.path(), store, &[text], checkpoints), 1129 - 1088);
    }
}

fn expected_tokens(request: &TestRequest, is_recurrent: bool) -> Vec<u32> {
    expected(request, is_recurrent).0
}

#[test]
fn a_step_reads_few_files_while_texts_are_decoded() {
    let folder = tempfile::tempdir().expect("a folder");
    let prompts: Vec<Vec<u32>> = (0..6).map(|number| numbered(number, 640)).collect();
    live(folder.path(), (1, 1 << 30), &prompts, None);
    let (runner, options) = card_with(8, 4096, 8 * 4096, None);
    let mut batcher = Batcher::with_runner(runner, &options);
    batcher.keep_prefixes_in(store(folder.path(), (1, 1 << 30)));
    let request = |(prompt, number), tokens| TestRequest {
        number,
        prompt,
        tokens,
        ..TestRequest::default()
    };
    let running = submit(&mut batcher, request((numbered(9, 3), 9), 4000));
    step(&mut batcher);
    let waiting = prompts.into_iter().zip(0..).map(|prompt| request(prompt, 2));
    let waiting: Vec<Submitted> = waiting.map(|request| submit(&mut batcher, request)).collect();
    while !batcher.is_idle() {
        let before = batcher.runner.pages_written;
        let decodes = batcher.running().next().is_some();
        step(&mut batcher);
        let read = batcher.runner.pages_written - before;
        assert!(!decodes || read <= 2, "{read}");
    }
    assert_eq!(batcher.runner.pages_written, 6 * 9);
    assert!(batcher.runner.prefilled <= 6 * 63 + 3, "{}", batcher.runner.prefilled);
    let all = waiting.iter().chain([&running]);
    all.for_each(|submitted| submitted.check(false, "with a store"));
}

#[test]
fn prefixes_of_other_models_are_not_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let prompt = [numbered(1, 300)];
    assert_eq!(live(folder.path(), (1, 1 << 30), &prompt, None), 299);
    assert_eq!(live(folder.path(), (2, 1 << 30), &prompt, None), 299);
    assert_eq!(live(folder.path(), (1, 1 << 30), &prompt, None), 299 % 64);
}

#[test]
fn damaged_and_missing_files_are_computed_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = (1, 1 << 30);
    let prompt = [numbered(1, 641)];
    assert_eq!(live(folder.path(), store, &prompt, None), 640);
    let mut paths: Vec<_> = fs::read_dir(folder.path())
        .expect("a directory")
        .map(|e| e.expect("a file").path())
        .collect();
    paths.sort();
    for (number, path) in paths.iter().enumerate() {
        let whole = fs::read(path).expect("readable");
        let mut damaged = whole.clone();
        match number % 3 {
            0 => damaged.truncate(whole.len() / 2),
            1 => damaged[whole.len() / 2] ^= 4,
            _ => damaged = fs::read(&paths[(number + 1) % paths.len()]).expect("another prefix"),
        }
        fs::write(path, damaged).expect("writes");
        let computed = live(folder.path(), store, &prompt, None);
        // The text has pages that the prompt does not need.
        assert!(computed.is_multiple_of(64) && computed <= 640, "{computed}");
        assert_eq!(live(folder.path(), store, &prompt, None), 0, "it was written again");
    }
}

#[test]
fn the_directory_stays_within_its_limit() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("notes.txt"), "kept").expect("writes");
    // The files of a text have 40 kB.
    let max_bytes = 100_000;
    for number in 0..6 {
        live(folder.path(), (1, max_bytes), &[numbered(number, 900)], None);
        let bytes = bytes_in(folder.path());
        assert!(
            bytes <= max_bytes + 4 && bytes > max_bytes / 3,
            "{bytes} of {max_bytes}"
        );
    }
    assert_eq!(live(folder.path(), (1, max_bytes), &[numbered(5, 900)], None), 899 % 64);
    assert!(folder.path().join("notes.txt").exists());
    // A limit that nothing fits into.
    assert_eq!(live(folder.path(), (1, 10), &[numbered(5, 900)], None), 899);
    assert_eq!(bytes_in(folder.path()), 4);
}
