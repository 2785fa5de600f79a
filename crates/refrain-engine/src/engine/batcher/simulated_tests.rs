//! The batch's decisions on a model of a device: nobody starves, every answer is that of the request alone, and the
//! times between tokens stay within the target.

mod preemption;
mod sharing;
mod speculation;
mod stored;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use super::Batcher;
use super::drafts::Speculator;
use super::simulation::{Costs, SimulatedRunner, Simulation, VOCABULARY, alone, token_of};
use super::test_support::{EveryThird, Scripted, TestRequest};
use crate::engine::request::{EngineEvent, PickedToken, PromptOutputs, TokenConstraint};
use crate::engine::row_count::widths;
use crate::engine::runner::Runner;
use crate::engine::speculation::Speculation;
use crate::engine::{EngineLoad, EngineOptions, PAGE_SIZE};
use crate::step::StepExtras;
use crate::{Error, Finish};

/// Number of random mixes: each takes about a millisecond.
const MIXES: u64 = 10_000;
/// One in so many mixes stores prefixes: files are synced, which takes long.
const LIVES_PER_STORE: usize = 30;
/// Steps after which a request counts as starved.
const MAX_STEPS: usize = 20_000;

/// Qwen3-8B on an H200, roughly: 512 tokens take 23.7 ms, a step of 64 rows 7 ms.
const CARD: Costs = Costs {
    step: |rows| 2400 + 72 * rows as u64,
    chunk: |tokens| 1700 + 43 * tokens as u64,
};

pub(super) struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % limit
    }

    pub fn one_in(&mut self, limit: usize) -> bool {
        self.below(limit) == 0
    }
}

/// Returns the tokens that a request generates alone, and how it ends: `None` if its constraint fails.
fn expected(request: &TestRequest, is_recurrent: bool) -> (Vec<u32>, Option<Finish>) {
    let mut tokens = request.prompt.clone();
    let limit = request.prompt.len() + request.tokens;
    if request.tokens == 0 {
        return (vec![], Some(Finish::Length));
    }
    let mut constraint = request.constraint.clone();
    let end = loop {
        let mut bits = vec![0; VOCABULARY.div_ceil(32) as usize];
        let restricting = constraint.as_mut().filter(|constraint| constraint.restricts());
        let mask = match restricting.map(|constraint| constraint.fill_mask(&mut bits)) {
            Some(Err(_)) => break None,
            Some(Ok(())) => Some(&bits[..]),
            None => None,
        };
        let next = token_of(alone(&tokens, is_recurrent), mask);
        if request.stop_ids.contains(&next) {
            break Some(Finish::Stop);
        }
        tokens.push(next);
        let accepted = constraint.as_mut().map(|constraint| constraint.accept(next));
        if accepted == Some(Ok(true)) {
            break Some(Finish::Stop);
        }
        if tokens.len() >= limit {
            break Some(Finish::Length);
        }
    };
    (tokens.split_off(request.prompt.len()), end)
}

struct Submitted {
    request: TestRequest,
    events: Receiver<EngineEvent>,
    cancelled: Arc<AtomicBool>,
}

fn submit<R: Runner>(batcher: &mut Batcher<R>, request: TestRequest) -> Submitted {
    let (events, cancelled) = request.clone().submit(batcher);
    Submitted {
        request,
        events,
        cancelled,
    }
}

