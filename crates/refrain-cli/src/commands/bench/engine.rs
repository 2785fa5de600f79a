//! Requests to the engine that serves: several at once, or with drafts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use cpu_time::ProcessTime;
use refrain_engine::{
    Engine, EngineEvent, EngineLoad, EngineOptions, EngineRequest, EngineTicket, GenerateOptions, Mode, Model, Session,
    Speculation,
};

use super::Arguments;
use super::measure::{Measurement, Test, TestKind, WARM_UP, synthetic_tokens};
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

/// Runs a test as requests to an engine.
///
/// # Errors
/// If the engine cannot start, or a request fails.
pub(super) fn measure(
    loaded: &Loaded,
    test: Test,
    speculation: Speculation,
    arguments: &Arguments,
) -> anyhow::Result<Measurement> {
    let model = &loaded.model;
    let context = test.context().min(model.config().max_position);
    let start = Instant::now();
    let mut options = EngineOptions {
        context,
        streams: test.batch,
        cache_tokens: test.batch * context,
        speculation,
        ..EngineOptions::default()
    };
    arguments.decoding.apply_to(&mut options, model);
    let engine = Engine::start(model, &options)?;
    let prepared = start.elapsed();
    let mut repetition = 0;
    let mut run = || {
        repetition += 1;
        measure_once(&engine, model, &test, repetition)
    };
    let cold = run()?;
    let is_gpu = !model.device().is_cpu() && !model.device().is_software();
    let (mut runs, mut loaded_for) = (1, Duration::ZERO);
    while runs < WARM_UP_RUNS || is_gpu && loaded_for < WARM_UP {
        // A burst of another width may need others.
        wait_for_programs(&engine);
        loaded_for += Duration::from_secs_f64(run()?.seconds);
        runs += 1;
    }
    wait_for_programs(&engine);
    let (calls, mut before) = (engine.load().decode_steps, model.counters());
    let mut repeated = vec![];
    for _ in 0..arguments.repetitions {
        before = model.counters();
        repeated.push(run()?);
    }
    let tokens = test.tokens as f64 * repeated.len() as f64;
    let host: Duration = repeated.iter().map(|repetition| repetition.host).sum();
    let first = repeated.iter().map(|repetition| repetition.first.as_secs_f64());
    // The load is that of the last whole step.
    engine.memory()?;
    let EngineLoad {
        decode_steps,
        step_weight_bytes,
        ..
    } = engine.load();
    let held = (test.depth + test.tokens / 2) as u64;
    // A step with drafts reads more than its part of them.
    let is_plain = test.kind == TestKind::Generate && speculation == Speculation::Off;
    Ok(Measurement {
        test,
        mode: match options.mode {
            Mode::Fixed(executor) => executor.name(),
            Mode::Auto => model.device().executors()[0].name(),
        },
        seconds: repeated.iter().map(|repetition| repetition.seconds).collect(),
        steps: match test.kind {
            TestKind::Prompt => test.tokens,
            TestKind::Generate => test.tokens - 1,
        },
        // Tokens of one step arrive together.
        intervals: vec![],
        gpu_ms_per_token: None,
        host_us_per_token: host.as_secs_f64() * 1e6 / tokens,
        model_calls: decode_steps - calls,
        counters: model.counters() - before,
        weight_bytes: if is_plain { step_weight_bytes } else { 0 },
        kv_bytes: held * Session::kv_bytes_per_token(model.config(), model.cache_types()),
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
struct Submitted {
    _ticket: EngineTicket,
    /// When its tokens arrived.
    arrivals: Receiver<Result<Instant, String>>,
    /// Tokens of its prompt that were cached.
    cached: Arc<AtomicUsize>,
}

fn submit(engine: &Engine, prompt: Vec<u32>, tokens: usize) -> anyhow::Result<Submitted> {
    let options = GenerateOptions {
        max_tokens: Some(tokens),
        ..GenerateOptions::default()
    };
    let (sender, arrivals) = channel();
    let listener = move |event| {
        // The listener may outlive the measurement.
        let _ = match event {
            EngineEvent::Token(_) => sender.send(Ok(Instant::now())),
            EngineEvent::Failed(error) => sender.send(Err(error.to_string())),
            EngineEvent::End(_) | EngineEvent::Embedding(_) | EngineEvent::Logits(_) => Ok(()),
        };
    };
    let request = EngineRequest::new(prompt, options);
    let cached = request.cached_tokens.clone();
    Ok(Submitted {
        _ticket: engine.submit(request, Box::new(listener))?,
        arrivals,
        cached,
    })
}

fn measure_once(engine: &Engine, model: &Model, test: &Test, repetition: usize) -> anyhow::Result<Repetition> {
    let prompts = (0..test.batch).map(|request| prompt(test, request, repetition, model.config().vocab_size));
    let prompts: Vec<Vec<u32>> = prompts.collect();
    let tokens = match test.kind {
        TestKind::Prompt => 1,
        TestKind::Generate => test.tokens,
    };
    let (host, start) = (ProcessTime::now(), Instant::now());
    let requests = prompts.into_iter().map(|prompt| submit(engine, prompt, tokens));
    let requests: Vec<Submitted> = requests.collect::<anyhow::Result<_>>()?;
    let mut arrivals = vec![];
    for request in &requests {
        let tokens: Result<Vec<Instant>, String> = request.arrivals.iter().collect();
        arrivals.push(tokens.map_err(anyhow::Error::msg)?);
    }
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
        host: host.elapsed(),
    })
}
