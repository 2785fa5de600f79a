//! Prefixes that requests share, on a model of a device.

use super::*;

#[test]
fn a_prefix_of_many_requests_is_computed_once() {
    let (runner, options) = card(32, 8192);
    let mut batcher = Batcher::with_runner(runner, &options);
    // The engine has learnt how long chunks take.
    for (number, length, tokens) in [(100, 40, 200), (103, 4096, 1)] {
        let request = TestRequest {
            number,
            prompt: numbered(number as u32, length),
            tokens,
            ..TestRequest::default()
        };
        let _ = request.submit(&mut batcher);
    }
    while !batcher.is_idle() {
        step(&mut batcher);
    }
    let (start, before) = (batcher.runner.elapsed(), batcher.runner.prefilled);
    let shared = numbered(1, 2000);
    let submitted: Vec<_> = (0..32)
        .map(|number| {
            let request = TestRequest {
                number,
                prompt: [&shared[..], &numbered(number as u32 + 2, 64)].concat(),
                tokens: 64,
                ..TestRequest::default()
            };
            request.submit(&mut batcher).0
        })
        .collect();
    let mut first_tokens = 0;
    let mut late = Duration::ZERO;
    let mut has_begun = vec![false; submitted.len()];
    while first_tokens < submitted.len() {
        step(&mut batcher);
        for (has_begun, events) in has_begun.iter_mut().zip(&submitted) {
            if !*has_begun && events.try_recv().is_ok() {
                *has_begun = true;
                first_tokens += 1;
                late = batcher.runner.elapsed();
            }
        }
    }
    // The beginning of the last shared page is copied.
    let least = 2000 + 32 * 63;
    assert_eq!(batcher.runner.prefilled - before, least, "tokens of prompts");
    let late = late - start;
    assert!(late < Duration::from_millis(280), "{late:?}");
}

/// A prompt is computed once for all its copies, whether it fills pages or not, with recurrent states or without.
#[test]
fn copies_of_a_request_share_its_prompt() {
    for checkpoints in [None, Some(17)] {
        for length in [2, 64, 65, 66, 1025, 1050, 1088] {
            for order in [[0, 1, 2], [1, 0, 2]] {
                let (runner, options) = card_with(8, 4096, 8 * 4096, checkpoints);
                let mut batcher = Batcher::with_runner(runner, &options);
                let request = |number: u64| TestRequest {
                    number,
                    prompt: numbered(1, length),
                    tokens: 5,
                    embeds: order[number as usize % 3] == 2,
                    ..TestRequest::default()
                };
                let submitted: Vec<Submitted> = (0..8).map(|number| submit(&mut batcher, request(number))).collect();
                while !batcher.is_idle() {
                    step(&mut batcher);
                }
                let what = format!("{length} tokens, checkpoints: {checkpoints:?}");
                submitted
                    .iter()
                    .for_each(|submitted| submitted.check(checkpoints.is_some(), &what));
                assert_eq!(batcher.runner.prefilled as u32, length - 1, "{what}");
            }
        }
    }
}

/// With drafts or without, states are saved where pages end.
#[test]
fn the_next_turn_of_a_conversation_computes_only_what_is_new() {
    for (checkpoints, wrong_one_in) in [(None, None), (Some(5), None), (Some(5), Some(0)), (Some(5), Some(4))] {
        for stop_ids in [&[][..], &[3, 4]] {
            let (runner, options) = card_with(2, 4096, 2 * 4096, checkpoints);
            let mut batcher = Batcher::with_runner(runner, &options);
            let mut texts = [1, 2].map(|number| numbered(number, 150));
            let mut computed = vec![];
            for turn in 0..3 {
                let before = batcher.runner.prefilled;
                let request = |text: &Vec<u32>| TestRequest {
                    number: turn,
                    prompt: text.clone(),
                    tokens: 300,
                    stop_ids: stop_ids.to_vec(),
                    ..TestRequest::default()
                };
                if let Some(wrong_one_in) = wrong_one_in {
                    let texts = texts.iter().map(|text| speculation::script(&request(text), true));
                    let scripted = Scripted::new(texts.collect(), wrong_one_in);
                    batcher.speculator = Some(Speculator::new(Box::new(scripted)));
                }
                let submitted = texts.each_ref().map(|text| submit(&mut batcher, request(text)));
                while !batcher.is_idle() {
                    step(&mut batcher);
                }
                computed.push(batcher.runner.prefilled - before);
                for (text, submitted) in texts.iter_mut().zip(submitted) {
                    submitted.check(checkpoints.is_some(), "a turn");
                    text.extend(expected(&submitted.request, checkpoints.is_some()).0);
                    text.extend(numbered(turn as u32 + 5, 30));
                }
            }
            // 31 new tokens of each text, and with recurrent states what fills no page.
            let most = 2 * (31 + checkpoints.map_or(0, |_| PAGE_SIZE));
            assert!(
                computed[1..].iter().all(|count| *count <= most),
                "{computed:?}, {checkpoints:?}, {wrong_one_in:?}"
            );
            let accepted = batcher.load().accepted_tokens[0];
            assert_eq!(accepted > 10, wrong_one_in.is_some(), "{accepted}");
        }
    }
}

#[test]
fn a_text_that_is_decoded_leaves_its_prompt_usable() {
    let (runner, options) = card_with(1, 4096, 2 * 4096, Some(3));
    let mut batcher = Batcher::with_runner(runner, &options);
    for expected in [999, 39] {
        let before = batcher.runner.prefilled;
        let request = TestRequest {
            prompt: numbered(1, 1000),
            tokens: 400,
            ..TestRequest::default()
        };
        submit(&mut batcher, request);
        while !batcher.is_idle() {
            step(&mut batcher);
        }
        assert_eq!(batcher.runner.prefilled - before, expected);
    }
}