impl Submitted {
    /// Compares what was reported with what the request generates alone.
    fn check(&self, is_recurrent: bool, what: &str) {
        let request = &self.request;
        let mut tokens = vec![];
        let mut of_prompt = vec![];
        let mut end = None;
        for event in self.events.try_iter() {
            assert!(end.is_none(), "{what}: {event:?} after {end:?}");
            match event {
                EngineEvent::Token(PickedToken {
                    id,
                    logprobs: Some(logprobs),
                }) => {
                    of_prompt.push((Some(id), logprobs.sampled));
                }
                EngineEvent::Logits(rows) => of_prompt.extend(rows.into_iter().map(|row| (None, row))),
                EngineEvent::Token(token) => tokens.push(token.id),
                other => end = Some(other),
            }
        }
        if self.cancelled.load(Ordering::Relaxed) {
            return;
        }
        let end = end.unwrap_or_else(|| panic!("{what}: {request:?} did not end"));
        if let Some(outputs) = request.prompt_outputs
            && matches!(end, EngineEvent::End(_))
        {
            let is_token = matches!(outputs, PromptOutputs::Logprobs { .. });
            let row = |at: usize| {
                let next = token_of(alone(&request.prompt[..=at], is_recurrent), None) as f32;
                (is_token.then(|| request.prompt[at + 1]), next)
            };
            let computed = outputs.tokens(request.prompt.len(), request.tokens > 0);
            assert_eq!(of_prompt, computed.map(row).collect::<Vec<_>>(), "{what}: {request:?}");
        }
        match end {
            EngineEvent::Embedding(hidden) => {
                assert!(request.embeds, "{what}");
                assert_eq!(
                    hidden,
                    [token_of(alone(&request.prompt, is_recurrent), None) as f32],
                    "{what}"
                );
            }
            EngineEvent::End(finish) => {
                let finish = Some(finish);
                assert_eq!((tokens, finish), expected(request, is_recurrent), "{what}: {request:?}");
            }
            // Memory ran out again and again.
            EngineEvent::Failed(Error::NoMemory(_)) => {}
            EngineEvent::Failed(Error::Constraint(_)) => {
                assert_eq!((tokens, None), expected(request, is_recurrent), "{what}: {request:?}");
            }
            other => panic!("{what}: {other:?}"),
        }
    }
}

/// Steps as the engine's thread does.
pub(super) fn step<R: Runner>(batcher: &mut Batcher<R>) {
    match batcher.step() {
        Err(error) if error.is_out_of_memory() => batcher.preempt(error).expect("continues"),
        stepped => stepped.expect("steps"),
    }
}

/// Returns a request whose prompt shares a prefix with others.
pub(super) fn random_request(random: &mut Random, number: u64, context: usize) -> TestRequest {
    let family = random.below(3) as u32;
    let shared = random.below(context - 8);
    let own = 1 + random.below(5);
    let prompt = (0..shared as u32).map(|at| (family * 17 + at * at) % VOCABULARY);
    let prompt: Vec<u32> = prompt
        .chain((0..own).map(|_| random.below(VOCABULARY as usize) as u32))
        .collect();
    let left = context - prompt.len();
    let most = if random.one_in(2) { left } else { left.min(12) };
    let prompt_outputs = random.one_in(5).then(|| {
        let from = random.below(prompt.len());
        [PromptOutputs::Logprobs { from }, PromptOutputs::Logits { from }][random.below(2)]
    });
    // No text follows, and something is reported.
    let is_scored =
        random.one_in(2) && prompt_outputs.is_some_and(|outputs| !outputs.tokens(prompt.len(), false).is_empty());
    TestRequest {
        number,
        tokens: if is_scored { 0 } else { 1 + random.below(most) },
        stop_ids: if random.one_in(2) {
            vec![random.below(VOCABULARY as usize) as u32]
        } else {
            vec![]
        },
        embeds: prompt_outputs.is_none() && random.one_in(6),
        prompt_outputs,
        client: random.below(3) as u64,
        prompt,
        constraint: random.one_in(3).then(|| random_constraint(random)),
        top_logprobs: None,
    }
}

/// Returns a constraint that restricts all tokens of an answer, or some.
fn random_constraint(random: &mut Random) -> EveryThird {
    let start = if random.one_in(2) { 0 } else { random.below(12) };
    let end = start + 1 + random.below(30);
    EveryThird {
        remainder: random.below(3) as u32,
        restricted: start..end,
        length: 1 + random.below(60),
        fails_at: if random.one_in(6) { random.below(20) } else { usize::MAX },
        taken: 0,
    }
}

