//! Predictions of multi-token prediction heads, compared with transformers' layers.

mod common;

use std::path::Path;

use common::{TestGpu, relative_l2};
use refrain::Array;
use refrain_engine::Device;
use refrain_models::{Batch, CacheTypes, Checkpoint, Decoder, LayerState, Pages};
use refrain_testing::sample;
use safetensors::SafeTensors;

const PAGES: Pages = Pages {
    size: 64,
    per_sequence: 1,
    context: 64,
};

const FIXTURES: [&str; 4] = [
    "qwen3.5-mtp-f16",
    "qwen3.5-moe-mtp-bf16",
    "glm4-moe-mtp-bf16",
    "deepseek-v3-mtp-f16",
];

fn best(logits: &[f32]) -> u32 {
    let best = logits.iter().zip(0..).max_by(|(a, _), (b, _)| a.total_cmp(b));
    best.expect("logits").1
}

/// Returns the head's logits at all positions but the last, and those of two drafts behind the best last token.
fn predictions(decoder: &dyn Decoder, device: &Device, tokens: &[u32]) -> [Vec<f32>; 3] {
    let types = CacheTypes::of_device(device);
    let head = decoder.mtp_head().expect("a head");
    let mut states: Vec<LayerState> = decoder.new_states(types, PAGES, 1).expect("fits");
    let mut state = head.new_state(types, PAGES, 1).expect("fits");
    let count = tokens.len() - 1;
    let hidden = decoder.hidden(&Batch::of_sequence(device, &tokens[..count], 0, PAGES), &mut states);
    let mut outputs = head.hidden(&Batch::of_sequence(device, &tokens[1..], 0, PAGES), &hidden, &mut state);
    let logits = |outputs: &Array| {
        let logits = decoder.logits(outputs);
        refrain::eval(&[&logits, outputs]).expect("computes");
        logits.to_vec::<f32>().expect("computed")
    };
    let mut found = vec![logits(&outputs)];
    outputs = outputs.slice(0, count - 1, count);
    let vocabulary = found[0].len() / count;
    for position in count..count + 2 {
        let last = found.last().expect("one");
        let token = best(&last[last.len() - vocabulary..]);
        outputs = head.hidden(
            &Batch::of_sequence(device, &[token], position, PAGES),
            &outputs,
            &mut state,
        );
        found.push(logits(&outputs));
    }
    found.try_into().expect("three")
}

fn check(device: &Device, one_in: usize, bound: f64) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    for name in sample(FIXTURES, one_in) {
        let fixture = root.join(name);
        let read = |file: &str| std::fs::read(fixture.join(file)).expect("in the repository");
        let json: serde_json::Value = serde_json::from_slice(&read("tokens.json")).expect("JSON");
        let tokens: Vec<u32> = serde_json::from_value(json["input_ids"][0].clone()).expect("ids");
        let checkpoint = Checkpoint::open(&fixture).expect("opens");
        let decoder = refrain_models::load(&checkpoint, checkpoint.config(), device, &|_| {}).expect("loads");
        let bytes = read("predictions.safetensors");
        let file = SafeTensors::deserialize(&bytes).expect("safetensors");
        let found = predictions(&*decoder, device, &tokens);
        for (part, found) in ["first", "second", "third"].iter().zip(found) {
            let data = file.tensor(part).expect("logits").data();
            let expected: Vec<f32> = bytemuck::allocation::pod_collect_to_vec(data);
            let error = relative_l2(&found, &expected);
            println!("{name} {part}: {error:.2e}");
            assert!(
                error <= bound,
                "{name} {part} on {}: {error:.2e} > {bound:.0e}",
                device.name()
            );
        }
    }
}

#[test]
fn predictions_agree_with_transformers() {
    check(&Device::cpu(), 1, 1e-4);
}

#[test]
fn vulkan_predictions_agree_with_transformers() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let gpu = TestGpu::open();
    check(&gpu.device, 2, 5e-3);
    gpu.assert_silent();
}
