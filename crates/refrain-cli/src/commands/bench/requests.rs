//! One run of a test: its requests, and when their tokens arrive.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use cpu_time::ProcessTime;
use refrain_engine::{Engine, EngineEvent, EngineRequest, EngineTicket, GenerateOptions, PromptOutputs};

use super::measure::{Test, TestKind};

/// One run.
pub(super) struct Repetition {
    /// Time from the requests to the first token of each, or to the logits of a prompt.
    pub first: Duration,
    /// Time for `steps` tokens of each request.
    pub seconds: f64,
    /// Milliseconds between the tokens of a single request.
    pub intervals: Vec<f64>,
    pub host: Duration,
}

/// Returns the token ids of a text, spread over the vocabulary.
fn synthetic_tokens(text: usize, tokens: usize, vocabulary: usize) -> Vec<u32> {
    /// Tokens from the beginning of a text to that of the next; a prime number.
    const STRIDE: usize = 7919;
    let at = |i: usize| ((text * STRIDE + i) as u64 * 0x9E37_79B9 % vocabulary as u64) as u32;
    (0..tokens).map(at).collect()
}

/// Returns the prompt of a request. Requests share nothing; those of later repetitions share the tokens up to the depth.
fn prompt(test: &Test, request: usize, repetition: usize, vocabulary: usize) -> Vec<u32> {
    match test.kind {
        TestKind::Generate => synthetic_tokens(request, test.depth + 1, vocabulary),
        TestKind::Prompt => {
            let new = synthetic_tokens(repetition * test.batch + request, test.tokens, vocabulary);
            [synthetic_tokens(request, test.depth, vocabulary), new].concat()
        }
    }
}

/// A request.
pub(super) struct Submitted {
    _ticket: EngineTicket,
    /// When its tokens arrived.
    arrivals: Receiver<Result<Instant, String>>,
    /// Tokens of its prompt that were cached.
    cached: Arc<AtomicUsize>,
}

impl Submitted {
    /// Waits for its end, and returns when its tokens arrived.
    ///
    /// # Errors
    /// If it fails.
    pub fn arrivals(&self) -> anyhow::Result<Vec<Instant>> {
        let arrivals: Result<Vec<Instant>, String> = self.arrivals.iter().collect();
        arrivals.map_err(anyhow::Error::msg)
    }
}

/// Has the engine compute and cache what comes before a single request.
///
/// # Errors
/// If the request fails.
pub(super) fn fill(engine: &Engine, test: &Test) -> anyhow::Result<()> {
    let before = synthetic_tokens(0, test.depth, engine.vocabulary());
    // A request is cancelled when it is dropped.
    let submitted = submit(engine, before, 1)?;
    submitted.arrivals().map(drop)
}

/// Submits a request for `tokens` tokens, or for the logits after the prompt if that is 0.
///
/// # Errors
/// If the engine refuses it.
pub(super) fn submit(engine: &Engine, prompt: Vec<u32>, tokens: usize) -> anyhow::Result<Submitted> {
    let options = GenerateOptions {
        max_tokens: Some(tokens),
        ..GenerateOptions::default()
    };
    let (sender, arrivals) = channel();
    let listener = move |event| {
        // The listener may outlive the measurement.
        let _ = match event {
            EngineEvent::Token(_) | EngineEvent::Logits(_) => sender.send(Ok(Instant::now())),
            EngineEvent::Failed(error) => sender.send(Err(error.to_string())),
            EngineEvent::End(_) | EngineEvent::Embedding(_) => Ok(()),
        };
    };
    let outputs = PromptOutputs::Logits { from: prompt.len() - 1 };
    let request = EngineRequest {
        prompt_outputs: (tokens == 0).then_some(outputs),
        ..EngineRequest::new(prompt, options)
    };
    let cached = request.cached_tokens.clone();
    Ok(Submitted {
        _ticket: engine.submit(request, Box::new(listener))?,
        arrivals,
        cached,
    })
}

pub(super) fn measure_once(engine: &Engine, test: &Test, repetition: usize) -> anyhow::Result<Repetition> {
    let prompts = (0..test.batch).map(|request| prompt(test, request, repetition, engine.vocabulary()));
    let prompts: Vec<Vec<u32>> = prompts.collect();
    let tokens = match test.kind {
        TestKind::Prompt if test.batch == 1 => 0,
        TestKind::Prompt => 1,
        TestKind::Generate => test.tokens,
    };
    let (host, start) = (ProcessTime::now(), Instant::now());
    let requests = prompts.into_iter().map(|prompt| submit(engine, prompt, tokens));
    let requests: Vec<Submitted> = requests.collect::<anyhow::Result<_>>()?;
    let arrivals: Vec<Vec<Instant>> = requests.iter().map(Submitted::arrivals).collect::<Result<_, _>>()?;
    let begin = arrivals.iter().filter_map(|tokens| tokens.first()).max();
    let begin = *begin.unwrap_or(&start);
    let end = arrivals.iter().flatten().max().copied().unwrap_or(begin);
    let (time, counted, steps) = match test.kind {
        TestKind::Prompt => {
            // Tokens after the last cached page are computed again.
            let cached = requests.iter().map(|request| request.cached.load(Ordering::Relaxed));
            let cached: usize = cached.sum();
            let computed = test.batch * (test.depth + test.tokens) - cached;
            (begin - start, computed, test.tokens)
        }
        TestKind::Generate => {
            // Tokens that arrived before all requests had one do not count.
            let counted = arrivals.iter().flatten().filter(|arrival| **arrival > begin).count();
            (end - begin, counted, test.tokens - 1)
        }
    };
    Ok(Repetition {
        first: begin - start,
        seconds: time.as_secs_f64() * (steps * test.batch) as f64 / counted.max(1) as f64,
        intervals: match &arrivals[..] {
            [single] => intervals(single),
            // Tokens of one step arrive together.
            _ => vec![],
        },
        host: host.elapsed(),
    })
}

/// Returns the milliseconds between tokens. Tokens that arrive together share their interval.
fn intervals(arrivals: &[Instant]) -> Vec<f64> {
    let [first, .., last] = arrivals else { return vec![] };
    let mean = (*last - *first) / (arrivals.len() - 1) as u32;
    let (mut begin, mut together, mut intervals) = (*first, 0, vec![]);
    for (at, arrival) in arrivals.iter().enumerate().skip(1) {
        together += 1;
        let next = arrivals.get(at + 1);
        if next.is_none_or(|next| *next - *arrival > mean / 2) {
            let each = (*arrival - begin).as_secs_f64() * 1e3 / together as f64;
            intervals.extend(std::iter::repeat_n(each, together));
            (begin, together) = (*arrival, 0);
        }
    }
    intervals
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_that_arrive_together_share_their_interval() {
        let start = Instant::now();
        let at = |times: &[u64]| {
            times
                .iter()
                .map(|ms| start + Duration::from_millis(*ms))
                .collect::<Vec<_>>()
        };
        assert_eq!(intervals(&at(&[0, 10, 20, 31])), [10.0, 10.0, 11.0]);
        assert_eq!(intervals(&at(&[0, 20, 20, 40, 40])), [10.0; 4]);
        assert_eq!(intervals(&at(&[5])), [0.0; 0]);
    }
}
