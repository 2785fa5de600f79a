//! Logits and log-probabilities of prompts, beside texts that are generated.

use refrain_engine::{
    Device, Engine, EngineEvent, EngineRequest, GenerateOptions, PickedToken, PromptOutputs, TokenConstraint,
};

use crate::common::{TestGpu, engine, model, relative_l2};
use crate::{alone, ask, ask_for, greedy, log_probabilities, options, prompt};

#[test]
fn prompts_are_scored_beside_texts() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let gpu = TestGpu::open();
    for name in ["qwen3-bf16", "qwen3.5-moe-bf16"] {
        let cpu = model(name, &Device::cpu());
        for (device, bound) in [(&Device::cpu(), 1e-4), (&gpu.device, 5e-3)] {
            let model = model(name, device);
            let engine = Engine::start(&model, &options(3, 1024)).expect("starts");
            let beside = ask(&engine, &prompt(9, 20), &greedy(100)).expect("taken");
            // Twice, so that the second finds what comes before in the prefix cache.
            for from in [0, 70, 70] {
                let text = prompt(1, 150);
                let expected = crate::engine(&cpu, 256, 512).logits(&text, from).expect("computes");
                let found = engine.logits(&text, from).expect("computes");
                let error = relative_l2(&found, &expected);
                assert!(error <= bound, "{name} on {}, from {from}: {error:.1e}", device.name());
                let expected = &log_probabilities(&cpu, &text)[from..];
                let found = engine.logprobs(&text, from).expect("computes");
                assert_eq!(found.len(), expected.len());
                for ((found, row), token) in found.iter().zip(expected).zip(&text[from + 1..]) {
                    let expected = row[*token as usize];
                    assert!(
                        (f64::from(*found) - expected).abs() < 0.03,
                        "{name}: {found}, not {expected}"
                    );
                }
            }
            assert_eq!(
                beside.answer().0,
                alone(&model, 256, &prompt(9, 20), &greedy(100)),
                "{name}"
            );
        }
    }
    gpu.assert_silent();
}

/// Allows token 5 alone.
struct Fives;

impl TokenConstraint for Fives {
    fn fill_mask(&mut self, bits: &mut [u32]) -> Result<(), String> {
        bits[0] = 1 << 5;
        Ok(())
    }

    fn accept(&mut self, _token: u32) -> Result<bool, String> {
        Ok(false)
    }
}

#[test]
fn a_text_follows_the_outputs_of_its_prompt() {
    let model = model("tiny:f32", &Device::cpu());
    let engine = engine(&model, 256, 32);
    let text = prompt(2, 100);
    let request = |constraint: Option<Box<dyn TokenConstraint>>, outputs| EngineRequest {
        top_logprobs: Some(2),
        prompt_outputs: Some(outputs),
        constraint,
        ..EngineRequest::new(text.clone(), greedy(10))
    };
    let from = 3;
    let plain = alone(&model, 256, &text, &greedy(10));
    for (constraint, expected) in [(None, plain), (Some(Box::new(Fives) as _), vec![5; 10])] {
        let submitted = ask_for(&engine, request(constraint, PromptOutputs::Logprobs { from })).expect("taken");
        let (tokens, _) = submitted.picked();
        let is_complete = |token: &PickedToken| token.logprobs.as_ref().is_some_and(|all| all.top.len() == 2);
        assert!(tokens.iter().all(is_complete));
        let ids: Vec<u32> = tokens.iter().map(|token| token.id).collect();
        assert_eq!(ids, [&text[from + 1..], &expected[..]].concat());
    }
    let submitted = ask_for(&engine, request(None, PromptOutputs::Logits { from })).expect("taken");
    let (mut rows, mut tokens) = (0, 0);
    loop {
        match submitted.next() {
            EngineEvent::Logits(logits) => rows += logits.len() / engine.vocabulary(),
            EngineEvent::Token(_) => tokens += 1,
            EngineEvent::End(_) => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((rows, tokens), (text.len() - from - 1, 10));
    // Nothing is to be reported.
    for outputs in [
        PromptOutputs::Logits { from: 100 },
        PromptOutputs::Logprobs { from: 99 },
    ] {
        let options = GenerateOptions {
            max_tokens: Some(0),
            ..GenerateOptions::default()
        };
        let request = EngineRequest {
            prompt_outputs: Some(outputs),
            ..EngineRequest::new(text.clone(), options)
        };
        let submitted = ask_for(&engine, request).expect("taken");
        assert!(matches!(submitted.next(), EngineEvent::End(_)));
    }
}
