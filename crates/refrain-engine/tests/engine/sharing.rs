//! Requests that share slots, pages and prefixes.

use refrain_engine::{
    Device, Engine, EngineEvent, EngineOptions, EngineRequest, Finish, GenerateOptions, PrefixStoreOptions,
};

use super::common::null::reporting;
use super::common::{TestGpu, model, model_with};
use super::{Submitted, alone, ask, ask_for, greedy, options, prompt, seeded};

/// A submit's message to the device has room for 4,096 words.
#[test]
fn more_requests_than_a_message_has_settings_for_run_with_logprobs() {
    if !refrain_testing::drawn(12) {
        return;
    }
    let gpu = TestGpu::open();
    let model = model("tiny:f32", &gpu.device);
    let engine = Engine::start(&model, &options(256, 256 * 64)).expect("starts");
    let request = |number: u32| {
        let request = EngineRequest::new(prompt(number, 3 + number % 5), seeded(4, u64::from(number)));
        let top_logprobs = number.is_multiple_of(2).then_some(2);
        ask_for(
            &engine,
            EngineRequest {
                top_logprobs,
                ..request
            },
        )
        .expect("taken")
    };
    let submitted: Vec<Submitted> = (0..300).map(request).collect();
    for (number, submitted) in submitted.into_iter().enumerate() {
        let (picked, _) = submitted.picked();
        assert_eq!(picked.len(), 4, "request {number}");
        let has_logprobs = picked.iter().all(|token| token.logprobs.is_some());
        assert_eq!(has_logprobs, number % 2 == 0, "request {number}");
    }
    gpu.assert_silent();
}

/// Requests move between steps of different widths with their penalties, biases and seeds.
#[test]
fn requests_keep_their_settings_when_the_number_of_rows_changes() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let gpu = TestGpu::open();
    for device in [&Device::cpu(), &gpu.device] {
        let model = model("qwen3-bf16", device);
        let engine = Engine::start(&model, &options(12, 12 * 256)).expect("starts");
        let request = |number: u32| {
            (
                prompt(number, 5 + number),
                seeded(3 + 4 * number as usize, u64::from(number)),
            )
        };
        let submitted: Vec<Submitted> = (0..20)
            .map(|number| {
                let (prompt, options) = request(number);
                ask(&engine, &prompt, &options).expect("taken")
            })
            .collect();
        for (number, submitted) in (0..20).zip(submitted) {
            let (prompt, options) = request(number);
            assert_eq!(
                submitted.answer().0,
                alone(&model, 256, &prompt, &options),
                "request {number}"
            );
        }
    }
    gpu.assert_silent();
}

#[test]
fn a_prefix_that_another_request_computes_is_awaited_and_shared() {
    if !refrain_testing::drawn(8) {
        return;
    }
    let gpu = TestGpu::open();
    for device in [&Device::cpu(), &gpu.device] {
        for spec in ["qwen3-bf16", "qwen3.5-moe-bf16"] {
            let model = model(spec, device);
            let engine = Engine::start(&model, &options(6, 6 * 256)).expect("starts");
            let shared = prompt(1, 150);
            // Five texts with 150 tokens in common, two of them equal.
            let texts: Vec<Vec<u32>> = [2, 3, 4, 5, 5]
                .map(|number| [&shared[..], &prompt(number, 20)].concat())
                .into();
            let submitted: Vec<Submitted> = texts
                .iter()
                .map(|text| ask(&engine, text, &greedy(5)).expect("taken"))
                .collect();
            for (text, submitted) in texts.iter().zip(submitted) {
                assert_eq!(submitted.answer().0, alone(&model, 256, text, &greedy(5)), "{spec}");
            }
            let load = engine.load();
            assert_eq!(load.prompt_tokens, 5 * 170, "{spec}");
            // One of the equal texts is forked from the other, if it comes before that one is computed.
            assert!(
                (4 * 128..=3 * 128 + 169).contains(&load.cached_tokens),
                "{spec}: {load:?}"
            );
        }
    }
}

#[test]
fn several_short_prompts_are_computed_in_one_call() {
    let model = model("qwen3-bf16", &Device::cpu());
    let options = EngineOptions {
        prefix_cache: false,
        ..options(8, 8 * 256)
    };
    let engine = Engine::start(&model, &options).expect("starts");
    let lengths = [9, 64, 1, 33, 130, 2, 65, 20];
    let submitted: Vec<Submitted> = lengths
        .iter()
        .map(|&length| ask(&engine, &prompt(length, length), &greedy(4)).expect("taken"))
        .collect();
    for (length, submitted) in lengths.into_iter().zip(submitted) {
        let expected = alone(&model, 256, &prompt(length, length), &greedy(4));
        assert_eq!(submitted.answer().0, expected, "{length} tokens");
    }
}

#[test]
fn a_text_that_ends_at_once_leaves_its_slot_to_others() {
    let model = model("tiny:f32", &Device::cpu());
    let engine = Engine::start(&model, &options(2, 512)).expect("starts");
    let first = alone(&model, 256, &prompt(1, 5), &greedy(1))[0];
    let stopped = GenerateOptions {
        stop_ids: vec![first],
        ..greedy(50)
    };
    let submitted: Vec<Submitted> = (0..10)
        .map(|_| ask(&engine, &prompt(1, 5), &stopped).expect("taken"))
        .collect();
    for submitted in submitted {
        assert!(matches!(submitted.next(), EngineEvent::End(_)));
    }
}

