//! The eager executor: submits a plan's steps as command lists, anew at each run.

use std::sync::Arc;

use refrain_vulkan::{Command, CommandList};

use super::executable::Executable;
use super::executor::{Executor, Prepared};
use super::run::Run;
use super::write::Write;
use crate::Error;

/// Submits commands anew at each run.
pub struct Eager;

struct EagerProgram {
    program: Arc<Executable>,
    /// The commands with timestamps around them, if the device measures time. They are recorded anew at each run.
    timed: Option<CommandList>,
}

impl Executor for Eager {
    fn name(&self) -> &'static str {
        "eager"
    }

    fn prepare(&self, program: &Arc<Executable>) -> Result<Box<dyn Prepared>, Error> {
        let device = program.vulkan(self.name())?;
        let timed = (device.has_timestamps() && program.is_tape).then(|| {
            let mut list = program.bound().list()?;
            list.name = "step".to_string();
            let region = "step".to_string();
            list.commands.insert(0, Command::Timestamp { region });
            Ok::<_, Error>(list)
        });
        Ok(Box::new(EagerProgram {
            program: program.clone(),
            timed: timed.transpose()?,
        }))
    }
}

impl Prepared for EagerProgram {
    fn prepare_writes(&self) -> Result<(), Error> {
        self.program.prepare_inbox()
    }

    /// Submits once per run.
    fn play(&self, writes: &[Write], runs: usize) -> Result<Vec<Run>, Error> {
        let program = &self.program;
        let device = program.vulkan(Eager.name())?;
        program.deliver(writes)?;
        let run = |_| match &self.timed {
            Some(list) => Ok(Run {
                submission: Some(device.submit(list)?),
                is_timed: true,
            }),
            None => {
                let in_flight_limit = &program.commands().in_flight_limit;
                let submission = program.bound().submit(device, program.device(), in_flight_limit)?;
                Ok(Run::untimed(submission))
            }
        };
        (0..runs).map(run).collect()
    }
}