/// Runs random requests that come at random times on a random device. Some batches share stored prefixes in `directory`.
/// Returns whether it has recurrent states, and the engine's counters.
fn check_mix(seed: u64, directory: &Path) -> (bool, EngineLoad) {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let context = PAGE_SIZE * (1 + random.below(4));
    let streams = 1 + random.below(7);
    let is_recurrent = random.one_in(3);
    let options = EngineOptions {
        context,
        streams,
        cache_tokens: context + random.below(streams * context),
        prefix_cache: !random.one_in(5),
        deterministic: random.one_in(8),
        max_chunk: random.one_in(6).then(|| 1 + random.below(40)),
        speculation: [Speculation::Off, Speculation::Ngram][random.below(2)],
        ..EngineOptions::default()
    };
    let simulation = Simulation {
        costs: CARD,
        slots: streams,
        pages: super::pages_per_slot(&options) * streams,
        pages_each: context.div_ceil(PAGE_SIZE),
        checkpoints: is_recurrent.then_some(1 + random.below(2 * streams + 1)),
        synchronous: random.one_in(3),
        mixed_tokens: 32,
        fails_once_in: [0, 0, 100, 20][random.below(4)],
        seed,
    };
    let mut batcher = Batcher::with_runner(SimulatedRunner::new(simulation), &options);
    if !options.deterministic && random.one_in(2) {
        batcher.mixing.mix_always();
    }
    if options.prefix_cache && !options.deterministic && random.one_in(LIVES_PER_STORE) {
        batcher.keep_prefixes_in(stored::store(directory, (u128::from(is_recurrent), 1 << 20)));
    }
    let mut waiting: Vec<TestRequest> = vec![];
    for number in 0..1 + random.below(10) as u64 {
        let mut request = random_request(&mut random, number, context);
        if let Some(before) = waiting.last().filter(|_| random.one_in(4)) {
            (request.prompt, request.tokens) = (before.prompt.clone(), before.tokens);
            (request.prompt_outputs, request.embeds) = (before.prompt_outputs, before.embeds);
        }
        waiting.push(request);
    }
    if random.one_in(2) && batcher.speculator.is_some() {
        let texts = waiting.iter().map(|request| speculation::script(request, is_recurrent));
        let scripted = Scripted::new(texts.collect(), random.below(5) as u32);
        batcher.speculator = Some(Speculator::new(Box::new(scripted)));
    }
    waiting.reverse();
    let mut submitted: Vec<Submitted> = vec![];
    let what = format!("mix {seed}, {options:?}, recurrent: {is_recurrent}");
    let mut steps = 0;
    while !waiting.is_empty() || !batcher.is_idle() {
        if (random.one_in(4) || batcher.is_idle())
            && let Some(request) = waiting.pop()
        {
            submitted.push(submit(&mut batcher, request));
        }
        if random.one_in(40) && !submitted.is_empty() {
            let cancelled = &submitted[random.below(submitted.len())].cancelled;
            cancelled.store(true, Ordering::Relaxed);
        }
        step(&mut batcher);
        steps += 1;
        assert!(steps < MAX_STEPS, "{what}: {:?} after {steps} steps", batcher.load());
    }
    submitted
        .iter()
        .for_each(|submitted| submitted.check(is_recurrent, &what));
    assert_eq!(batcher.pool.available(), batcher.pool.count(), "{what}: pages are left");
    let load = batcher.load();
    batcher.close();
    (is_recurrent, load)
}

