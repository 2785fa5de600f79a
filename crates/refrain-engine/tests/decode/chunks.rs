//! Prompts in chunks, with the kernels that suit their sizes, compared with the same tokens one at a time.

use refrain::LowerOptions;
use refrain_engine::{Device, Mode, Model, Session};
use refrain_lm::sample::Settings;
use refrain_testing::sample;

use crate::common::{TestGpu, engine, relative_l2};
use crate::{decoded, is_software, model, pair};

fn tokens(model: &Model, count: usize) -> Vec<u32> {
    let vocabulary = model.config().vocab_size;
    let ids = (0..count).map(|i| (i * 7919 + i * i * 31) % vocabulary);
    ids.map(|id| id as u32).collect()
}

/// Returns the logits after each of `tokens`, each computed by a decode step of its own.
fn one_at_a_time(model: &Model, tokens: &[u32], regions: bool) -> Vec<f32> {
    let mut session = Session::new(model, tokens.len()).expect("fits");
    session.set_lowering(LowerOptions {
        regions,
        ..LowerOptions::default()
    });
    session.set_mode(Mode::Fixed(&refrain::Eager), None);
    let mut logits = vec![];
    for (position, &token) in tokens.iter().enumerate() {
        let settings = Settings {
            last_position: position as u32 + 1,
            ..Settings::default()
        };
        decoded(&mut session, &[token], &settings, 1);
        logits.extend(session.last_logits().expect("logits"));
    }
    logits
}

fn in_chunks(model: &Model, tokens: &[u32], chunk: usize) -> Vec<f32> {
    engine(model, tokens.len(), chunk).logits(tokens, 0).expect("computes")
}

/// The references are the CPU executor, and the same device with single tokens and no regions. Hybrids must stay
/// within the same bounds: no other expert may be chosen.
fn assert_chunks_agree(gpu: &TestGpu, name: &str, count: usize) {
    let [on_gpu, on_cpu] = [&gpu.device, &Device::cpu()].map(|device| model(name, device));
    let tokens = tokens(&on_gpu, count);
    let exact = in_chunks(&on_cpu, &tokens, 512);
    let unfused = one_at_a_time(&on_gpu, &tokens, false);
    let check = |logits: &[f32], way: &str| {
        for (reference, which) in [(&exact, "the CPU executor"), (&unfused, "single tokens, unfused")] {
            let error = relative_l2(logits, reference);
            println!("{name}, {way} against {which}: {error:.2e}");
            assert!(error <= 5e-3, "{name}, {way} against {which}: {error:.2e}");
        }
    };
    check(&unfused, "single tokens, unfused");
    check(&one_at_a_time(&on_gpu, &tokens, true), "single tokens, fused");
    for chunk in sample([3, 8, 13, 64, 512], 3) {
        check(&in_chunks(&on_gpu, &tokens, chunk), &format!("chunks of {chunk}"));
    }
}

#[test]
fn chunks_agree_with_single_tokens_and_the_cpu_executor() {
    if !refrain_testing::drawn(8) {
        return;
    }
    let gpu = TestGpu::open();
    // Past the end of a page; past an attention window; past many states of a recurrence.
    let prompts = [
        ("qwen3-gguf-q4_0/model.gguf", 264),
        ("gemma3-bf16", 70),
        ("deepseek-v3-bf16", 70),
        // At the ninetieth token two experts are so close that f16 chooses another.
        ("qwen3.5-moe-bf16", 88),
    ];
    for (name, count) in sample(prompts, 6) {
        assert_chunks_agree(&gpu, name, count);
    }
    if !is_software(&gpu) {
        pair(&gpu).iter().for_each(|name| assert_chunks_agree(&gpu, name, 600));
    }
    gpu.assert_silent();
}
