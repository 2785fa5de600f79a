//! The tests and their measurement.

use std::time::{Duration, Instant};

use refrain_engine::{Engine, EngineOptions, Mode, Restriction, Speculation, StepCost};
use refrain_vulkan::Counters;

use super::requests::{fill, measure_once};
use super::{Arguments, modes};
use crate::load::Loaded;

/// Time that the GPU is kept busy before it is measured: its clocks fall while kernels are compiled.
const WARM_UP: Duration = Duration::from_millis(150);
/// Unmeasured runs, in which the engine learns how long steps take.
const WARM_UP_RUNS: usize = 2;
/// How often the engine is asked whether it made all programs.
const PREPARATION_POLL: Duration = Duration::from_millis(5);

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

    /// Whether tokens are decoded one by one.
    pub fn is_plain(&self) -> bool {
        self.kind == TestKind::Generate && self.speculation.unwrap_or_default() == Speculation::Off
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
    /// CPU time of the process per token.
    pub host_us_per_token: f64,
    pub model_calls: u64,
    /// Counters of the last repetition.
    pub counters: Counters,
    pub weight_bytes: u64,
    pub kv_bytes: u64,
    pub arena_bytes: u64,
    /// Time to start the engine, and to compile what a text needs. Programs of prompts are compiled by their first run.
    pub prepare_ms: f64,
    pub ttft_cold_ms: f64,
    pub ttft_warm_ms: f64,
}

/// Runs all tests of a model, each in an engine of its own.
///
/// # Errors
/// If an engine cannot start, or a request fails.
pub(super) fn measure_all(loaded: &Loaded, tests: &[Test], arguments: &Arguments) -> anyhow::Result<Vec<Measurement>> {
    if tests.iter().any(Test::is_plain) {
        modes::choose(&loaded.model, &arguments.decoding)?;
    }
    tests.iter().map(|test| measure(loaded, *test, arguments)).collect()
}

/// Runs a test as requests to an engine.
fn measure(loaded: &Loaded, test: Test, arguments: &Arguments) -> anyhow::Result<Measurement> {
    let model = &loaded.model;
    let context = test.context().min(model.config().max_position);
    let start = Instant::now();
    let mut options = EngineOptions {
        context,
        streams: test.batch,
        cache_tokens: test.batch * context,
        // Prompts are cut where later ones could go on.
        prefix_cache: test.depth > 0,
        prepares: test.batch > 1 || test.speculation.is_some(),
        speculation: test.speculation.unwrap_or_default(),
        ..EngineOptions::default()
    };
    arguments.decoding.apply_to(&mut options, model);
    let engine = Engine::start(model, &options)?;
    if !options.prepares && test.kind == TestKind::Generate {
        engine.prepare((0, test.depth + 1), Restriction::Never)?;
    }
    let prepared = start.elapsed();
    if test.batch == 1 && test.depth > 0 {
        fill(&engine, &test)?;
    }
    let mut repetition = 0;
    let mut run = || {
        repetition += 1;
        measure_once(&engine, &test, repetition)
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
    engine.step_cost()?;
    let (calls, mut before) = (engine.load().decode_steps, model.counters());
    let mut repeated = vec![];
    for _ in 0..arguments.repetitions {
        before = model.counters();
        repeated.push(run()?);
    }
    let counters = model.counters() - before;
    let tokens = test.tokens as f64 * repeated.len() as f64;
    let host: Duration = repeated.iter().map(|repetition| repetition.host).sum();
    let first = repeated.iter().map(|repetition| repetition.first.as_secs_f64());
    let mut intervals: Vec<f64> = repeated.iter().flat_map(|run| run.intervals.iter().copied()).collect();
    intervals.sort_by(f64::total_cmp);
    // The load is that of the last whole step.
    let memory = engine.memory()?;
    let step = engine.step_cost()?.filter(|_| test.is_plain());
    let held = (test.depth + test.tokens / 2) as u64;
    Ok(Measurement {
        test,
        mode: match (test.kind, options.mode) {
            (TestKind::Prompt, _) => model.device().evaluator().name(),
            (_, Mode::Fixed(executor)) => executor.name(),
            (_, Mode::Auto) => model.device().executors()[0].name(),
        },
        seconds: repeated.iter().map(|repetition| repetition.seconds).collect(),
        steps: match test.kind {
            TestKind::Prompt => test.tokens,
            TestKind::Generate => test.tokens - 1,
        },
        intervals,
        gpu_ms_per_token: step.and_then(|step| step.device_ms),
        host_us_per_token: host.as_secs_f64() * 1e6 / tokens,
        model_calls: engine.load().decode_steps - calls,
        counters,
        // A step with drafts reads more than its part of them.
        weight_bytes: step.map_or(0, |step| step.weight_bytes),
        kv_bytes: held * model.cache_types().bytes_per_token(model.config()),
        arena_bytes: step.map_or(memory.scratch_bytes, |step: StepCost| step.working_bytes),
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
