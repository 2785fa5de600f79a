//! A family outside this crate works through the public API: opened from a directory and from GGUF, converted both
//! ways, created with random weights, and run.

mod family;

use std::ops::ControlFlow;
use std::path::Path;

use refrain::Device;
use refrain_formats::CheckpointFiles;
use refrain_models::{Batch, Checkpoint, Family, Pages, SyntheticSpec};
use refrain_write::convert::{ConvertOptions, Recipe, convert};
use refrain_write::synthetic;

use family::BIGRAM;

const FAMILIES: &[&Family] = &[&BIGRAM];

fn open(path: &Path) -> Checkpoint {
    Checkpoint::read(CheckpointFiles::open(path).unwrap(), FAMILIES).unwrap()
}

/// Logits for each of `tokens`.
fn logits(checkpoint: &Checkpoint, tokens: &[u32]) -> Vec<f32> {
    let device = Device::cpu();
    let decoder = refrain_models::load(checkpoint, checkpoint.config(), &device, &|_| {}).unwrap();
    let pages = Pages {
        size: 16,
        per_sequence: 1,
        context: 16,
    };
    let batch = Batch::of_sequence(&device, tokens, 0, pages);
    let mut states = decoder
        .new_states(refrain_models::CacheTypes::of_device(&device), pages, 1)
        .unwrap();
    decoder.forward(&batch, &mut states).to_vec::<f32>().unwrap()
}

#[test]
fn external_family_is_created_opened_converted_and_run() {
    let folder = tempfile::tempdir().unwrap();
    let spec = SyntheticSpec::parse("tiny-bigram:f16", FAMILIES).unwrap();
    let made = Checkpoint::from_spec(&spec);
    let directory = folder.path().join("bigram");
    synthetic::write_spec(&spec, &directory, &|_| ControlFlow::Continue(())).unwrap();
    let options = ConvertOptions {
        recipe: Recipe::F16,
        name: "bigram",
        replace: false,
        progress: &|_| ControlFlow::Continue(()),
    };
    let read = open(&directory);
    let (gguf, back) = (folder.path().join("bigram.gguf"), folder.path().join("back"));
    convert(&read, &gguf, &options).unwrap();
    convert(&open(&gguf), &back, &options).unwrap();

    let tokens = [7, 3, 7, 99];
    let expected = logits(&made, &tokens);
    assert_eq!(expected.len(), 400);
    assert!(expected.iter().all(|logit| logit.is_finite()));
    assert!(expected[..100] == expected[200..300] && expected[..100] != expected[100..200]);
    for checkpoint in [read, open(&gguf), open(&back)] {
        assert_eq!(*checkpoint.config().family, BIGRAM);
        assert!(checkpoint.config() == made.config(), "{:?}", checkpoint.config());
        assert!(logits(&checkpoint, &tokens) == expected, "{}", checkpoint.name());
    }
}

#[test]
fn only_the_given_families_are_found() {
    let files = [("config.json", br#"{"model_type": "llama"}"#.to_vec())];
    let files = CheckpointFiles::from_files(files).unwrap();
    let message = Checkpoint::read(files, FAMILIES).unwrap_err().to_string();
    assert!(
        message.contains("\"llama\" is not supported (supported: bigram)"),
        "{message}"
    );
}
