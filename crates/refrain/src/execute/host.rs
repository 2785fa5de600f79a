//! The operands of a step in host memory, for the reference implementations.

mod matrices;

use std::borrow::Cow;
use std::sync::RwLockReadGuard;

pub use matrices::HostMatrix;
pub(crate) use matrices::dense;
use refrain_kernels::{Layout, Values};

use super::memory::BlockMemory;
use crate::DType;
use crate::operation::HostArray;
use crate::plan::{Operand, Step};
use crate::storage::{self, HostBuffer, Storage};

/// A step on the CPU executor, with the memory of its operands.
pub struct HostStep<'a> {
    step: &'a Step,
    memory: &'a BlockMemory,
}

impl<'a> HostStep<'a> {
    pub(super) fn new(step: &'a Step, memory: &'a BlockMemory) -> HostStep<'a> {
        HostStep { step, memory }
    }

    /// Computes the new results from all inputs. `compute` changes the states of [`Operation::updates`] in place.
    ///
    /// [`Operation::updates`]: crate::operation::Operation::updates
    pub fn compute(&self, compute: impl FnOnce(&mut [HostArray]) -> Vec<Values>) {
        let x = self.read();
        let array = |number: usize| HostArray {
            values: x.values(number),
            shape: x.shape(number).to_vec(),
        };
        let mut inputs: Vec<HostArray> = (0..self.step.inputs.len()).map(array).collect();
        drop(x);
        let results = compute(&mut inputs);
        for &number in self.step.primitive.updates() {
            self.update(number, &inputs[number].values);
        }
        for (number, values) in results.iter().enumerate() {
            self.store(number, values);
        }
    }

    /// Computes the single new result from the inputs.
    pub fn result(&self, compute: impl FnOnce(&HostInputs<'_>) -> Values) {
        // The inputs' locks are released before the result's memory, possibly the same block, is locked.
        let result = compute(&self.read());
        self.store(0, &result);
    }

    /// Locks the inputs for reading. Drop the returned value before anything is written.
    pub fn read(&self) -> HostInputs<'a> {
        HostInputs::lock(&self.step.inputs, self.memory)
    }

    /// Extents of new result `number`.
    pub fn result_shape(&self, number: usize) -> &'a [usize] {
        &self.step.outputs[number].layout.shape
    }

    /// Writes new result `number`, row-major.
    pub fn store(&self, number: usize, values: &Values) {
        self.write(&self.step.outputs[number], |bytes, operand| {
            values.store(operand.dtype, &operand.layout, bytes);
        });
    }

    /// Writes input `number`, a state that is updated, as a whole.
    pub fn update(&self, number: usize, values: &Values) {
        self.write(&self.step.inputs[number], |bytes, operand| {
            values.store(operand.dtype, &operand.layout, bytes);
        });
    }

    /// Writes rows of input `number`, a state that is updated: row `slots[t]` becomes row t of `rows`. Slots outside
    /// the state are skipped.
    pub fn update_rows(&self, number: usize, rows: &Values, slots: &[i32]) {
        self.write(&self.step.inputs[number], |bytes, state| {
            let width = state.layout.shape[1..].iter().product::<usize>();
            for (t, &slot) in slots.iter().enumerate() {
                let Some(slot) = usize::try_from(slot).ok().filter(|&s| s < state.layout.shape[0]) else {
                    continue;
                };
                let row = Layout {
                    offset: slot * width,
                    ..Layout::contiguous(&[width])
                };
                rows.slice(t * width..(t + 1) * width).store(state.dtype, &row, bytes);
            }
        });
    }

    /// Writes the elements of input `number`, a state that is updated, that `part` selects from its layout.
    pub(crate) fn update_part(&self, number: usize, values: &Values, part: impl Fn(&Layout) -> Layout) {
        self.write(&self.step.inputs[number], |bytes, state| {
            values.store(state.dtype, &part(&state.layout), bytes);
        });
    }

    fn write(&self, operand: &Operand, write: impl FnOnce(&mut [u8], &Operand)) {
        if operand.layout.count() == 0 {
            return;
        }
        let (storage, start) = self.memory.resolve(operand.place);
        let mut words = host(storage).write();
        let bytes = &mut bytemuck::cast_slice_mut::<u32, u8>(&mut words)[start as usize..];
        write(bytes, operand);
    }
}

