//! Texts of mixed steps equal those of steps and chunks by themselves, on a GPU.

use super::Batcher;
use super::test_support::{TestRequest, gpu, load};
use crate::Model;
use crate::engine::EngineOptions;
use crate::engine::request::EngineEvent;

/// Grouped-query attention, attention with sinks and windows and a mixture of experts, and latent attention.
const SPECS: [&str; 3] = ["tiny:f16", "tiny-gpt-oss:f16", "tiny-deepseek-v3:f16"];

/// Returns what twelve requests in four slots are told, and the number of mixed steps.
fn texts(model: &Model, mixes: bool) -> (Vec<Vec<String>>, u64) {
    let options = EngineOptions {
        context: 256,
        streams: 4,
        cache_tokens: 4 * 256,
        ..EngineOptions::default()
    };
    let mut batcher = Batcher::new(model, &options).expect("fits");
    if mixes {
        batcher.mixing.mix_always();
    }
    let request = |number: u64| TestRequest {
        number,
        prompt: (0..20 + 13 * number as u32)
            .map(|at| (at * at + 31 * number as u32) % 200 + 3)
            .collect(),
        tokens: 8 + 3 * number as usize,
        ..TestRequest::default()
    };
    let submitted: Vec<_> = (0..12).map(|number| request(number).submit(&mut batcher).0).collect();
    while !batcher.is_idle() {
        batcher.step().expect("goes on");
    }
    let told = |event: EngineEvent| match event {
        EngineEvent::Token(token) => token.id.to_string(),
        other => format!("{other:?}"),
    };
    let texts = submitted.iter().map(|events| events.try_iter().map(told).collect());
    (texts.collect(), batcher.load().mixed_steps)
}

#[test]
fn mixed_steps_change_no_text() {
    if !refrain_testing::drawn(24) {
        return;
    }
    let device = gpu();
    for spec in SPECS {
        let model = load(spec, &device);
        let (expected, none) = texts(&model, false);
        let (found, steps) = texts(&model, true);
        assert_eq!((none, steps > 4), (0, true), "{spec}: {steps} mixed steps");
        assert_eq!(found, expected, "{spec}");
    }
}
