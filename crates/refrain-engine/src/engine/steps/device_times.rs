//! Device time of decode steps, on devices that measure time.

use refrain::{Executor, Run};

use super::DecodeSteps;
use crate::engine::StepCost;
use crate::step::DecodeStep;

/// Times of the step in use.
#[derive(Default)]
pub(super) struct DeviceTimes {
    /// Runs that are over and were not read yet: several at once, because each reading costs time.
    unread: Vec<Run>,
    /// Sum in microseconds, and number of runs.
    total: (f64, u64),
}

impl DeviceTimes {
    /// Notes that a run is over.
    pub fn add(&mut self, run: &Run) {
        if run.is_timed() {
            self.unread.push(*run);
        }
    }

    /// Reads the times of the runs that are over.
    pub fn read(&mut self, step: &mut DecodeStep, executor: &'static dyn Executor) {
        for run in std::mem::take(&mut self.unread) {
            if let Ok(tape) = step.tape(executor)
                && let Some(us) = tape.device_time(&run)
            {
                self.total = (self.total.0 + us, self.total.1 + 1);
            }
        }
    }

    /// Returns the mean in milliseconds, and begins a new one.
    pub fn take_mean(&mut self) -> Option<f64> {
        let (us, runs) = std::mem::take(&mut self.total);
        (runs > 0).then(|| us / 1e3 / runs as f64)
    }
}

impl DecodeSteps {
    /// Returns what the step in use costs, and begins a new mean of its device time.
    pub fn cost(&mut self) -> Option<StepCost> {
        self.device_times
            .read(self.by_kind.get_mut(&(self.rows.len(), self.extras))?, self.executor);
        let function = self.step().function();
        Some(StepCost {
            weight_bytes: function.weight_bytes(),
            working_bytes: function.working_bytes(),
            device_ms: self.device_times.take_mean(),
        })
    }
}
