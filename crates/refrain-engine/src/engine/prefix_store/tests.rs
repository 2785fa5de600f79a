use std::fs;
use std::path::{Path, PathBuf};

use refrain_formats::{Encoding, is_private};
use refrain_testing::wait_until;

use super::*;

const KEY: SnapshotKey = SnapshotKey {
    model: 1,
    rotation: 2,
    cache: Encoding::F16,
};

/// Warnings of all tests.
static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn warn(why: &str) {
    lock(&WARNINGS).push(why.to_owned());
}

/// Returns the warnings that name a path.
fn warnings_about(path: &Path) -> Vec<String> {
    let path = path.display().to_string();
    let warnings = lock(&WARNINGS);
    warnings.iter().filter(|why| why.contains(&path)).cloned().collect()
}

fn open(directory: &Path) -> PrefixStore {
    let options = PrefixStoreOptions {
        directory: directory.to_owned(),
        max_bytes: 1 << 20,
        warn,
    };
    PrefixStore::open(&options, KEY).expect("opens")
}

fn planes(byte: u8) -> Vec<Plane> {
    vec![Plane {
        encoding: Encoding::F32,
        row: vec![1],
        bytes: vec![byte; 4],
    }]
}

/// Stores pages and states at the ends of prefixes of `tokens`.
fn fill(directory: &Path, tokens: &[u32], pages: &[usize], states: &[usize]) {
    let mut store = open(directory);
    for (ends, is_states) in [(pages, false), (states, true)] {
        for &end in ends {
            let tokens = &tokens[..end * PAGE_SIZE];
            let name = store.missing(tokens, is_states).expect("missing");
            store.write(name, tokens, planes(end as u8));
            assert_eq!(store.missing(tokens, is_states), None);
        }
    }
    assert!(store.close(Duration::from_secs(60)));
}

/// Returns the files found as (pages, whether they are states).
fn found(store: &PrefixStore, tokens: &[u32], known: [usize; 2], is_recurrent: bool) -> Vec<(usize, bool)> {
    let [known, usable] = known.map(|pages| pages * PAGE_SIZE);
    let found = store.find(tokens, (known, usable), is_recurrent);
    found
        .iter()
        .map(|file| (file.tokens / PAGE_SIZE, file.is_states()))
        .collect()
}

#[test]
fn finds_what_continues_a_prefix() {
    let folder = tempfile::tempdir().expect("a folder");
    let tokens: Vec<u32> = (0..6 * PAGE_SIZE as u32 + 5).collect();
    fill(folder.path(), &tokens, &[1, 2, 3, 5], &[2]);
    let store = open(folder.path());
    let page = |number| (number, false);
    assert_eq!(found(&store, &tokens, [0, 0], false), [1, 2, 3].map(page));
    assert_eq!(found(&store, &tokens, [1, 1], false), [2, 3].map(page));
    assert_eq!(found(&store, &tokens, [4, 4], false), [page(5)]);
    assert_eq!(found(&store, &tokens[..150], [0, 0], false), [1, 2].map(page));
    assert!(found(&store, &tokens[1..], [0, 0], false).is_empty());
    assert_eq!(found(&store, &tokens, [0, 0], true), [page(1), page(2), (2, true)]);
    assert_eq!(
        found(&store, &tokens, [3, 1], true),
        [(2, true)],
        "the pages are cached"
    );
    assert!(found(&store, &tokens, [2, 2], true).is_empty());
    let files = store.find(&tokens, (0, 0), true);
    let read = store.read(files, &tokens, None, Instant::now());
    let received: Vec<Vec<Plane>> = read.planes.iter().collect();
    assert_eq!(received, [1, 2, 2].map(planes));
}

/// Stores two pages; returns their tokens and paths.
fn two_pages(directory: &Path) -> (Vec<u32>, [PathBuf; 2]) {
    let tokens: Vec<u32> = (0..2 * PAGE_SIZE as u32).collect();
    fill(directory, &tokens, &[1, 2], &[]);
    let files = open(directory).find(&tokens, (0, 0), false);
    let paths = [0, 1].map(|page| directory.join(files[page].name.to_string()));
    (tokens, paths)
}

