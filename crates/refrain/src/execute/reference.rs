//! The CPU executor: each step by the plain-Rust reference of its primitive, in f32, but for products and
//! attention, which [`cpu`] computes faster.

mod regions;

use std::borrow::Cow;
use std::sync::RwLockReadGuard;

use refrain_kernels::cpu::{self, FastRows};
use refrain_kernels::matmul::{StoredRows, WeightRows};
use refrain_kernels::quantised::{QuantFormat, QuantRows};
use refrain_kernels::{
    Layout, Values, argmax, attention, elementwise, expert_matmul, matmul, reduce, rms_norm, rope, sample, slots,
    softmax, take, take_along, top_k,
};

use super::{BlockMemory, recurrent};
use crate::operation::{HostArray, Operation};
use crate::plan::{Operand, Step};
use crate::storage::{self, HostBuffer, Storage};
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

/// Computes one step.
pub(super) fn run(step: &Step, memory: &BlockMemory) {
    if !step.outputs.is_empty() && step.outputs.iter().all(|output| output.layout.count() == 0) {
        return;
    }
    match step.primitive {
        Primitive::WriteRows => return write(step, memory),
        Primitive::Sample => return sample_tokens(step, memory),
        Primitive::CausalConv | Primitive::GatedDelta | Primitive::DeltaNet(_) => return recurrent::run(step, memory),
        _ => (),
    }
    if let Primitive::Operation(operation) = &step.primitive {
        return own(step, &**operation, memory);
    }
    if let Primitive::DecodeAttention(params) = &step.primitive {
        return regions::decode_attention(step, params, memory);
    }
    // The inputs' guards are released before the output, which may lie in the same block, is locked.
    let result = compute(step, &StepInputs::lock(&step.inputs, memory));
    store(&step.outputs[0], memory, |bytes, operand| {
        result.store(operand.dtype, &operand.layout, bytes)
    });
}

fn host(storage: &Storage) -> &HostBuffer {
    match &storage.memory {
        storage::Memory::Host(buffer) => buffer,
        storage::Memory::Vulkan(_) => unreachable!("a storage stays with the device that made it"),
    }
}

pub(super) fn store(operand: &Operand, memory: &BlockMemory, write: impl FnOnce(&mut [u8], &Operand)) {
    let (storage, start) = memory.at(operand.place);
    let mut words = host(storage).write();
    let bytes = &mut bytemuck::cast_slice_mut::<u32, u8>(&mut words)[start as usize..];
    write(bytes, operand);
}

/// A step's inputs with their memory locked for reading.
pub(super) struct StepInputs<'a> {
    operands: &'a [Operand],
    memory: &'a BlockMemory,
    /// Each memory once: another thread that waits to write may not come between.
    locked: Vec<(usize, RwLockReadGuard<'a, Vec<u32>>)>,
}

impl<'a> StepInputs<'a> {
    pub(super) fn lock(operands: &'a [Operand], memory: &'a BlockMemory) -> StepInputs<'a> {
        let mut locked: Vec<(usize, RwLockReadGuard<'a, Vec<u32>>)> = Vec::new();
        for operand in operands.iter().filter(|o| o.layout.count() > 0) {
            let (storage, _) = memory.at(operand.place);
            if locked.iter().all(|(key, _)| *key != storage.key()) {
                locked.push((storage.key(), host(storage).read()));
            }
        }
        StepInputs {
            operands,
            memory,
            locked,
        }
    }

    /// Bytes from input `number`'s place on.
    fn bytes(&self, number: usize) -> &[u8] {
        if self.operands[number].layout.count() == 0 {
            return &[];
        }
        let (storage, start) = self.memory.at(self.operands[number].place);
        match self.locked.iter().find(|(key, _)| *key == storage.key()) {
            Some((_, words)) => &bytemuck::cast_slice(words)[start as usize..],
            None => &[],
        }
    }

    fn load(&self, number: usize) -> Values {
        let operand = &self.operands[number];
        Values::load(operand.dtype, &operand.layout, self.bytes(number))
    }

    pub(super) fn f32(&self, number: usize) -> Vec<f32> {
        match self.load(number) {
            Values::F32(values) => values,
            other => unreachable!("input {number} holds {}", other.dtype()),
        }
    }

