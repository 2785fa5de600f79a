//! Text generation by the engine that serves requests, with synthetic drafts or without.

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use cpu_time::ProcessTime;
use refrain_engine::{
    Engine, EngineEvent, EngineOptions, EngineRequest, EngineTicket, GenerateOptions, Model, Speculation,
};

use super::measure::{Measurement, Test, synthetic_tokens};
use crate::load::Loaded;

/// Unmeasured runs, in which the engine learns how long steps take.
const WARM_UP_RUNS: usize = 2;
/// How often the engine is asked whether it made all programs.
const PREPARATION_POLL: Duration = Duration::from_millis(5);

/// One repetition.
struct Repetition {
    /// Time from the requests to the first token of each.
    first: Duration,
    /// Time for `steps` tokens of each request.
    seconds: f64,
    host: Duration,
}

/// Runs a test of text generation as requests to an engine.
///
/// # Errors
/// If the engine cannot start, or a request fails.
pub(super) fn measure(
    loaded: &Loaded,
    test: Test,
    speculation: Speculation,
    repetitions: u32,
) -> anyhow::Result<Measurement> {
    let model = &loaded.model;
    let context = test.context().min(model.config().max_position);
    let start = Instant::now();
    let options = EngineOptions {
        context,
        streams: test.batch,
        cache_tokens: test.batch * context,
        speculation,
        ..EngineOptions::default()
    };
    let engine = Engine::start(model, &options)?;
    let prepared = start.elapsed();
    let cold = generate(&engine, model, &test)?;
    wait_for_programs(&engine);
    for _ in 1..WARM_UP_RUNS {
        generate(&engine, model, &test)?;
    }
    let (calls, mut before) = (engine.load().decode_steps, model.counters());
    let mut repeated = vec![];
    for _ in 0..repetitions {
        before = model.counters();
        repeated.push(generate(&engine, model, &test)?);
    }
    let tokens = test.tokens as f64 * repeated.len() as f64;
    let host: Duration = repeated.iter().map(|repetition| repetition.host).sum();
    let first = repeated.iter().map(|repetition| repetition.first.as_secs_f64());
    Ok(Measurement {
        test,
        mode: model.device().executors()[0].name(),
        seconds: repeated.iter().map(|repetition| repetition.seconds).collect(),
        steps: test.tokens - 1,
        // Tokens of one step arrive together.
        intervals: vec![],
        gpu_ms_per_token: None,
        host_us_per_token: host.as_secs_f64() * 1e6 / tokens,
        model_calls: engine.load().decode_steps - calls,
        counters: model.counters() - before,
        weight_bytes: 0,
        kv_bytes: 0,
        arena_bytes: None,
        prepare_ms: prepared.as_secs_f64() * 1e3,
        ttft_cold_ms: cold.first.as_secs_f64() * 1e3,
        ttft_warm_ms: first.fold(f64::INFINITY, f64::min) * 1e3,
    })
}

/// Waits until the engine made the programs that requests may need, so that none is compiled while it is measured.
fn wait_for_programs(engine: &Engine) {
    while engine.load().programs_to_make > 0 && !engine.has_failed() {
        std::thread::sleep(PREPARATION_POLL);
    }
}

/// A request, and when its tokens arrived.
type Submitted = (EngineTicket, Receiver<Result<Instant, String>>);

fn submit(engine: &Engine, model: &Model, test: &Test) -> anyhow::Result<Submitted> {
    let prompt = synthetic_tokens(test.depth + 1, model.config().vocab_size);
    let options = GenerateOptions {
        max_tokens: Some(test.tokens),
        ..GenerateOptions::default()
    };
    let (sender, arrivals) = channel();
    let listener = move |event| {
        // The listener may outlive the measurement.
        let _ = match event {
            EngineEvent::Token(_) => sender.send(Ok(Instant::now())),
            EngineEvent::Failed(error) => sender.send(Err(error.to_string())),
            EngineEvent::End(_) | EngineEvent::Embedding(_) => Ok(()),
        };
    };
    let ticket = engine.submit(EngineRequest::new(prompt, options), Box::new(listener))?;
    Ok((ticket, arrivals))
}

fn generate(engine: &Engine, model: &Model, test: &Test) -> anyhow::Result<Repetition> {
    let (host, start) = (ProcessTime::now(), Instant::now());
    let requests = (0..test.batch).map(|_| submit(engine, model, test));
    let requests: Vec<Submitted> = requests.collect::<anyhow::Result<_>>()?;
    let mut arrivals = vec![];
    for (_ticket, received) in &requests {
        let tokens: Result<Vec<Instant>, String> = received.iter().collect();
        arrivals.push(tokens.map_err(anyhow::Error::msg)?);
    }
    let begin = arrivals.iter().filter_map(|tokens| tokens.first()).max();
    let begin = *begin.unwrap_or(&start);
    let end = arrivals.iter().flatten().max().copied().unwrap_or(begin);
    // Tokens that arrived before all requests had one do not count.
    let counted = arrivals.iter().flatten().filter(|arrival| **arrival > begin).count();
    let steps = ((test.tokens - 1) * test.batch) as f64;
    Ok(Repetition {
        first: begin - start,
        seconds: (end - begin).as_secs_f64() * steps / counted.max(1) as f64,
        host: host.elapsed(),
    })
}
