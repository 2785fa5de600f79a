//! Prompts in chunks, with the kernels that suit their sizes, compared with the same tokens one at a time.

use refrain_engine::{Device, EngineRequest, Model, TokenConstraint};
use refrain_testing::sample;

use crate::common::{TestGpu, engine, relative_l2};
use crate::{greedy, is_software, model, pair, picked};

fn tokens(model: &Model, count: usize) -> Vec<u32> {
    let vocabulary = model.config().vocab_size;
    let ids = (0..count).map(|i| (i * 7919 + i * i * 31) % vocabulary);
    ids.map(|id| id as u32).collect()
}

/// Forces a text.
struct Forced(std::vec::IntoIter<u32>);

impl TokenConstraint for Forced {
    fn fill_mask(&mut self, bits: &mut [u32]) -> Result<(), String> {
        let next = self.0.as_slice()[0] as usize;
        bits[next / 32] = 1 << (next % 32);
        Ok(())
    }

    fn accept(&mut self, token: u32) -> Result<bool, String> {
        assert_eq!(self.0.next(), Some(token));
        Ok(self.0.as_slice().is_empty())
    }
}

/// Compares the log-probabilities of decode steps, each of which is given the next of `tokens`, with those of logits.
/// Returns the relative error.
fn decoding_error(model: &Model, tokens: &[u32], logits: &[f32]) -> f64 {
    let (first, rest) = tokens.split_at(1);
    let engine = engine(model, tokens.len(), 1);
    let request = EngineRequest {
        constraint: Some(Box::new(Forced(Vec::from(rest).into_iter()))),
        top_logprobs: Some(20),
        ..EngineRequest::new(first.to_vec(), greedy(rest.len()))
    };
    let steps = picked(&engine, request).expect("goes on");
    assert_eq!(steps.len(), rest.len());
    let (mut found, mut expected) = (vec![], vec![]);
    for (step, row) in steps.iter().zip(logits.chunks_exact(engine.vocabulary())) {
        let total: f64 = row.iter().map(|logit| f64::from(*logit).exp()).sum();
        let logprobs = step.logprobs.as_ref().expect("requested");
        let mut compare = |id: u32, logprob: f32| {
            found.push(logprob);
            expected.push((f64::from(row[id as usize]) - total.ln()) as f32);
        };
        compare(step.id, logprobs.sampled);
        logprobs.top.iter().for_each(|&(id, logprob)| compare(id, logprob));
    }
    relative_l2(&found, &expected)
}

fn in_chunks(model: &Model, tokens: &[u32], chunk: usize) -> Vec<f32> {
    engine(model, tokens.len(), chunk).logits(tokens, 0).expect("computes")
}

/// The references are the CPU executor, and the same device with single tokens. Hybrids must stay within the same
/// bounds: no other expert may be chosen.
fn assert_chunks_agree(gpu: &TestGpu, name: &str, count: usize) {
    let [on_gpu, on_cpu] = [&gpu.device, &Device::cpu()].map(|device| model(name, device));
    let tokens = tokens(&on_gpu, count);
    let exact = in_chunks(&on_cpu, &tokens, 512);
    let single = in_chunks(&on_gpu, &tokens, 1);
    let check = |error: f64, bound: f64, what: &str| {
        println!("{name}, {what}: {error:.2e}");
        assert!(error <= bound, "{name}, {what}: {error:.2e}");
    };
    let references = [(&exact, "the CPU executor"), (&single, "single tokens")];
    check(
        relative_l2(&single, &exact),
        5e-3,
        "single tokens against the CPU executor",
    );
    for (reference, which) in references {
        // Likely tokens have larger numbers than logits are on average.
        let error = decoding_error(&on_gpu, &tokens, reference);
        check(error, 1e-3, &format!("decoding against {which}"));
    }
    for chunk in sample([3, 8, 13, 64, 512], 3) {
        let logits = in_chunks(&on_gpu, &tokens, chunk);
        for (reference, which) in references {
            let error = relative_l2(&logits, reference);
            check(error, 5e-3, &format!("chunks of {chunk} against {which}"));
        }
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