    /// Indices, whichever integer type they have; what is too large for i32 is outside of any axis.
    pub(super) fn i32(&self, number: usize) -> Vec<i32> {
        match self.load(number) {
            Values::I32(values) => values,
            Values::U32(values) => values
                .into_iter()
                .map(|v| i32::try_from(v).unwrap_or(i32::MAX))
                .collect(),
            Values::F32(_) => unreachable!("input {number} holds floats"),
        }
    }

    pub(super) fn u32(&self, number: usize) -> Vec<u32> {
        match self.load(number) {
            Values::U32(values) => values,
            other => unreachable!("input {number} holds {}", other.dtype()),
        }
    }

    pub(super) fn shape(&self, number: usize) -> &[usize] {
        &self.operands[number].layout.shape
    }

    /// The bytes of input `number` in row-major order: where they lie, or gathered if there are gaps.
    fn gathered(&self, number: usize) -> Cow<'_, [u8]> {
        let operand = &self.operands[number];
        let (layout, size) = (&operand.layout, operand.dtype.size());
        let bytes = self.bytes(number);
        if layout.is_contiguous() {
            return Cow::Borrowed(if layout.count() == 0 {
                &[]
            } else {
                &bytes[layout.offset * size..][..layout.count() * size]
            });
        }
        let mut gathered = Vec::with_capacity(layout.count() * size);
        layout.for_each(|place| gathered.extend_from_slice(&bytes[place * size..][..size]));
        Cow::Owned(gathered)
    }

    /// The planes of a quantised matrix, from input `first` on.
    fn planes(&self, format: QuantFormat, first: usize) -> HostPlanes<'_> {
        let biases = format.has_biases().then(|| self.gathered(first + 2));
        let [rows, words] = *self.shape(first) else {
            unreachable!("planes are matrices")
        };
        HostPlanes {
            format,
            shape: [rows, format.columns(words)],
            parameters: self.operands[first + 1].dtype,
            quants: self.gathered(first),
            scales: self.gathered(first + 1),
            biases,
        }
    }
}

/// A quantised matrix whose planes lie without gaps.
struct HostPlanes<'a> {
    format: QuantFormat,
    shape: [usize; 2],
    parameters: DType,
    quants: Cow<'a, [u8]>,
    scales: Cow<'a, [u8]>,
    biases: Option<Cow<'a, [u8]>>,
}

impl HostPlanes<'_> {
    fn rows(&self) -> FastRows<'_> {
        let biases = self.biases.as_deref();
        let rows = QuantRows::new(
            self.format,
            self.shape,
            &self.quants,
            self.parameters,
            &self.scales,
            biases,
        );
        FastRows::Quantised(rows.expect("planes were checked when the array was made"))
    }
}

/// A float matrix `[rows, columns]` at the start of `bytes`.
fn dense(dtype: DType, [rows, columns]: [usize; 2], bytes: &[u8]) -> FastRows<'_> {
    FastRows::Stored(StoredRows::new(dtype, rows, columns, bytes).expect("a float matrix"))
}