#[test]
fn copies_of_a_request_are_forked_after_one_prefill() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let gpu = TestGpu::open();
    let types = [
        ("qwen3-bf16", None),
        ("qwen3-bf16", Some("q8_0,q4_0")),
        ("qwen3.5-moe-bf16", None),
    ];
    for device in [&Device::cpu(), &gpu.device] {
        for (spec, types) in types {
            let model = model_with(spec, device, types);
            // Less than a page, and between pages.
            for length in [20, 150] {
                let engine = Engine::start(&model, &options(6, 6 * 256)).expect("starts");
                let text = prompt(length, length);
                let options = |number| match number {
                    0 => greedy(70),
                    _ => seeded(9, number),
                };
                let submitted: Vec<Submitted> = (0..5)
                    .map(|number| ask(&engine, &text, &options(number)).expect("taken"))
                    .collect();
                for (number, submitted) in (0..).zip(submitted) {
                    let expected = alone(&model, 256, &text, &options(number));
                    assert_eq!(submitted.answer().0, expected, "{spec}: {length} tokens, {number}");
                }
                let load = engine.load();
                let (pages, all) = (u64::from(length / 64 * 64), u64::from(length - 1));
                assert!((4 * pages..=4 * all).contains(&load.cached_tokens), "{spec}: {load:?}");
            }
        }
    }
    gpu.assert_silent();
}

#[test]
fn the_next_turn_of_a_conversation_continues_the_answer_before() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let gpu = TestGpu::open();
    for device in [&Device::cpu(), &gpu.device] {
        // All of the text before but its last token, or whole pages of it.
        for (spec, expected) in [("qwen3-bf16", [0, 89, 146]), ("qwen3.5-moe-bf16", [0, 64, 128])] {
            let model = model(spec, device);
            let engine = Engine::start(&model, &options(2, 512)).expect("starts");
            let mut text = prompt(3, 40);
            let mut cached = 0;
            for (turn, expected) in expected.into_iter().enumerate() {
                let answer = ask(&engine, &text, &greedy(50)).expect("taken").answer().0;
                assert_eq!(answer, alone(&model, 256, &text, &greedy(50)), "{spec}, turn {turn}");
                let found = engine.load().cached_tokens - cached;
                cached += found;
                assert_eq!(found, expected, "{spec}, turn {turn}");
                text.extend(answer);
                text.extend(prompt(5, 7));
            }
        }
    }
    gpu.assert_silent();
}

#[test]
fn prefixes_on_disk_are_found_by_the_next_engine() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let gpu = TestGpu::open();
    let types = [
        ("qwen3-bf16", None),
        ("qwen3-bf16", Some("q8_0")),
        ("qwen3.5-moe-bf16", None),
    ];
    for device in [&Device::cpu(), &gpu.device] {
        let folder = tempfile::tempdir().expect("a folder");
        let stored = EngineOptions {
            prefix_store: Some(PrefixStoreOptions {
                directory: folder.path().to_owned(),
                max_bytes: 1 << 30,
                warn: |why| panic!("{why}"),
            }),
            ..options(2, 512)
        };
        for (spec, types) in types {
            let model = model_with(spec, device, types);
            let text = prompt(3, 150);
            let expected = alone(&model, 256, &text, &greedy(60));
            for cached in [0, 128, 128] {
                // Dropping the engine stores what it has.
                let engine = Engine::start(&model, &stored).expect("starts");
                let answer = ask(&engine, &text, &greedy(60)).expect("taken").answer().0;
                assert_eq!(answer, expected, "{spec}, {types:?}");
                assert_eq!(engine.load().cached_tokens, cached, "{spec}, {types:?}");
            }
            // The next turn, in another engine.
            let next = [&text[..], &expected, &prompt(4, 10)].concat();
            let engine = Engine::start(&model, &stored).expect("starts");
            let answer = ask(&engine, &next, &greedy(5)).expect("taken").answer().0;
            assert_eq!(answer, alone(&model, 256, &next, &greedy(5)), "{spec}, {types:?}");
            assert_eq!(engine.load().cached_tokens, 192, "{spec}, {types:?}");
        }
    }
    gpu.assert_silent();
}

#[test]
fn many_copies_of_a_long_prompt_start_together() {
    let model = model("tiny:q4_0", &reporting(&[]).0);
    let (streams, context) = (80, 4096);
    let options = EngineOptions {
        context,
        streams,
        cache_tokens: streams * context,
        prepares: false,
        ..EngineOptions::default()
    };
    let engine = Engine::start(&model, &options).expect("starts");
    // Those of the second round are longer than what is cached.
    for length in [4000, 4010] {
        let text = vec![1; length];
        let submitted: Vec<Submitted> = (0..streams)
            .map(|_| ask(&engine, &text, &greedy(3)).expect("taken"))
            .collect();
        for submitted in submitted {
            let (tokens, finish) = submitted.answer();
            assert_eq!((tokens.len(), finish), (3, Finish::Length));
        }
    }
    // The first prompt is computed once, and of the second what is new.
    let load = engine.load();
    assert!(load.cached_tokens > load.prompt_tokens * 9 / 10, "{load:?}");
    assert_eq!(load.preemptions, 0, "{load:?}");
}
