//! The tests and their measurement.

use std::time::{Duration, Instant};

use cpu_time::ThreadTime;
use refrain_engine::{Sampler, SamplerOptions, Session, Speculation};
use refrain_lm::sample::Settings;
use refrain_vulkan::Counters;

use super::{Arguments, engine};
use crate::load::Loaded;

/// Maximum runs until the decoding mode of short tests is chosen, which takes one run of 96 tokens.
const MAX_MODE_RUNS: usize = 12;

/// Time that the GPU is kept busy before prompts are measured: its clocks fall while kernels are compiled.
pub(super) const WARM_UP: Duration = Duration::from_millis(150);

/// What a test measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TestKind {
    /// Processing a prompt, until its last logits are on the host.
    Prompt,
    /// Generating, from the first to the last token that the host receives.
    Generate,
}

/// One test.
#[derive(Debug, Clone, Copy)]
pub(super) struct Test {
    pub kind: TestKind,
    pub tokens: usize,
    pub depth: usize,
    pub batch: usize,
    /// What the engine drafts with, if that is asked for.
    pub speculation: Option<Speculation>,
}

impl Test {
    /// The test's name, as in llama-bench.
    pub fn name(&self) -> String {
        match self.kind {
            TestKind::Prompt => format!("pp{}", self.tokens),
            TestKind::Generate => format!("tg{}", self.tokens),
        }
    }

    /// Context length that the test needs, in tokens.
    pub fn context(&self) -> usize {
        self.depth + self.tokens + 2
    }
}

/// The measurements of one test.
#[derive(Debug, Clone)]
pub(super) struct Measurement {
    pub test: Test,
    pub mode: &'static str,
    /// Seconds of each repetition, for `steps` tokens of each request: all but the first for generation.
    pub seconds: Vec<f64>,
    pub steps: usize,
    /// Sorted milliseconds between generated tokens. Tokens of one submission share their interval.
    pub intervals: Vec<f64>,
    pub gpu_ms_per_token: Option<f64>,
    /// CPU time per token: of the thread, or of the process if an engine generates.
    pub host_us_per_token: f64,
    pub model_calls: u64,
    /// Counters of the last repetition.
    pub counters: Counters,
    pub weight_bytes: u64,
    pub kv_bytes: u64,
    /// `None` if unknown.
    pub arena_bytes: Option<u64>,
    /// Time to trace and compile before the first repetition.
    pub prepare_ms: f64,
    pub ttft_cold_ms: f64,
    pub ttft_warm_ms: f64,
}

/// Runs all tests of a model, each in a session or an engine of its own.
pub(super) fn measure_all(loaded: &Loaded, tests: &[Test], arguments: &Arguments) -> anyhow::Result<Vec<Measurement>> {
    tests
        .iter()
        .map(|test| match test.speculation {
            None if test.batch == 1 => measure_test(loaded, *test, arguments),
            speculation => engine::measure(loaded, *test, speculation.unwrap_or_default(), arguments),
        })
        .collect()
}

/// Returns the token ids of a text, spread over the vocabulary.
pub(super) fn synthetic_tokens(text: usize, tokens: usize, vocabulary: usize) -> Vec<u32> {
    /// Tokens from the beginning of a text to that of the next; a prime number.
    const STRIDE: usize = 7919;
    let at = |i: usize| ((text * STRIDE + i) as u64 * 0x9E37_79B9 % vocabulary as u64) as u32;
    (0..tokens).map(at).collect()
}

/// One repetition.
struct Repetition {
    first: Duration,
    seconds: f64,
    intervals: Vec<f64>,
    host: Duration,
    counters: Counters,
}

