//! Evaluation: on the thread that asks for it, or on one of its own while the program goes on.
//!
//! A program that makes the next token's arrays while the last token's are traced and submitted uses two cores. Whichever
//! thread is faster, the same programs are evaluated: an evaluation on the caller's thread first waits for those that were
//! started before.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use refrain::Array;

use crate::{Result, Value, compute_device};

/// Maximum number of evaluations that wait. A program that is further ahead waits itself, so that its arrays do not
/// fill the memory.
const MAX_WAITING: usize = 4;

/// How long the thread polls for the next evaluation before it sleeps. Waking takes up to 300 µs, and a program that
/// generates tokens starts an evaluation every millisecond or two.
const POLLING: Duration = Duration::from_millis(2);

/// Number of processors from which on the thread polls: it has one for itself then.
const MIN_PROCESSORS: usize = 4;

/// Computes values and waits for them. Every value on the way that is still referenced is kept, too.
///
/// # Errors
/// Fails if memory runs out, if the device does not support an operation, or if it fails.
pub fn eval(values: &[Value]) -> Result<()> {
    if values.is_empty() {
        return Ok(());
    }
    evaluate(values)?;
    synchronize()
}

/// Starts [`eval`] on a thread of its own.
///
/// If it fails, the values stay as they are, and whoever reads them gets the error.
pub fn async_eval(values: &[Value]) {
    if !values.iter().all(Value::is_evaluated) {
        STARTED.push(values.to_vec());
    }
}

/// Waits until everything that [`async_eval`] started is submitted to the device.
pub fn finish_submitting() {
    STARTED.wait(|| false);
}

/// Waits until everything that was started is computed.
///
/// # Errors
/// Fails if the device fails.
pub fn synchronize() -> Result<()> {
    finish_submitting();
    match compute_device().as_vulkan() {
        Some(device) => Ok(device.wait_for_all().map_err(refrain::Error::from)?),
        None => Ok(()),
    }
}

/// [`synchronize`] before a process ends, if it has computed anything: drivers may crash if it ends while they compute.
/// Failures are ignored.
pub fn finish() {
    finish_submitting();
    if compute_device().program_counts().lowerings > 0 {
        let _ = synchronize();
    }
}

/// [`eval`] that returns when the work is submitted.
///
/// # Errors
/// As [`eval`].
pub(crate) fn evaluate(values: &[Value]) -> Result<()> {
    STARTED.wait(|| values.iter().all(Value::is_evaluated));
    submit(values)
}

fn submit(values: &[Value]) -> Result<()> {
    let arrays: Vec<&Array> = values.iter().map(Value::array).collect();
    Ok(refrain::eval_referenced(&arrays)?)
}

/// Whether the device leaves the processors to the program.
fn computes_elsewhere() -> bool {
    let device = compute_device();
    !device.is_cpu() && !device.is_software()
}

/// The evaluations that were started, in their order.
struct Started {
    state: Mutex<State>,
    /// Number of evaluations that wait. Changes under the lock, and is read without it.
    waiting: AtomicUsize,
    /// Notified when an evaluation begins and when it ends.
    changed: Condvar,
}

struct State {
    waiting: VecDeque<Vec<Value>>,
    /// Number of evaluations that were ever started, and of those that ended.
    started: u64,
    ended: u64,
    has_thread: bool,
}

static STARTED: Started = Started {
    state: Mutex::new(State {
        waiting: VecDeque::new(),
        started: 0,
        ended: 0,
        has_thread: false,
    }),
    waiting: AtomicUsize::new(0),
    changed: Condvar::new(),
};

impl Started {
    fn push(&'static self, values: Vec<Value>) {
        let mut state = self.lock();
        if !state.has_thread {
            let thread = thread::Builder::new().name("evaluation".to_owned());
            // Without a thread, the values are computed when they are read.
            let Ok(_) = thread.spawn(|| self.run()) else {
                return;
            };
            state.has_thread = true;
        }
        while state.waiting.len() >= MAX_WAITING {
            state = self.changed(state);
        }
        state.waiting.push_back(values);
        self.waiting.fetch_add(1, Ordering::Release);
        state.started += 1;
        self.changed.notify_all();
    }

    /// Waits until all evaluations that were started by now have ended, or until `is_enough`.
    fn wait(&self, is_enough: impl Fn() -> bool) {
        if is_enough() {
            return;
        }
        let mut state = self.lock();
        let started = state.started;
        while state.ended < started && !is_enough() {
            state = self.changed(state);
        }
    }

    /// Evaluates in the order in which evaluations were started, until the process ends.
    fn run(&self) {
        let polls = thread::available_parallelism().is_ok_and(|processors| processors.get() >= MIN_PROCESSORS);
        let mut state = self.lock();
        let mut idle_since = Instant::now();
        loop {
            let Some(values) = state.waiting.pop_front() else {
                let may_poll = polls && idle_since.elapsed() < POLLING && computes_elsewhere();
                state = if may_poll {
                    drop(state);
                    while self.waiting.load(Ordering::Acquire) == 0 && idle_since.elapsed() < POLLING {
                        std::hint::spin_loop();
                    }
                    self.lock()
                } else {
                    self.changed(state)
                };
                continue;
            };
            self.waiting.fetch_sub(1, Ordering::Release);
            drop(state);
            self.changed.notify_all();
            // What fails here, fails again where the values are read.
            let _ = catch_unwind(AssertUnwindSafe(|| submit(&values)));
            // Before the end is told: arrays must not seem to be in use.
            drop(values);
            state = self.lock();
            state.ended += 1;
            idle_since = Instant::now();
            self.changed.notify_all();
        }
    }

    fn changed<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
