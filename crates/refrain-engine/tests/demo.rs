//! The demo model: executors agree on a story of more than 200 tokens, given the same tokens.

mod common;

use std::path::Path;

use common::{TestGpu, engine, relative_l2};
use refrain_engine::{Device, LoadOptions, Model};
use refrain_models::Checkpoint;

fn story_logits(device: &Device, chunk: usize) -> Vec<f32> {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo");
    let checkpoint = Checkpoint::open(&demo.join("model")).expect("the demo model is in the repository");
    let story = std::fs::read_to_string(demo.join("story.txt")).expect("the story is in the repository");
    let tokens = checkpoint
        .tokenizer()
        .expect("a tokenizer")
        .encode(&story, true)
        .expect("tokens");
    assert!(tokens.len() > 200, "only {} tokens", tokens.len());
    let model = Model::load(&checkpoint, device, &LoadOptions::default()).expect("loads");
    engine(&model, tokens.len(), chunk)
        .logits(&tokens, 0)
        .expect("computes")
}

#[test]
fn executors_agree_on_a_story() {
    let gpu = TestGpu::open();
    let reference = story_logits(&Device::cpu(), 512);
    let error = relative_l2(&story_logits(&gpu.device, 512), &reference);
    assert!(error <= 5e-3, "Vulkan and CPU differ by {error:.2e}");
    gpu.assert_silent();
}

#[test]
fn single_tokens_agree_with_chunks() {
    let cpu = Device::cpu();
    let error = relative_l2(&story_logits(&cpu, 1), &story_logits(&cpu, 512));
    assert!(error <= 1e-5, "decoding and prefill differ by {error:.2e}");
}
