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
    let whole_pages = 2000 / PAGE_SIZE * PAGE_SIZE;
    let least = whole_pages + 32 * (2000 + 63 - whole_pages);
    assert_eq!(batcher.runner.prefilled - before, least, "tokens of prompts");
    let late = late - start;
    assert!(late < Duration::from_millis(280), "{late:?}");
}

#[test]
fn copies_of_a_request_share_its_prompt() {
    let (runner, options) = card(8, 4096);
    let mut batcher = Batcher::with_runner(runner, &options);
    for number in 0..8 {
        let request = TestRequest {
            number,
            prompt: numbered(1, 1025),
            tokens: 5,
            ..TestRequest::default()
        };
        let _ = request.submit(&mut batcher);
    }
    while !batcher.is_idle() {
        step(&mut batcher);
    }
    assert_eq!(batcher.runner.prefilled, 1024);
}