fn measure_test(loaded: &Loaded, test: Test, arguments: &Arguments) -> anyhow::Result<Measurement> {
    let model = &loaded.model;
    let context = test.context().min(model.config().max_position);
    let mut session = Session::new(model, context)?;
    arguments.decoding.apply(&mut session);
    let measure = |session: &mut Session| match test.kind {
        TestKind::Prompt => prompt(session, &test),
        TestKind::Generate => generate(session, &test),
    };
    let run = |session: &mut Session| {
        fill_context(session, test.depth)?;
        measure(session)
    };
    fill_context(&mut session, test.depth)?;
    let prepared = prepare(&mut session, &test)?;
    // Chooses a mode and raises the clocks.
    let cold = measure(&mut session)?;
    let is_gpu = !model.device().is_cpu() && !model.device().is_software();
    let mut loaded_for = Duration::ZERO;
    while is_gpu && test.kind == TestKind::Prompt && loaded_for < WARM_UP {
        loaded_for += Duration::from_secs_f64(run(&mut session)?.seconds);
    }
    for _ in 0..MAX_MODE_RUNS {
        if test.kind != TestKind::Generate || !session.is_undecided() {
            break;
        }
        run(&mut session)?;
    }
    session.device_ms_per_token();
    let calls = session.model_calls();
    let repetitions: Vec<Repetition> = (0..arguments.repetitions)
        .map(|_| run(&mut session))
        .collect::<anyhow::Result<_>>()?;
    let steps = match test.kind {
        TestKind::Prompt => test.tokens,
        TestKind::Generate => test.tokens - 1,
    };
    let total_tokens = test.tokens as f64 * repetitions.len() as f64;
    let mut intervals: Vec<f64> = repetitions.iter().flat_map(|r| r.intervals.iter().copied()).collect();
    intervals.sort_by(f64::total_cmp);
    let host: Duration = repetitions.iter().map(|r| r.host).sum();
    let mode = match test.kind {
        TestKind::Prompt => model.device().evaluator().name(),
        TestKind::Generate => session.mode().0.name(),
    };
    let held = test.depth + test.tokens / 2;
    let kv = Session::kv_bytes_per_token(model.config(), model.cache_types());
    let gpu_ms_per_token = session.device_ms_per_token();
    let (weight_bytes, arena_bytes) = match test.kind {
        TestKind::Prompt => (0, session.memory().scratch_bytes),
        TestKind::Generate => {
            let function = session.decode_function()?;
            (function.weight_bytes(), function.working_bytes())
        }
    };
    Ok(Measurement {
        test,
        mode,
        seconds: repetitions.iter().map(|r| r.seconds).collect(),
        steps,
        intervals,
        gpu_ms_per_token,
        host_us_per_token: host.as_secs_f64() * 1e6 / total_tokens,
        model_calls: session.model_calls() - calls,
        counters: repetitions.last().map(|r| r.counters).unwrap_or_default(),
        weight_bytes,
        kv_bytes: kv * held as u64,
        arena_bytes: Some(arena_bytes),
        prepare_ms: prepared.as_secs_f64() * 1e3,
        ttft_cold_ms: cold.first.as_secs_f64() * 1e3,
        ttft_warm_ms: repetitions
            .iter()
            .map(|r| r.first.as_secs_f64())
            .fold(f64::INFINITY, f64::min)
            * 1e3,
    })
}

/// Fills the context with `depth` tokens.
fn fill_context(session: &mut Session, depth: usize) -> anyhow::Result<()> {
    session.rewind(0);
    if depth > 0 {
        session.prefill(&synthetic_tokens(0, depth, session.model().config().vocab_size))?;
    }
    Ok(())
}

/// Traces and compiles ahead, as `refrain run` does; returns how long that took.
fn prepare(session: &mut Session, test: &Test) -> anyhow::Result<Duration> {
    let start = Instant::now();
    match test.kind {
        TestKind::Prompt => session.prepare_prefill(test.tokens)?,
        TestKind::Generate => session.prepare(1)?,
    }
    Ok(start.elapsed())
}

fn prompt(session: &mut Session, test: &Test) -> anyhow::Result<Repetition> {
    let vocabulary = session.model().config().vocab_size;
    let tokens = synthetic_tokens(0, test.tokens, vocabulary);
    let (before, host, start) = (session.model().counters(), ThreadTime::now(), Instant::now());
    session.prefill(&tokens)?;
    let taken = start.elapsed();
    Ok(Repetition {
        first: taken,
        seconds: taken.as_secs_f64(),
        intervals: vec![],
        host: host.elapsed(),
        counters: session.model().counters() - before,
    })
}

fn generate(session: &mut Session, test: &Test) -> anyhow::Result<Repetition> {
    let model = session.model().clone();
    let vocabulary = model.config().vocab_size;
    let settings = Settings {
        last_position: (test.depth + test.tokens) as u32,
        ..Sampler::new(SamplerOptions::default())?.settings()
    };
    // Work submitted before the first token arrives counts too.
    let (before, host, start) = (model.counters(), ThreadTime::now(), Instant::now());
    let mut stream = session.stream(&synthetic_tokens(0, 1, vocabulary), &settings)?;
    stream.next_tokens()?;
    let (first, begin) = (start.elapsed(), Instant::now());
    let (mut last, mut together, mut intervals) = (begin, 0, Vec::with_capacity(test.tokens));
    for _ in 1..test.tokens {
        stream.next_tokens()?;
        together += 1;
        if !stream.has_next() {
            let now = Instant::now();
            let each = (now - last).as_secs_f64() * 1e3 / f64::from(together);
            intervals.extend((0..together).map(|_| each));
            (last, together) = (now, 0);
        }
    }
    let end = Instant::now();
    let host = host.elapsed();
    let counters = model.counters() - before;
    stream.end()?;
    Ok(Repetition {
        first,
        seconds: (end - begin).as_secs_f64(),
        intervals,
        host,
        counters,
    })
}
