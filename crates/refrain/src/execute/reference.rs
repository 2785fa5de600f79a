//! The CPU executor: each step by the plain-Rust reference of its primitive, in f32, but for products and
//! attention, which [`refrain_kernels::cpu`] computes faster.

mod regions;

use std::sync::Arc;

use refrain_kernels::matmul::WeightRows;
use refrain_kernels::projection::WeightStorage;
use refrain_kernels::{Layout, Values, argmax, cpu, elementwise, matmul, reduce, rms_norm, softmax, take};

use super::executor::{Executor, Prepared, Run};
use super::host::{HostInputs, HostStep, dense};
use super::{BlockMemory, Executable, Write};
use crate::plan::Step;
use crate::{DType, Error, Primitive};

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
    if let Primitive::Operation(operation) = &step.primitive {
        return operation.reference(&host);
    }
    // The inputs' guards are released before the output, which may lie in the same block, is locked.
    let result = compute(step, &host.read());
    host.store(0, &result);
}

fn compute(step: &Step, x: &HostInputs<'_>) -> Values {
    let Layout { shape: out, .. } = &step.outputs[0].layout;
    let count: usize = out.iter().product();
    match &step.primitive {
        Primitive::Elementwise(expression) => {
            let inputs: Vec<Values> = (0..x.count()).map(|n| x.values(n)).collect();
            elementwise::reference(expression, &inputs, count)
        }
        Primitive::Reduce { op, axes } => {
            let (outer, inner) = x.shape(0).split_at(x.shape(0).len() - axes);
            reduce::reference(*op, &x.values(0), outer.iter().product(), inner.iter().product())
        }
        Primitive::Softmax => Values::F32(softmax::reference(&x.f32(0), x.columns(0))),
        Primitive::ArgMax => Values::U32(argmax::reference(&x.values(0), x.columns(0))),
        Primitive::Matmul => Values::F32(product(x)),
        Primitive::QuantMatmul { format } => {
            let mut result = vec![0.0; count];
            let matrix = x.matrix(WeightStorage::Quantised(*format), 1);
            matrix.rows().multiply(&x.f32(0), 0..matrix.shape()[0], &mut result);
            Values::F32(result)
        }
        Primitive::Projection(projection) => regions::project(x, projection, out[0]),
        Primitive::QuantTake { format } => {
            let indices = x.i32(x.count() - 1);
            Values::F32(dequantised_rows(
                &x.matrix(WeightStorage::Quantised(*format), 0).rows(),
                &indices,
            ))
        }
        Primitive::Take { axis } => take::reference(&x.values(0), x.shape(0), &x.values(1), *axis),
        Primitive::Concatenate { axis } => concatenate(x, *axis, out),
        Primitive::RmsNorm { eps, weighted } => {
            let weight = weighted.then(|| x.f32(1));
            Values::F32(rms_norm::reference(&x.f32(0), weight.as_deref(), *eps, x.columns(0)))
        }
        other => unreachable!("{} is no step", other.name()),
    }
}

/// A product of matrices; a right-hand side that is a transposed weight is read row by row.
fn product(x: &HostInputs<'_>) -> Vec<f32> {
    let ([outer @ .., m, k], b) = (x.shape(0), x.layout(1)) else {
        unreachable!("matrices")
    };
    let (rank, batch) = (b.rank(), outer.iter().product::<usize>());
    let n = b.shape[rank - 1];
    if *k == 0 || b.strides[rank - 2..] != [1, *k] {
        return matmul::reference(&x.f32(0), &x.f32(1), batch, *m, *k, n);
    }
    // Where each of the matrices starts; one that repeats is read once for all.
    let mut starts = Vec::with_capacity(batch);
    let strides = b.strides[..rank - 2].to_vec();
    Layout {
        shape: outer.to_vec(),
        strides,
        offset: b.offset,
    }
    .for_each(|start| starts.push(start));
    starts.dedup();
    let (rows, mut result) = (x.f32(0), vec![0.0; batch * m * n]);
    let (left, right) = (rows.len() / starts.len(), result.len() / starts.len());
    for ((start, rows), result) in starts.iter().zip(rows.chunks(left)).zip(result.chunks_mut(right)) {
        let weight = dense(x.dtype(1), [n, *k], &x.bytes(1)[start * x.dtype(1).size()..]);
        weight.multiply(rows, 0..n, result);
    }
    result
}

fn concatenate(x: &HostInputs<'_>, axis: usize, out: &[usize]) -> Values {
    fn join<T: Copy>(parts: &[(Vec<T>, usize)], outer: usize) -> Vec<T> {
        let rows = (0..outer).flat_map(|row| {
            parts
                .iter()
                .flat_map(move |(values, width)| &values[row * width..][..*width])
        });
        rows.copied().collect()
    }
    macro_rules! joined {
        ($variant:ident) => {{
            let parts = (0..x.count()).map(|n| match x.values(n) {
                Values::$variant(values) => (values, x.shape(n)[axis..].iter().product()),
                _ => unreachable!("joined arrays share a dtype"),
            });
            Values::$variant(join(&parts.collect::<Vec<_>>(), out[..axis].iter().product()))
        }};
    }
    match x.dtype(0).compute() {
        DType::F32 => joined!(F32),
        DType::I32 => joined!(I32),
        _ => joined!(U32),
    }
}

/// Rows `indices` of a matrix; zeros for an index outside of it.
fn dequantised_rows(matrix: &dyn WeightRows, indices: &[i32]) -> Vec<f32> {
    let mut out = vec![0.0; indices.len() * matrix.columns()];
    for (row, &index) in out.chunks_exact_mut(matrix.columns()).zip(indices) {
        if let Some(index) = usize::try_from(index).ok().filter(|&i| i < matrix.count()) {
            matrix.read(index, row);
        }
    }
    out
}