fn compute(step: &Step, x: &StepInputs<'_>) -> Values {
    let Layout { shape: out, .. } = &step.outputs[0].layout;
    let count: usize = out.iter().product();
    let columns = |number: usize| x.shape(number).last().copied().unwrap_or(1);
    match &step.primitive {
        Primitive::Elementwise(expression) => {
            let inputs: Vec<Values> = (0..x.operands.len()).map(|n| x.load(n)).collect();
            elementwise::reference(expression, &inputs, count)
        }
        Primitive::Reduce { op, axes } => {
            let (outer, inner) = x.shape(0).split_at(x.shape(0).len() - axes);
            reduce::reference(*op, &x.load(0), outer.iter().product(), inner.iter().product())
        }
        Primitive::Softmax => Values::F32(softmax::reference(&x.f32(0), columns(0))),
        Primitive::ArgMax => Values::U32(argmax::reference(&x.load(0), columns(0))),
        Primitive::TopK { k } => Values::U32(top_k::reference(&x.load(0), columns(0), *k)),
        Primitive::Matmul => Values::F32(product(x)),
        Primitive::QuantMatmul { format } => {
            let mut result = vec![0.0; count];
            let planes = x.planes(*format, 1);
            planes.rows().multiply(&x.f32(0), 0..planes.shape[0], &mut result);
            Values::F32(result)
        }
        Primitive::Projection(projection) => regions::project(x, projection, out[0]),
        Primitive::QuantTake { format } => {
            let indices = x.i32(x.operands.len() - 1);
            Values::F32(dequantised_rows(&x.planes(*format, 0).rows(), &indices))
        }
        Primitive::Take { axis } => take::reference(&x.load(0), x.shape(0), &x.load(1), *axis),
        Primitive::TakeAlong => take_along::reference(&x.load(0), columns(0), &x.load(1), columns(1)),
        Primitive::Concatenate { axis } => concatenate(x, *axis, out),
        Primitive::Slots { page_size } => Values::I32(slots::reference(
            &x.i32(0),
            &x.u32(1),
            &x.u32(2),
            x.shape(2),
            *page_size,
        )),
        Primitive::RmsNorm { eps, weighted } => {
            let weight = weighted.then(|| x.f32(1));
            Values::F32(rms_norm::reference(&x.f32(0), weight.as_deref(), *eps, columns(0)))
        }
        Primitive::Rope(params) => Values::F32(rope::reference(&x.f32(0), &x.i32(1), &x.f32(2), columns(0), params)),
        Primitive::PagedAttention(params) => Values::F32(attend(x, &x.f32(0), x.shape(0)[1], [1, 2, 3, 4, 5], params)),
        Primitive::ExpertProjection(projection) => regions::experts(x, projection, out[1]),
        Primitive::ExpertMatmul { format } => Values::F32(routed(x, *format, out)),
        other => unreachable!("{} is no step", other.name()),
    }
}

/// A product of matrices; a right-hand side that is a transposed weight is read row by row.
fn product(x: &StepInputs<'_>) -> Vec<f32> {
    let ([outer @ .., m, k], b) = (x.shape(0), &x.operands[1]) else {
        unreachable!("matrices")
    };
    let (rank, batch) = (b.layout.rank(), outer.iter().product::<usize>());
    let n = b.layout.shape[rank - 1];
    if *k == 0 || b.layout.strides[rank - 2..] != [1, *k] {
        return matmul::reference(&x.f32(0), &x.f32(1), batch, *m, *k, n);
    }
    // Where each of the matrices starts; one that repeats is read once for all.
    let mut starts = Vec::with_capacity(batch);
    let strides = b.layout.strides[..rank - 2].to_vec();
    Layout {
        shape: outer.to_vec(),
        strides,
        offset: b.layout.offset,
    }
    .for_each(|start| starts.push(start));
    starts.dedup();
    let (rows, mut result) = (x.f32(0), vec![0.0; batch * m * n]);
    let (left, right) = (rows.len() / starts.len(), result.len() / starts.len());
    for ((start, rows), result) in starts.iter().zip(rows.chunks(left)).zip(result.chunks_mut(right)) {
        let weight = dense(b.dtype, [n, *k], &x.bytes(1)[start * b.dtype.size()..]);
        weight.multiply(rows, 0..n, result);
    }
    result
}

/// Products with the matrices of experts, each read once.
fn routed(x: &StepInputs<'_>, format: Option<QuantFormat>, out: &[usize]) -> Vec<f32> {
    let (values, experts, rows) = (x.f32(0), x.u32(1), out[2]);
    match format {
        Some(format) => expert_matmul::reference(&values, &experts, &x.planes(format, 2).rows(), [rows; 2]),
        None => {
            let [all, columns] = [0, 1].map(|d| x.shape(2)[d]);
            let bytes = x.gathered(2);
            let weights = dense(x.operands[2].dtype, [all, columns], &bytes);
            expert_matmul::reference(&values, &experts, &weights, [rows; 2])
        }
    }
}