#[test]
fn damaged_files_are_removed_and_reported() {
    let damages: [fn(&Path, &Path); 3] = [
        |first, other| {
            fs::copy(other, first).expect("a file of other tokens");
        },
        |first, _| {
            let file = fs::File::options().write(true).open(first).expect("opens");
            file.set_len(70).expect("a truncated file");
        },
        |first, _| fs::write(first, "a file of another program").expect("writes"),
    ];
    for damage in damages {
        let folder = tempfile::tempdir().expect("a folder");
        let (tokens, [first, second]) = two_pages(folder.path());
        damage(&first, &second);
        let store = open(folder.path());
        let files = store.find(&tokens, (0, 0), false);
        let read = store.read(files, &tokens, None, Instant::now());
        assert_eq!(read.planes.iter().count(), 0);
        assert!(
            found(&store, &tokens, [0, 0], false).is_empty(),
            "it is not tried again"
        );
        assert!(!first.exists() && second.exists());
        let warnings = warnings_about(&first);
        assert!(
            matches!(&warnings[..], [why] if why.contains("removed a damaged file")),
            "{warnings:?}"
        );
    }
}

#[test]
fn a_killed_process_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    // Half a file, under the name that it has until it is complete.
    fs::write(at(".refrain-a.partial"), [1; 1000]).expect("writes");
    fs::write(at("notes.txt"), "kept").expect("writes");
    let (tokens, paths) = two_pages(folder.path());
    assert_eq!(found(&open(folder.path()), &tokens, [0, 0], false).len(), 2);
    let mut left: Vec<_> = fs::read_dir(folder.path())
        .expect("a directory")
        .map(|entry| entry.expect("a file").path())
        .collect();
    left.sort();
    let mut expected = [&paths[..], &[at("notes.txt")]].concat();
    expected.sort();
    assert_eq!(left, expected);
    assert_eq!(warnings_about(folder.path()), [""; 0]);
}

#[test]
fn only_the_owner_can_read_prefixes() {
    let folder = tempfile::tempdir().expect("a folder");
    let directory = folder.path().join("cache/prefixes");
    let options = PrefixStoreOptions {
        directory: directory.clone(),
        max_bytes: 1 << 20,
        warn,
    };
    options.create_directory().expect("creates");
    let (_, paths) = two_pages(&directory);
    assert!(is_private(&directory) && paths.iter().all(|path| is_private(path)));
}

#[test]
fn failing_writes_are_reported_once_until_one_succeeds() {
    let folder = tempfile::tempdir().expect("a folder");
    let directory = folder.path().join("prefixes");
    let store = open(&directory);
    fs::remove_dir(&directory).expect("removes");
    let tokens: Vec<u32> = (0..3 * PAGE_SIZE as u32).collect();
    let write = |pages: usize| {
        let tokens = &tokens[..pages * PAGE_SIZE];
        let name = store.missing(tokens, false).expect("missing");
        store.write(name, tokens, planes(1));
        wait_until("a file is written", || store.queued.load(Ordering::Relaxed) == 0);
        store.missing(tokens, false).is_none()
    };
    assert!(!write(1) && !write(2) && !write(3), "there is no directory");
    assert_eq!(warnings_about(&directory).len(), 1);
    fs::create_dir(&directory).expect("creates");
    assert!(write(1) && write(2));
    fs::remove_dir_all(&directory).expect("removes");
    assert!(!write(3));
    assert_eq!(warnings_about(&directory).len(), 2);
}

#[test]
fn a_directory_that_cannot_be_written_to_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    fs::write(&path, "a file").expect("writes");
    let options = PrefixStoreOptions {
        directory: path.join("prefixes"),
        max_bytes: 1,
        warn,
    };
    let error = options.create_directory().expect_err("fails").to_string();
    assert!(error.contains("prefixes"), "{error}");
    assert!(error.contains("cannot write"), "{error}");
}
