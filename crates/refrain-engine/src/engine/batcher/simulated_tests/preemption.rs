//! How often requests are preempted when pages are short, on a model of a device.

use super::*;

/// Runs 200 requests with pages for 60 % of what 16 of them need at their limits. The answers of those whose number
/// `ends_early` accepts end by themselves, most of them long before their limits. Returns the preemptions, and the most
/// requests that ran at once.
fn run(ends_early: fn(u64) -> bool) -> (u64, usize) {
    let streams = 16;
    // 150 tokens of a prompt and 150 of an answer, on average.
    let (runner, options) = card_with(streams, 512, streams * 300 * 6 / 10, None);
    let mut batcher = Batcher::with_runner(runner, &options);
    let mut random = Random(7);
    let mut submit = |number| {
        let length = 100 + random.below(100);
        let request = TestRequest {
            number,
            prompt: (0..length).map(|_| random.below(VOCABULARY as usize) as u32).collect(),
            tokens: 100 + random.below(100),
            // One token in fifty.
            stop_ids: if ends_early(number) { vec![3] } else { vec![] },
            ..TestRequest::default()
        };
        request.submit(&mut batcher).0
    };
    let submitted: Vec<_> = (0..200).map(&mut submit).collect();
    let mut most = 0;
    while !batcher.is_idle() {
        step(&mut batcher);
        most = most.max(batcher.load().running);
    }
    let ended = |events: &Receiver<EngineEvent>| matches!(events.try_iter().last(), Some(EngineEvent::End(_)));
    assert!(submitted.iter().all(ended));
    (batcher.load().preemptions, most)
}

#[test]
fn few_requests_are_preempted_however_long_their_answers_become() {
    let (preemptions, most) = run(|_| false);
    assert_eq!(preemptions, 0, "all reach their limits");
    assert!(most >= 8, "{most} at once");
    let (preemptions, short) = run(|_| true);
    assert!(preemptions <= 4, "{preemptions}");
    assert!(short > most, "{short} at once if answers are short");
    // The engine has learnt that answers are short when long ones come.
    let (preemptions, _) = run(|number| number < 100);
    assert!(preemptions <= 8, "{preemptions}");
    let (preemptions, _) = run(|number| number % 2 == 0);
    assert!(preemptions <= 4, "{preemptions}");
}