/// Attention of queries `q` over inputs keys, values, positions, sequences and pages, by number.
fn attend(
    x: &StepInputs<'_>,
    q: &[f32],
    heads: usize,
    inputs: [usize; 5],
    params: &attention::AttentionParams,
) -> Vec<f32> {
    let [keys, values, positions, sequences, pages] = inputs;
    let [slots, kv_heads, head_dim] = *x.shape(keys) else {
        unreachable!("keys have three dimensions")
    };
    let bytes = [keys, values].map(|number| (x.operands[number].dtype, x.gathered(number)));
    let rows = bytes.each_ref().map(|(dtype, bytes)| {
        StoredRows::new(*dtype, slots, kv_heads * head_dim, bytes).expect("keys and values are floats")
    });
    let inputs = attention::AttentionInputs {
        q,
        keys: &rows[0],
        values: &rows[1],
        positions: &x.i32(positions),
        sequences: &x.u32(sequences),
        pages: &x.u32(pages),
        heads,
        kv_heads,
        pages_per_sequence: x.shape(pages)[1],
    };
    let floats = bytes.each_ref().map(|(dtype, bytes)| match dtype {
        DType::F32 => bytemuck::try_cast_slice(bytes).ok(),
        _ => None,
    });
    match floats {
        [Some(keys), Some(values)] if head_dim % cpu::LANES == 0 => cpu::attention(&inputs, keys, values, params),
        _ => attention::reference(&inputs, params),
    }
}

fn concatenate(x: &StepInputs<'_>, axis: usize, out: &[usize]) -> Values {
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
            let parts = (0..x.operands.len()).map(|n| match x.load(n) {
                Values::$variant(values) => (values, x.shape(n)[axis..].iter().product()),
                _ => unreachable!("joined arrays share a dtype"),
            });
            Values::$variant(join(&parts.collect::<Vec<_>>(), out[..axis].iter().product()))
        }};
    }
    match x.operands[0].dtype.compute() {
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

/// Writes rows into a state, in place and touching nothing else of it.
fn write(step: &Step, memory: &BlockMemory) {
    let inputs = StepInputs::lock(&step.inputs[1..], memory);
    let (rows, slots) = (inputs.load(0), inputs.i32(1));
    drop(inputs);
    write_rows(&step.inputs[0], &rows, &slots, memory);
}

fn write_rows(state: &Operand, rows: &Values, slots: &[i32], memory: &BlockMemory) {
    store(state, memory, |bytes, state| {
        let width = state.layout.shape[1..].iter().product::<usize>();
        for (t, &slot) in slots.iter().enumerate() {
            let Some(slot) = usize::try_from(slot).ok().filter(|&s| s < state.layout.shape[0]) else {
                continue;
            };
            let place = Layout {
                offset: slot * width,
                ..Layout::contiguous(&[width])
            };
            rows.slice(t * width..(t + 1) * width).store(state.dtype, &place, bytes);
        }
    });
}

/// An operation by its own reference.
fn own(step: &Step, operation: &dyn Operation, memory: &BlockMemory) {
    let x = StepInputs::lock(&step.inputs, memory);
    let elements = |number| HostArray {
        values: x.load(number),
        shape: x.shape(number).to_vec(),
    };
    let mut inputs: Vec<HostArray> = (0..step.inputs.len()).map(elements).collect();
    drop(x);
    let results = operation.reference(&mut inputs);
    let updated = operation.updates().iter();
    let updated = updated.map(|&number| (&step.inputs[number], &inputs[number].values));
    for (operand, values) in updated.chain(step.outputs.iter().zip(&results)) {
        store(operand, memory, |bytes, operand| {
            values.store(operand.dtype, &operand.layout, bytes)
        });
    }
}

/// Samples, and goes on to the next tokens in place.
fn sample_tokens(step: &Step, memory: &BlockMemory) {
    let x = StepInputs::lock(&step.inputs, memory);
    let (logits, settings, mut positions) = (x.f32(0), x.u32(1), x.i32(3));
    let [mut tokens, mut history, mut counts, mut outbox] = [2, 4, 5, 6].map(|number| x.u32(number));
    let bias = if step.inputs.len() > 7 { x.f32(7) } else { vec![] };
    drop(x);
    let mut state = sample::SampleState {
        tokens: &mut tokens,
        positions: &mut positions,
        history: &mut history,
        counts: &mut counts,
        outbox: &mut outbox,
    };
    let reported = sample::reference(&logits, &settings, &bias, &mut state);
    let written = [
        (&step.inputs[2], Values::U32(tokens)),
        (&step.inputs[3], Values::I32(positions)),
        (&step.inputs[4], Values::U32(history)),
        (&step.inputs[5], Values::U32(counts)),
        (&step.inputs[6], Values::U32(outbox)),
        (&step.outputs[0], Values::U32(reported)),
    ];
    for (operand, values) in written {
        store(operand, memory, |bytes, operand| {
            values.store(operand.dtype, &operand.layout, bytes)
        });
    }
}
