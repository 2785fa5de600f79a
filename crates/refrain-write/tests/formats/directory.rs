//! Paths without a checkpoint, and which files of a directory are read.

use refrain_models::Checkpoint;
use safetensors::tensor::Dtype;
use serde_json::json;

use crate::support::{config, message, open, safetensors};

#[test]
fn reports_what_a_path_without_checkpoint_lacks() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let at = |name: &str| path.join(name);
    std::fs::write(at("empty.gguf"), "").unwrap();
    std::fs::write(at("text.txt"), "hello").unwrap();
    std::fs::write(at("text.gguf"), "hello").unwrap();
    let other = tempfile::tempdir().unwrap();
    let cases = [
        (at("nowhere"), "cannot read "),
        (other.path().to_owned(), "there is no config.json"),
        (
            path.to_owned(),
            "holds 2 GGUF models: name one of empty.gguf, text.gguf",
        ),
        (at("empty.gguf"), "empty.gguf: is empty"),
        (
            at("text.txt"),
            "text.txt: is neither a directory with config.json and safetensors files nor",
        ),
        (
            at("text.gguf"),
            "text.gguf: is not a GGUF file: its first four bytes are not",
        ),
    ];
    for (path, expected) in cases {
        let found = message(Checkpoint::open(&path));
        assert!(found.contains(expected), "{found:?} lacks {expected:?}");
    }
}

#[test]
fn prefers_a_single_weight_file_to_an_index() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(directory.path().join(name), bytes).unwrap();
    };
    let weights = |name| safetensors(&[(name, Dtype::U8, vec![1], vec![0])]);
    write("config.json", config(json!({})).as_bytes());
    write("adapter.safetensors", &weights("other"));
    write(".hidden.safetensors", b"broken");
    let names = || -> Vec<String> {
        let checkpoint = Checkpoint::open(directory.path()).unwrap();
        checkpoint.tensors().map(|info| info.name.clone()).collect()
    };
    assert_eq!(names(), ["other"]);
    write("model.safetensors", &weights("whole"));
    assert_eq!(names(), ["whole"]);
    write(
        "model.safetensors.index.json",
        br#"{"weight_map": {"x": "gone.safetensors"}}"#,
    );
    assert_eq!(names(), ["whole"]);
    std::fs::remove_file(directory.path().join("model.safetensors")).unwrap();
    let found = message(Checkpoint::open(directory.path()));
    assert!(found.contains("gone.safetensors: is missing"), "{found}");
}

#[test]
fn heads_that_differ_from_the_embedding_are_not_tied() {
    let rows = 4096;
    let tied = |tied: bool, names: &[&'static str], changed_row: Option<usize>| {
        let matrix = |number: usize| {
            let mut values = vec![1u8; rows * 2];
            if let Some(row) = changed_row.filter(|_| number > 0) {
                values[row * 2] = 2;
            }
            values
        };
        let named = names.iter().enumerate();
        let tensors: Vec<_> = named
            .map(|(number, name)| (*name, Dtype::BF16, vec![rows, 1], matrix(number)))
            .collect();
        let config = config(json!({"vocab_size": rows, "tie_word_embeddings": tied}));
        let files = [
            ("config.json", config.into_bytes()),
            ("model.safetensors", safetensors(&tensors)),
        ];
        open(&files).unwrap().config().tie_word_embeddings
    };
    let both = ["model.embed_tokens.weight", "lm_head.weight"];
    assert!(tied(true, &both, None));
    assert!(tied(true, &both[..1], None));
    assert!(!tied(true, &both, Some(rows - 1)));
    assert!(!tied(false, &both, None));
}

/// Runs `work`; fails if it hangs.
#[cfg(unix)]
fn with_hang_guard<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    receiver
        .recv_timeout(std::time::Duration::from_secs(120))
        .expect("it hangs")
}

#[test]
#[cfg(unix)]
fn rejects_pipes_without_waiting() {
    let files = [
        ("config.json", config(json!({})).into_bytes()),
        ("generation_config.json", b"{}".to_vec()),
        ("tokenizer.json", b"{}".to_vec()),
        ("model.safetensors", safetensors(&[])),
        ("model.safetensors.index.json", br#"{"weight_map": {}}"#.to_vec()),
    ];
    for (piped, _) in &files {
        let directory = tempfile::tempdir().unwrap();
        for (name, bytes) in &files {
            let path = directory.path().join(name);
            let taken = *piped == "model.safetensors.index.json" && *name == "model.safetensors";
            if name == piped {
                let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
                assert!(made.success());
            } else if !taken {
                std::fs::write(path, bytes).unwrap();
            }
        }
        let path = directory.path().to_owned();
        let failure = with_hang_guard(move || {
            let checkpoint = Checkpoint::open(&path)?;
            checkpoint.tokenizer()?;
            Ok::<_, refrain_formats::Error>(())
        });
        let found = message(failure);
        assert!(
            found.contains(piped) && found.contains("not a regular file"),
            "{piped}: {found}"
        );
    }
    let directory = tempfile::tempdir().unwrap();
    let gguf = directory.path().join("x.gguf");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&gguf)
            .status()
            .unwrap()
            .success()
    );
    for path in [gguf, directory.path().to_owned()] {
        let found = message(with_hang_guard(move || Checkpoint::open(&path)));
        assert!(found.contains("not a regular file"), "{found}");
    }
}

/// Returns the bytes that this thread has read so far; 0 where the system does not count them.
#[cfg(unix)]
fn bytes_read() -> u64 {
    let counters = std::fs::read_to_string("/proc/thread-self/io").unwrap_or_default();
    let read = counters.lines().find_map(|line| line.strip_prefix("rchar: "));
    read.map_or(0, |bytes| bytes.parse().unwrap())
}

#[test]
#[cfg(unix)]
fn rejects_huge_json_files_unread() {
    for huge in ["config.json", "generation_config.json", "model.safetensors.index.json"] {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("config.json"), config(json!({}))).unwrap();
        let file = std::fs::File::create(directory.path().join(huge)).unwrap();
        file.set_len(4 << 30).unwrap();
        let read_before = bytes_read();
        let found = message(Checkpoint::open(directory.path()));
        assert!(
            found.contains(huge) && found.contains("is 4294967296 bytes long, more than the limit of 100000000"),
            "{found}"
        );
        let read = bytes_read() - read_before;
        assert!(read < 1 << 20, "{huge}: {read} bytes were read");
    }
}
