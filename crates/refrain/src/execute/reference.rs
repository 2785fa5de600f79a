//! The reference executor: each step by the plain-Rust reference of its primitive, in f32.

use std::sync::RwLockReadGuard;

use refrain_kernels::matmul::{Rows, StoredRows};
use refrain_kernels::quantised::{QuantFormat, QuantRows};
use refrain_kernels::{
    Layout, Values, argmax, attention, elementwise, matmul, reduce, rms_norm, rope, softmax, take, take_along, top_k,
};

use super::Memory;
use crate::Primitive;
use crate::plan::{Block, Operand, Step};
use crate::storage::{self, HostBuffer};

/// Computes one step.
pub(super) fn run(step: &Step, memory: &Memory) {
    if step.output.layout.count() == 0 {
        return;
    }
    if matches!(step.primitive, Primitive::WriteRows) {
        return write(step, memory);
    }
    // The inputs' guards are released before the output, which may lie in the same block, is locked.
    let result = compute(step, &Inputs::lock(&step.inputs, memory));
    store(&step.output, memory, |bytes, operand| {
        result.store(operand.dtype, &operand.layout, bytes)
    });
}

fn host(memory: &Memory, block: Block) -> &HostBuffer {
    match &memory.block(block).memory {
        storage::Memory::Host(buffer) => buffer,
        storage::Memory::Vulkan(_) => unreachable!("a storage stays with the device that made it"),
    }
}

fn store(operand: &Operand, memory: &Memory, write: impl FnOnce(&mut [u8], &Operand)) {
    let mut words = host(memory, operand.place.block).write();
    let bytes = &mut bytemuck::cast_slice_mut::<u32, u8>(&mut words)[operand.place.offset as usize..];
    write(bytes, operand);
}

/// A step's inputs with their memory locked for reading.
struct Inputs<'a> {
    operands: &'a [Operand],
    blocks: Vec<(Block, RwLockReadGuard<'a, Vec<u32>>)>,
}

impl<'a> Inputs<'a> {
    fn lock(operands: &'a [Operand], memory: &'a Memory) -> Inputs<'a> {
        let mut blocks: Vec<(Block, RwLockReadGuard<'a, Vec<u32>>)> = Vec::new();
        for block in operands.iter().filter(|o| o.layout.count() > 0).map(|o| o.place.block) {
            if blocks.iter().all(|(b, _)| *b != block) {
                blocks.push((block, host(memory, block).read()));
            }
        }
        Inputs { operands, blocks }
    }

    /// Bytes from input `number`'s place on.
    fn bytes(&self, number: usize) -> &[u8] {
        let place = self.operands[number].place;
        match self.blocks.iter().find(|(block, _)| *block == place.block) {
            Some((_, words)) => &bytemuck::cast_slice(words)[place.offset as usize..],
            None => &[],
        }
    }

    fn load(&self, number: usize) -> Values {
        let operand = &self.operands[number];
        Values::load(operand.dtype, &operand.layout, self.bytes(number))
    }

    fn f32(&self, number: usize) -> Vec<f32> {
        match self.load(number) {
            Values::F32(values) => values,
            other => unreachable!("input {number} holds {}", other.dtype()),
        }
    }

    /// Indices, whichever integer type they have; what is too large for i32 is outside of any axis.
    fn i32(&self, number: usize) -> Vec<i32> {
        match self.load(number) {
            Values::I32(values) => values,
            Values::U32(values) => values
                .into_iter()
                .map(|v| i32::try_from(v).unwrap_or(i32::MAX))
                .collect(),
            Values::F32(_) => unreachable!("input {number} holds floats"),
        }
    }

    fn u32(&self, number: usize) -> Vec<u32> {
        match self.load(number) {
            Values::U32(values) => values,
            other => unreachable!("input {number} holds {}", other.dtype()),
        }
    }

    fn shape(&self, number: usize) -> &[usize] {
        &self.operands[number].layout.shape
    }

    /// Input `number` `[.., columns]` as rows read where they lie; `None` where they have gaps.
    fn rows(&self, number: usize, columns: usize) -> Option<StoredRows<'_>> {
        let operand = &self.operands[number];
        let layout = &operand.layout;
        let bytes = &self.bytes(number)[layout.offset * operand.dtype.size()..];
        let rows = layout.count().checked_div(columns)?;
        StoredRows::new(operand.dtype, rows, columns, bytes)
            .ok()
            .filter(|_| layout.is_contiguous())
    }

    /// Planes from input `first` on as a quantised matrix.
    fn quantised(&self, format: QuantFormat, first: usize) -> QuantRows<'_> {
        let [rows, words] = *self.shape(first) else {
            unreachable!("planes are matrices")
        };
        let columns = words * format.per_word();
        let plane = |n: usize| {
            let operand = &self.operands[n];
            let (start, bytes) = (
                operand.layout.offset * operand.dtype.size(),
                operand.layout.count() * operand.dtype.size(),
            );
            &self.bytes(n)[start..][..bytes]
        };
        let biases = format.has_biases().then(|| plane(first + 2));
        QuantRows::new(
            format,
            [rows, columns],
            plane(first),
            self.operands[first + 1].dtype,
            plane(first + 1),
            biases,
        )
        .expect("planes were checked when the array was made")
    }
}