#[test]
fn random_mixes_get_the_answers_of_each_request_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let loads: Vec<(bool, EngineLoad)> = refrain_testing::sample(0..MIXES, 16)
        .into_iter()
        .map(|seed| check_mix(seed, folder.path()))
        .collect();
    let total = |count: fn(&EngineLoad) -> u64| loads.iter().map(|(_, load)| count(load)).sum::<u64>();
    let accepted = total(|load| load.accepted_tokens.iter().sum());
    let refused = total(|load| load.draft_tokens) - accepted;
    assert!(
        accepted > 100 && refused > 100 && total(|load| load.preemptions) > 0,
        "{accepted}, {refused}"
    );
    let hybrids = loads.iter().filter(|(is_recurrent, _)| *is_recurrent);
    let accepted: u64 = hybrids.flat_map(|(_, load)| load.accepted_tokens).sum();
    assert!(accepted > 30, "{accepted} tokens of drafts with recurrent states");
    let mixed = total(|load| load.mixed_steps);
    assert!(mixed > 100, "{mixed} mixed steps");
}

/// Returns a simulated card with pages for the full context of all requests, and its options.
fn card(streams: usize, context: usize) -> (SimulatedRunner, EngineOptions) {
    card_with(streams, context, streams * context, None)
}

/// As [`card`], with room for so many tokens, and checkpoints of recurrent states if the model has such states.
fn card_with(
    streams: usize,
    context: usize,
    cache_tokens: usize,
    checkpoints: Option<usize>,
) -> (SimulatedRunner, EngineOptions) {
    let options = EngineOptions {
        context,
        streams,
        cache_tokens,
        ..EngineOptions::default()
    };
    let simulation = Simulation {
        costs: CARD,
        slots: streams,
        pages: super::pages_per_slot(&options) * streams,
        pages_each: context.div_ceil(PAGE_SIZE),
        checkpoints,
        synchronous: false,
        mixed_tokens: 512,
        fails_once_in: 0,
        seed: 1,
    };
    let mut runner = SimulatedRunner::new(simulation);
    for rows in widths().take_while(|&rows| rows <= streams) {
        runner.prepare_step((rows, StepExtras::default())).expect("made");
    }
    (runner, options)
}

fn numbered(number: u32, length: u32) -> Vec<u32> {
    (0..length)
        .map(|at| (number * 31 + at * (at + number)) % VOCABULARY)
        .collect()
}

#[test]
fn running_texts_keep_the_target_gap_while_a_long_prompt_is_computed() {
    for texts in [1, 8, 30] {
        let (runner, options) = card(32, 8192);
        let mut batcher = Batcher::with_runner(runner, &options);
        let submit = |batcher: &mut Batcher<SimulatedRunner>, number: u64, length, tokens| {
            let request = TestRequest {
                number,
                prompt: numbered(number as u32, length),
                tokens,
                ..TestRequest::default()
            };
            request.submit(batcher).0
        };
        let running: Vec<_> = (0..texts)
            .map(|number| submit(&mut batcher, number, 40, 4000))
            .collect();
        (0..40).for_each(|_| step(&mut batcher));
        let long = submit(&mut batcher, 99, 4096, 1);
        let mut last = vec![batcher.runner.elapsed(); running.len()];
        let mut longest = Duration::ZERO;
        let (mut steps, start) = (0, batcher.runner.elapsed());
        while long.try_recv().is_err() {
            step(&mut batcher);
            steps += 1;
            let now = batcher.runner.elapsed();
            for (last, events) in last.iter_mut().zip(&running) {
                if events.try_iter().count() > 0 {
                    longest = longest.max(now.saturating_sub(*last));
                    *last = now;
                }
            }
        }
        let took = batcher.runner.elapsed() - start;
        assert!(longest <= options.target_gap, "{texts} texts: {longest:?}");
        assert!(steps < 40, "{texts} texts: {steps} steps, {took:?}");
    }
}

#[test]
fn short_prompts_share_calls() {
    let (runner, options) = card(64, 1024);
    let mut batcher = Batcher::with_runner(runner, &options);
    for number in 0..64 {
        let request = TestRequest {
            number,
            prompt: numbered(number as u32, 65),
            tokens: 1,
            ..TestRequest::default()
        };
        let _ = request.submit(&mut batcher);
    }
    step(&mut batcher);
    assert_eq!((batcher.runner.prefilled, batcher.runner.chunks), (512, 1));
}
