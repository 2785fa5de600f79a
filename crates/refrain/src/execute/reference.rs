//! The CPU executor: each step by the plain-Rust reference of its primitive, in f32, but for products and
//! attention, which [`refrain_kernels::cpu`] computes faster.

use std::sync::Arc;

use refrain_kernels::{Values, cpu, elementwise};

use super::executor::{Executor, Prepared, Run};
use super::host::HostStep;
use super::{BlockMemory, Executable, Write};
use crate::plan::Step;
use crate::{Error, Primitive};

/// Fails if there is no memory for the values that a step computes with: a view may repeat one element
/// more often than memory holds.
///
/// # Errors
/// [`Error::HostMemory`].
pub(super) fn check_memory(step: &Step) -> Result<(), Error> {
    let counts = step.inputs.iter().chain(&step.outputs).map(|o| o.layout.count() as u64);
    let bytes = counts.fold(0u64, |all, n| all.saturating_add(n.saturating_mul(4)));
    let fits = usize::try_from(bytes).is_ok_and(|bytes| Vec::<u8>::new().try_reserve_exact(bytes).is_ok());
    if fits { Ok(()) } else { Err(Error::HostMemory { bytes }) }
}

/// The CPU executor.
pub struct Reference;

struct OnHost(Arc<Executable>);

impl Executor for Reference {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn prepare(&self, program: &Arc<Executable>) -> Result<Box<dyn Prepared>, Error> {
        if !program.device().is_cpu() {
            let what = "the CPU executor runs what lies in the host's memory";
            return Err(Error::Call(what.to_string()));
        }
        Ok(Box::new(OnHost(program.clone())))
    }
}

impl Prepared for OnHost {
    fn play(&self, before: Option<&dyn Prepared>, writes: &[Write], runs: usize) -> Result<Vec<Run>, Error> {
        let OnHost(program) = self;
        if let Some(before) = before {
            before.play(None, &[], 1)?;
        }
        program.deliver(writes)?;
        let steps = &program.plan().steps;
        let run_once = |_| {
            cpu::in_team(|| steps.iter().for_each(|step| run(step, &program.memory)));
            Run::untimed(None)
        };
        Ok((0..runs).map(run_once).collect())
    }
}

/// Computes one step.
fn run(step: &Step, memory: &BlockMemory) {
    if !step.outputs.is_empty() && step.outputs.iter().all(|output| output.layout.count() == 0) {
        return;
    }
    let host = HostStep::new(step, memory);
    match &step.primitive {
        Primitive::Operation(operation) => operation.reference(&host),
        Primitive::Elementwise(expression) => host.result(|x| {
            let inputs: Vec<Values> = (0..x.count()).map(|n| x.values(n)).collect();
            elementwise::reference(expression, &inputs, host.result_shape(0).iter().product())
        }),
        other => unreachable!("{} is no step", other.name()),
    }
}
