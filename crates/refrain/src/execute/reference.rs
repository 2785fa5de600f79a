//! The CPU executor: computes each step by the plain-Rust reference of its primitive, in f32. Matrix products and
//! attention use the faster [`refrain_kernels::cpu`].

use std::sync::Arc;

use refrain_kernels::{Values, cpu, elementwise};

use super::executable::Executable;
use super::executor::{Executor, Prepared};
use super::host::HostStep;
use super::memory::BlockMemory;
use super::run::Run;
use super::write::Write;
use crate::plan::Step;
use crate::{Error, Primitive};

/// The CPU executor.
pub struct Reference;

struct CpuProgram(Arc<Executable>);

impl Executor for Reference {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn prepare(&self, program: &Arc<Executable>) -> Result<Box<dyn Prepared>, Error> {
        if !program.device().is_cpu() {
            let what = "the CPU executor runs only programs of the CPU device";
            return Err(Error::Call(what.to_string()));
        }
        Ok(Box::new(CpuProgram(program.clone())))
    }
}

impl Prepared for CpuProgram {
    fn play(&self, writes: &[Write], runs: usize) -> Result<Vec<Run>, Error> {
        let CpuProgram(program) = self;
        program.deliver(writes)?;
        let steps = &program.plan().steps;
        let run_once = |_| {
            cpu::with_awake_pool(|| steps.iter().for_each(|step| run(step, &program.memory)));
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
        other => unreachable!("{} is not lowered to a step", other.name()),
    }
}