fn compute(step: &Step, x: &Inputs<'_>) -> Values {
    let out = &step.output.layout.shape;
    let columns = |number: usize| x.shape(number).last().copied().unwrap_or(1);
    match &step.primitive {
        Primitive::Elementwise(expression) => {
            let inputs: Vec<Values> = (0..x.operands.len()).map(|n| x.load(n)).collect();
            elementwise::reference(expression, &inputs, step.output.layout.count())
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
            let mut result = vec![0.0; step.output.layout.count()];
            matmul::reference_nt(&x.f32(0), &x.quantised(*format, 1), &mut result);
            Values::F32(result)
        }
        Primitive::QuantTake { format } => {
            let indices = x.i32(x.operands.len() - 1);
            Values::F32(dequantised_rows(&x.quantised(*format, 0), &indices))
        }
        Primitive::Take { axis } => take::reference(&x.load(0), x.shape(0), &x.load(1), *axis),
        Primitive::TakeAlong => take_along::reference(&x.load(0), columns(0), &x.load(1), columns(1)),
        Primitive::Concatenate { axis } => concatenate(x, *axis, out),
        Primitive::RmsNorm { eps, weighted } => {
            let weight = weighted.then(|| x.f32(1));
            Values::F32(rms_norm::reference(&x.f32(0), weight.as_deref(), *eps, columns(0)))
        }
        Primitive::Rope(params) => Values::F32(rope::reference(&x.f32(0), &x.i32(1), &x.f32(2), columns(0), params)),
        Primitive::PagedAttention(params) => Values::F32(attend(x, params)),
        other => unreachable!("{} is no step", other.name()),
    }
}

/// A product of matrices; a right-hand side that is a transposed weight is read row by row.
fn product(x: &Inputs<'_>) -> Vec<f32> {
    let (a, b) = (x.shape(0), &x.operands[1]);
    let [outer @ .., m, k] = a else {
        unreachable!("matrices")
    };
    let (batch, n) = (
        outer.iter().product::<usize>(),
        *b.layout.shape.last().expect("a matrix"),
    );
    let rank = b.layout.rank();
    let one_matrix = b.layout.strides[..rank - 2]
        .iter()
        .zip(outer)
        .all(|(&s, &extent)| s == 0 || extent == 1);
    if one_matrix && b.layout.strides[rank - 2..] == [1, *k] {
        let bytes = &x.bytes(1)[b.layout.offset * b.dtype.size()..];
        let weight = StoredRows::new(b.dtype, n, *k, bytes).expect("a float matrix");
        let mut result = vec![0.0; batch * m * n];
        matmul::reference_nt(&x.f32(0), &weight, &mut result);
        return result;
    }
    matmul::reference(&x.f32(0), &x.f32(1), batch, *m, *k, n)
}

fn attend(x: &Inputs<'_>, params: &attention::Params) -> Vec<f32> {
    let (heads, kv_heads) = (x.shape(0)[1], x.shape(1)[1]);
    let row = kv_heads * x.shape(1)[2];
    let (keys, values) = (x.rows(1, row), x.rows(2, row));
    let inputs = attention::Inputs {
        q: &x.f32(0),
        keys: &keys.expect("states lie without gaps"),
        values: &values.expect("states lie without gaps"),
        positions: &x.i32(3),
        sequences: &x.u32(4),
        pages: &x.u32(5),
        heads,
        kv_heads,
        pages_per_sequence: x.shape(5)[1],
    };
    attention::reference(&inputs, params)
}

fn concatenate(x: &Inputs<'_>, axis: usize, out: &[usize]) -> Values {
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
        crate::DType::F32 => joined!(F32),
        crate::DType::I32 => joined!(I32),
        _ => joined!(U32),
    }
}

/// Rows `indices` of a matrix; zeros for an index outside of it.
fn dequantised_rows(matrix: &QuantRows<'_>, indices: &[i32]) -> Vec<f32> {
    let mut out = vec![0.0; indices.len() * matrix.columns()];
    for (row, &index) in out.chunks_exact_mut(matrix.columns()).zip(indices) {
        if let Some(index) = usize::try_from(index).ok().filter(|&i| i < matrix.count()) {
            matrix.read(index, row);
        }
    }
    out
}

/// Writes rows into a state, in place and touching nothing else of it.
fn write(step: &Step, memory: &Memory) {
    let inputs = Inputs::lock(&step.inputs[1..], memory);
    let (rows, slots) = (inputs.load(0), inputs.i32(1));
    drop(inputs);
    store(&step.output, memory, |bytes, state| {
        let width = state.layout.shape[1..].iter().product::<usize>();
        for (t, &slot) in slots.iter().enumerate() {
            let Some(slot) = usize::try_from(slot).ok().filter(|&s| s < state.layout.shape[0]) else {
                continue;
            };
            let place = Layout {
                offset: slot * width,
                ..Layout::contiguous(&[width])
            };
            row_of(&rows, t, width).store(state.dtype, &place, bytes);
        }
    });
}

fn row_of(values: &Values, row: usize, width: usize) -> Values {
    let range = row * width..(row + 1) * width;
    match values {
        Values::F32(v) => Values::F32(v[range].to_vec()),
        Values::I32(v) => Values::I32(v[range].to_vec()),
        Values::U32(v) => Values::U32(v[range].to_vec()),
    }
}
