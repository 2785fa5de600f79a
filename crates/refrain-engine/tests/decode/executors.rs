//! Custom executors: a decode step can be run by executors that the device does not know.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use refrain::execute::{Executable, StepCommand};
use refrain::{Error, Executor, Prepared, Run, Write};
use refrain_engine::{Engine, Mode};

use crate::common::TestGpu;
use crate::{decoded, model, plain, prompt, sampled, seeded};

/// Submits each dispatch on its own.
struct OneDispatchPerSubmit;

struct Dispatches(Arc<Executable>);

impl Executor for OneDispatchPerSubmit {
    fn name(&self) -> &'static str {
        "one-by-one"
    }

    fn prepare(&self, program: &Arc<Executable>) -> Result<Box<dyn Prepared>, Error> {
        Ok(Box::new(Dispatches(program.clone())))
    }
}

impl Prepared for Dispatches {
    fn play(&self, writes: &[Write], runs: usize) -> Result<Vec<Run>, Error> {
        let Dispatches(program) = self;
        program.deliver(writes)?;
        let run = |_| {
            let mut last = None;
            for dispatch in &program.plan().order {
                let (step, call) = (dispatch.step, dispatch.call);
                last = Some(program.submit(&[StepCommand::Call { step, call }])?);
            }
            Ok(last.expect("a decode step has dispatches"))
        };
        (0..runs).map(run).collect()
    }
}

/// Wraps an executor and counts its calls.
struct Counting {
    executor: &'static dyn Executor,
    runs: AtomicUsize,
}

static COUNTING: Counting = Counting {
    executor: &refrain::Replay,
    runs: AtomicUsize::new(0),
};

impl Executor for Counting {
    fn name(&self) -> &'static str {
        "counting"
    }

    fn prepare(&self, program: &Arc<Executable>) -> Result<Box<dyn Prepared>, Error> {
        Ok(Box::new(Counted(self.executor.prepare(program)?)))
    }
}

struct Counted(Box<dyn Prepared>);

impl Prepared for Counted {
    fn play(&self, writes: &[Write], runs: usize) -> Result<Vec<Run>, Error> {
        COUNTING.runs.fetch_add(runs, Ordering::Relaxed);
        self.0.play(writes, runs)
    }
}

#[test]
fn custom_executors_decode_the_same_tokens() {
    if !refrain_testing::drawn(8) {
        return;
    }
    const TOKENS: usize = 20;
    let gpu = TestGpu::open();
    for name in ["tiny:q4_0", "qwen3.5-moe-bf16"] {
        let model = model(name, &gpu.device);
        let run = |mode| {
            let engine = Engine::start(&model, &plain(64, mode)).expect("starts");
            decoded(&engine, &prompt(9), &sampled(seeded(), TOKENS))
        };
        let expected = run(Mode::Fixed(&refrain::Replay));
        assert_eq!(run(Mode::Fixed(&OneDispatchPerSubmit)), expected, "{name}");
        let before = COUNTING.runs.load(Ordering::Relaxed);
        assert_eq!(run(Mode::Fixed(&COUNTING)), expected, "{name}");
        assert_eq!(COUNTING.runs.load(Ordering::Relaxed) - before, TOKENS, "{name}");
    }
    gpu.assert_silent();
}
