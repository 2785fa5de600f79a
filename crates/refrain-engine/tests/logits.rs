//! Logits of every reference checkpoint, and hidden states of some, compared with transformers.

mod common;

use std::path::{Path, PathBuf};

use common::{TestGpu, engine, relative_l2};
use refrain_engine::{Device, Engine, EngineEvent, EngineRequest, LoadOptions, Model};
use refrain_models::Checkpoint;
use refrain_testing::sample;
use safetensors::SafeTensors;

/// Returns the checkpoints of the repository, or of the directory in `REFRAIN_CHECKPOINTS`.
fn fixtures(is_selected: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let (root, is_of_repository) = match std::env::var_os("REFRAIN_CHECKPOINTS") {
        Some(root) => (PathBuf::from(root), false),
        None => (Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures"), true),
    };
    let mut found: Vec<PathBuf> = std::fs::read_dir(root)
        .expect("fixtures are in the repository")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.join("logits.safetensors").exists())
        .filter(|path| is_selected(&path.file_name().expect("a name").to_string_lossy()))
        .collect();
    found.sort();
    assert!(!found.is_empty(), "no checkpoint with logits found");
    if is_of_repository { sample(found, 10) } else { found }
}

fn open(fixture: &Path) -> Checkpoint {
    let gguf = fixture.join("model.gguf");
    let path = if gguf.exists() { gguf } else { fixture.to_owned() };
    Checkpoint::open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn expected(fixture: &Path) -> (Vec<Vec<u32>>, Vec<f32>) {
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(fixture.join("tokens.json")).expect("tokens")).expect("JSON");
    let ids = serde_json::from_value(json["input_ids"].clone()).expect("rows of ids");
    let bytes = std::fs::read(fixture.join("logits.safetensors")).expect("logits");
    let file = SafeTensors::deserialize(&bytes).expect("safetensors");
    let data = file.tensor("logits").expect("logits").data();
    (ids, bytemuck::allocation::pod_collect_to_vec(data))
}

/// Compares checkpoints; prompts are cut into chunks of `chunk` tokens.
fn check(fixtures: &[PathBuf], device: &Device, chunk: usize, bound: f64) {
    let mut failed = Vec::new();
    for fixture in fixtures {
        let model = Model::load(&open(fixture), device, &LoadOptions::default()).expect("loads");
        let (rows, reference) = expected(fixture);
        let engine = engine(&model, rows.iter().map(Vec::len).max().expect("rows"), chunk);
        let logits: Vec<f32> = rows
            .iter()
            .flat_map(|row| engine.logits(row, 0).expect("computes"))
            .collect();
        let error = relative_l2(&logits, &reference);
        let name = fixture.file_name().expect("a name").to_string_lossy().into_owned();
        println!("{name}: {error:.2e}");
        if error.is_nan() || error > bound {
            failed.push(format!("{name} on {}: {error:.2e} > {bound:.0e}", device.name()));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn cpu_agrees_with_transformers() {
    check(&fixtures(|_| true), &Device::cpu(), 512, 1e-4);
}

#[test]
fn cpu_agrees_with_transformers_in_small_chunks() {
    check(&fixtures(|_| true), &Device::cpu(), 7, 1e-4);
}

#[test]
fn vulkan_agrees_with_transformers() {
    let gpu = TestGpu::open();
    check(&fixtures(|_| true), &gpu.device, 512, 5e-3);
    gpu.assert_silent();
}

#[test]
fn vulkan_agrees_with_transformers_in_small_chunks() {
    if !refrain_testing::drawn(12) {
        return;
    }
    let gpu = TestGpu::open();
    // Each family in its training precision, and each format of one family: a software driver compiles the rest for
    // half a minute.
    let is_selected = |name: &str| name.starts_with("qwen3-") || !(name.contains("-gguf-") || name.contains("-mlx"));
    check(&fixtures(is_selected), &gpu.device, 5, 5e-3);
    gpu.assert_silent();
}

/// Compares embeddings: hidden states after the last norm. Texts are cut into chunks of `chunk` tokens.
fn check_hidden(device: &Device, chunk: usize, bound: f64) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    let bytes = std::fs::read(root.join("hidden_states.safetensors")).expect("hidden states");
    let file = SafeTensors::deserialize(&bytes).expect("safetensors");
    let mut tensors = file.tensors();
    tensors.sort_by(|(a, _), (b, _)| a.cmp(b));
    for (name, tensor) in sample(tensors, 6) {
        let fixture = root.join(&name);
        let model = Model::load(&open(&fixture), device, &LoadOptions::default()).expect("loads");
        let row = &expected(&fixture).0[0];
        let reference: Vec<f32> = bytemuck::allocation::pod_collect_to_vec(tensor.data());
        let engine = engine(&model, row.len(), chunk);
        let width = model.config().hidden_size;
        for tokens in [1, row.len() / 2, row.len()] {
            let expected = &reference[(tokens - 1) * width..tokens * width];
            let error = relative_l2(&embedding(&engine, &row[..tokens]), expected);
            println!("{name}, {tokens} tokens: {error:.2e}");
            assert!(error <= bound, "{name} on {}: {error:.2e} > {bound:.0e}", device.name());
        }
    }
}

fn embedding(engine: &Engine, text: &[u32]) -> Vec<f32> {
    let (sender, events) = std::sync::mpsc::channel();
    let request = EngineRequest::embedding(text.to_vec());
    let _ticket = engine.submit(request, Box::new(move |event| drop(sender.send(event))));
    match events.recv().expect("the engine answers") {
        EngineEvent::Embedding(hidden) => hidden,
        other => panic!("{other:?}"),
    }
}

#[test]
fn hidden_states_agree_with_transformers() {
    check_hidden(&Device::cpu(), 512, 1e-4);
    check_hidden(&Device::cpu(), 5, 1e-4);
}

#[test]
fn vulkan_hidden_states_agree_with_transformers() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let gpu = TestGpu::open();
    check_hidden(&gpu.device, 512, 5e-3);
    gpu.assert_silent();
}