fn host(storage: &Storage) -> &HostBuffer {
    match &storage.memory {
        storage::Memory::Host(buffer) => buffer,
        storage::Memory::Vulkan(_) => unreachable!("arrays of the CPU executor are in host memory"),
    }
}

/// A step's inputs, with their memory locked for reading.
pub struct HostInputs<'a> {
    operands: &'a [Operand],
    memory: &'a BlockMemory,
    /// Each memory is locked once: a second read lock could deadlock with a waiting writer.
    locked: Vec<(usize, RwLockReadGuard<'a, Vec<u32>>)>,
}

impl<'a> HostInputs<'a> {
    fn lock(operands: &'a [Operand], memory: &'a BlockMemory) -> HostInputs<'a> {
        let mut locked: Vec<(usize, RwLockReadGuard<'a, Vec<u32>>)> = Vec::new();
        for operand in operands.iter().filter(|o| o.layout.count() > 0) {
            let (storage, _) = memory.resolve(operand.place);
            if locked.iter().all(|(key, _)| *key != storage.key()) {
                locked.push((storage.key(), host(storage).read()));
            }
        }
        HostInputs {
            operands,
            memory,
            locked,
        }
    }

    /// Number of inputs.
    pub fn count(&self) -> usize {
        self.operands.len()
    }

    /// Extents of input `number`.
    pub fn shape(&self, number: usize) -> &[usize] {
        &self.operands[number].layout.shape
    }

    /// Extent of the last dimension of input `number`.
    pub fn columns(&self, number: usize) -> usize {
        self.shape(number).last().copied().unwrap_or(1)
    }

    /// Storage type of input `number`.
    pub fn dtype(&self, number: usize) -> DType {
        self.operands[number].dtype
    }

    pub(crate) fn layout(&self, number: usize) -> &Layout {
        &self.operands[number].layout
    }

    /// The memory of input `number`, from its offset on.
    pub(crate) fn bytes(&self, number: usize) -> &[u8] {
        if self.operands[number].layout.count() == 0 {
            return &[];
        }
        let (storage, start) = self.memory.resolve(self.operands[number].place);
        match self.locked.iter().find(|(key, _)| *key == storage.key()) {
            Some((_, words)) => &bytemuck::cast_slice(words)[start as usize..],
            None => &[],
        }
    }

    /// The elements of input `number`, row-major.
    pub fn values(&self, number: usize) -> Values {
        let operand = &self.operands[number];
        Values::load(operand.dtype, &operand.layout, self.bytes(number))
    }

    /// The elements of input `number`, which are floats.
    pub fn f32(&self, number: usize) -> Vec<f32> {
        match self.values(number) {
            Values::F32(values) => values,
            other => unreachable!("input {number} holds {}, not floats", other.dtype()),
        }
    }

    /// The integer elements of input `number`. Values beyond i32 become `i32::MAX`, which is outside any axis.
    pub fn i32(&self, number: usize) -> Vec<i32> {
        match self.values(number) {
            Values::I32(values) => values,
            Values::U32(values) => values
                .into_iter()
                .map(|v| i32::try_from(v).unwrap_or(i32::MAX))
                .collect(),
            Values::F32(_) => unreachable!("input {number} holds floats, not integers"),
        }
    }

    /// The elements of input `number`, which are u32 or narrower.
    pub fn u32(&self, number: usize) -> Vec<u32> {
        match self.values(number) {
            Values::U32(values) => values,
            other => unreachable!("input {number} holds {}, not u32", other.dtype()),
        }
    }

    /// The bytes of input `number` in row-major order: borrowed if they are contiguous, else gathered.
    pub fn gathered(&self, number: usize) -> Cow<'_, [u8]> {
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
        layout.for_each(|index| gathered.extend_from_slice(&bytes[index * size..][..size]));
        Cow::Owned(gathered)
    }
}
