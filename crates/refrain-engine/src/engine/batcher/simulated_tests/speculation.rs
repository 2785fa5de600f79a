//! Drafts on a model of a device: what they gain, and what they cost in vain. That they change no answer is tested by the
//! random mixes.

use super::*;

/// Returns a request's tokens with its answer, and a stop token behind it.
pub fn script(request: &TestRequest, is_recurrent: bool) -> Vec<u32> {
    let mut text = request.prompt.clone();
    if !request.embeds {
        text.extend(expected(request, is_recurrent).0);
        text.extend(request.stop_ids.first());
    }
    text
}

/// Generates texts at once, with drafts of which one of so many tokens is wrong, or without. Returns the time, and the
/// engine's counters.
fn run(streams: usize, wrong_one_in: Option<u32>) -> (Duration, EngineLoad) {
    let (runner, options) = card(streams, 1024);
    let mut batcher = Batcher::with_runner(runner, &options);
    let request = |number: u64| TestRequest {
        number,
        prompt: numbered(number as u32, 40),
        tokens: 400,
        ..TestRequest::default()
    };
    let requests: Vec<TestRequest> = (0..streams as u64).map(request).collect();
    if let Some(wrong_one_in) = wrong_one_in {
        let texts = requests.iter().map(|request| script(request, false));
        let scripted = Scripted::new(texts.collect(), wrong_one_in);
        batcher.speculator = Some(Speculator::new(Box::new(scripted)));
    }
    let submitted: Vec<Submitted> = requests
        .into_iter()
        .map(|request| submit(&mut batcher, request))
        .collect();
    while !batcher.is_idle() {
        step(&mut batcher);
    }
    submitted.iter().for_each(|submitted| submitted.check(false, "drafts"));
    (batcher.runner.elapsed(), batcher.load())
}

#[test]
fn accepted_drafts_make_texts_faster() {
    for (streams, least) in [(1, 5.0), (8, 3.0), (16, 1.8)] {
        let (plain, _) = run(streams, None);
        let (drafted, load) = run(streams, Some(0));
        let gain = plain.as_secs_f64() / drafted.as_secs_f64();
        assert!(gain > least, "{streams}: {gain}");
        assert_eq!(load.accepted_tokens.iter().sum::<u64>(), load.draft_tokens, "{load:?}");
        assert!(load.draft_tokens > load.drafts && load.drafts > 0, "{load:?}");
        assert!(load.decode_steps < 400, "{load:?}");
    }
}

#[test]
fn partly_wrong_drafts_make_texts_faster() {
    let (plain, _) = run(1, None);
    let (drafted, load) = run(1, Some(3));
    assert!(
        plain.as_secs_f64() / drafted.as_secs_f64() > 1.5,
        "{plain:?}, {drafted:?}"
    );
    assert!(load.accepted_tokens.is_sorted_by(|a, b| a >= b), "{load:?}");
    let accepted: u64 = load.accepted_tokens.iter().sum();
    assert!(accepted > 0 && accepted < load.draft_tokens, "{load:?}");
}

#[test]
fn refused_drafts_cost_little() {
    for streams in [1, 8, 32] {
        let (plain, _) = run(streams, None);
        let (drafted, load) = run(streams, Some(1));
        let loss = drafted.as_secs_f64() / plain.as_secs_f64();
        assert!(loss < 1.03, "{streams}: {loss}, {load:?}");
        assert_eq!(load.accepted_tokens.iter().sum::<u64>(), 0);
    }
}
