//! Plans: the steps of a program, the memory of their operands and the order of their dispatches.
//!
//! Memory is symbolic: a [`Place`] is a block and an offset. An [`crate::execute::Executable`] resolves it to buffers.

use std::fmt;

use refrain_kernels::{Call, CallOrder, Push};
use refrain_vulkan::MemoryClass;

use crate::{DType, Layout, Primitive};

/// A block of memory that a plan names without knowing its address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Block {
    /// A weight, a state or an evaluated array: an index into [`Plan::leaves`].
    Storage(usize),
    /// The arguments of a traced function.
    Control,
    /// Scratch memory for intermediate results.
    Scratch,
    /// Counters ("tickets") that are zero between runs.
    Tickets,
    /// An output of the program.
    Output(usize),
}

/// The start of an operand's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The block.
    pub block: Block,
    /// Bytes from the block's start.
    pub offset: u64,
}

/// An operand of a step.
#[derive(Clone, PartialEq, Debug)]
pub struct Operand {
    /// The start of the memory that the layout is relative to.
    pub place: Place,
    /// Storage type of the elements.
    pub dtype: DType,
    /// The layout of the elements, relative to `place`.
    pub layout: Layout,
}

/// Bytes `start..end` of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// The block.
    pub block: Block,
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

impl Range {
    /// Number of bytes.
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }
}

/// One primitive, and the dispatches that compute it on this device.
#[derive(Clone, Debug)]
pub struct Step {
    /// What is computed. The CPU executor needs nothing else.
    pub primitive: Primitive,
    /// The operands that it reads.
    pub inputs: Vec<Operand>,
    /// The operands that it writes: the primitive's new results.
    pub outputs: Vec<Operand>,
    /// Memory that only this step uses: one more operand, after the outputs.
    pub workspace: Option<Operand>,
    /// Counters of this step, which each run leaves at zero: one more operand, after the workspace.
    pub tickets: Option<Operand>,
    /// Dispatches in order. Their operands are numbered inputs, outputs, workspace, tickets. Empty on the CPU executor.
    pub calls: Vec<Call>,
    /// How the calls of this step depend on each other.
    pub order: CallOrder,
}

/// A dispatch in execution order; on the CPU executor, a whole step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dispatch {
    /// Index of its step.
    pub step: usize,
    /// Index among the step's calls.
    pub call: usize,
    /// Indices of earlier dispatches, ascending, that must complete before it begins. Together with those that they
    /// wait for themselves, these are all dispatches that it conflicts with.
    pub after: Vec<usize>,
}

/// An argument of a traced function.
#[derive(Clone, PartialEq, Debug)]
pub struct Input {
    /// The argument's name.
    pub name: String,
    /// Storage type of its elements.
    pub dtype: DType,
    /// Extents.
    pub shape: Vec<usize>,
    /// Byte offset in the control block.
    pub offset: u64,
}

/// Memory that exists before the plan runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leaf {
    /// The slot to which its memory is bound ([`crate::Bindings`]).
    pub slot: usize,
    /// What the memory is used for.
    pub class: MemoryClass,
}

/// Everything that a device needs to compute the outputs any number of times, except the memory.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The steps in order.
    pub steps: Vec<Step>,
    /// The dispatches of all steps in order, with those that each waits for. Empty before the `schedule` pass.
    pub order: Vec<Dispatch>,
    /// Weights, states and evaluated arrays that steps read or update.
    pub leaves: Vec<Leaf>,
    /// Arguments, for traced functions.
    pub inputs: Vec<Input>,
    /// Bytes of the control block.
    pub control_bytes: u64,
    /// Bytes of scratch memory.
    pub scratch_bytes: u64,
    /// Maximum bytes of intermediate results that are live at once: a lower bound of `scratch_bytes`.
    pub min_scratch_bytes: u64,
    /// Bytes of the counters.
    pub ticket_bytes: u64,
    /// Bytes of each output block.
    pub output_bytes: Vec<u64>,
    /// The program's results, in order.
    pub outputs: Vec<Operand>,
}

impl Operand {
    /// The bytes from the first to the last element.
    pub fn range(&self) -> Range {
        let size = self.dtype.size() as u64;
        let at = |elements: usize| self.place.offset + elements as u64 * size;
        Range {
            block: self.place.block,
            start: at(self.layout.offset),
            end: at(self.layout.end()),
        }
    }

    /// The operand's dtype and layout, as kernel families take them.
    pub fn spec(&self) -> refrain_kernels::OperandSpec {
        refrain_kernels::OperandSpec {
            dtype: self.dtype,
            layout: self.layout.clone(),
        }
    }
}

impl Range {
    /// Whether both share a byte.
    pub fn overlaps(&self, other: &Range) -> bool {
        self.block == other.block && self.start < other.end && other.start < self.end
    }
}

impl Step {
    /// The operands that dispatch `call` reads: those whose addresses it receives. On the CPU executor, where steps
    /// have no dispatches, all operands that the step reads.
    pub fn read_by(&self, call: usize) -> impl Iterator<Item = &Operand> + '_ {
        let own = self.workspace.iter().chain(&self.tickets);
        let first_own = self.inputs.len() + self.outputs.len();
        let read = (0..).zip(&self.inputs).chain((first_own..).zip(own));
        read.filter(move |&(number, _)| self.receives(call, number))
            .map(|(_, operand)| operand)
    }

    /// The operands that dispatch `call` may write: those that the step writes and whose addresses the dispatch
    /// receives.
    pub fn written_by(&self, call: usize) -> impl Iterator<Item = &Operand> + '_ {
        let updated = self.primitive.updates().iter();
        let updated = updated.map(|&number| (number, &self.inputs[number]));
        let own = self.outputs.iter().chain(&self.workspace).chain(&self.tickets);
        let written = updated.chain((self.inputs.len()..).zip(own));
        written
            .filter(move |&(number, _)| self.receives(call, number))
            .map(|(_, operand)| operand)
    }

    fn receives(&self, call: usize, operand: usize) -> bool {
        let names = |push: &Push| matches!(push, Push::Address { operand: number, .. } if *number == operand);
        (self.calls.get(call)).is_none_or(|call| call.push.iter().any(names))
    }

    /// Byte ranges that the step reads.
    pub fn reads(&self) -> impl Iterator<Item = Range> + '_ {
        self.inputs.iter().map(Operand::range)
    }

    /// The operands that the step writes: new results, updated states, workspace and tickets.
    pub fn written(&self) -> impl Iterator<Item = &Operand> + '_ {
        let own = self.workspace.iter().chain(&self.tickets);
        self.outputs.iter().chain(self.updated()).chain(own)
    }

    /// The states that the step updates.
    pub fn updated(&self) -> impl Iterator<Item = &Operand> + '_ {
        self.primitive.updates().iter().map(|&number| &self.inputs[number])
    }

    /// Byte ranges that the step writes.
    pub fn writes(&self) -> impl Iterator<Item = Range> + '_ {
        self.written().map(Operand::range)
    }

    /// Approximate number of multiplications, with attention over all positions of its pages. For steps that multiply
    /// little, the number of elements that they access.
    pub fn multiplications(&self) -> u64 {
        let touched = || {
            let operands = self.inputs.iter().chain(&self.outputs);
            operands.map(|operand| operand.layout.count() as u64).max().unwrap_or(0)
        };
        match &self.primitive {
            Primitive::Operation(operation) => operation.multiplications(&self.spec()),
            _ => touched(),
        }
    }

    /// Bytes of keys and values that an attention step reads for one sequence: those of `depth` positions, or of its
    /// window. 0 for other steps.
    pub fn cache_bytes(&self, depth: usize) -> u64 {
        let Primitive::Operation(operation) = &self.primitive else {
            return 0;
        };
        let Some((states, window)) = operation.context() else {
            return 0;
        };
        let positions = window.map_or(depth, |window| depth.min(window as usize));
        let slot = |state: &Operand| state.layout.shape[1..].iter().product::<usize>() * state.dtype.size();
        let slots = states.iter().map(|&number| slot(&self.inputs[number]));
        (positions * slots.sum::<usize>()) as u64
    }

    /// Inputs and new results, as kernel families take them.
    fn spec(&self) -> Vec<refrain_kernels::OperandSpec> {
        self.inputs.iter().chain(&self.outputs).map(Operand::spec).collect()
    }

    /// Operand `number` of the step's calls.
    pub fn operand(&self, number: usize) -> &Operand {
        let own = || self.workspace.iter().chain(&self.tickets);
        let mut all = self.inputs.iter().chain(&self.outputs).chain(own());
        all.nth(number).expect("calls name only operands of their step")
    }
}

impl Plan {
    /// Number of dispatches.
    pub fn dispatches(&self) -> usize {
        self.steps.iter().map(|s| s.calls.len()).sum()
    }

    /// Bytes of weights that a step reads, each weight once: of a table only the rows that are looked up, of experts no
    /// more than the tokens are routed to.
    pub fn weight_bytes(&self, step: &Step) -> u64 {
        let is_weight = |operand: &&Operand| match operand.place.block {
            Block::Storage(number) => self.leaves[number].class == MemoryClass::Weight,
            _ => false,
        };
        let [wanted, all] = match &step.primitive {
            Primitive::Operation(operation) => operation.rows_read(&step.spec()).unwrap_or([1, 1]),
            _ => [1, 1],
        };
        let (all, wanted) = (all.max(1) as u64, wanted.min(all) as u64);
        let bytes = |operand: &Operand| operand.range().bytes() / all * wanted;
        step.inputs.iter().filter(is_weight).map(bytes).sum()
    }

    /// Every block with its size in bytes. For storages, the size is what the steps access.
    pub fn blocks(&self) -> Vec<(Block, u64)> {
        let storages = (0..self.leaves.len()).map(Block::Storage);
        let own = [Block::Control, Block::Scratch, Block::Tickets].into_iter();
        let all = storages
            .chain(own)
            .chain((0..self.output_bytes.len()).map(Block::Output));
        all.map(|block| (block, self.bytes_of(block))).collect()
    }

    /// Size of a block in bytes; of a storage, what the steps access.
    pub fn bytes_of(&self, block: Block) -> u64 {
        match block {
            Block::Storage(_) => {
                let ranges = self.steps.iter().flat_map(|step| step.reads().chain(step.writes()));
                ranges
                    .filter(|range| range.block == block)
                    .map(|range| range.end)
                    .max()
                    .unwrap_or(0)
            }
            Block::Control => self.control_bytes,
            Block::Scratch => self.scratch_bytes,
            Block::Tickets => self.ticket_bytes,
            Block::Output(number) => self.output_bytes[number],
        }
    }

    /// Bytes of memory that a run needs besides leaves.
    pub fn working_bytes(&self) -> u64 {
        self.scratch_bytes + self.ticket_bytes + self.control_bytes + self.output_bytes.iter().sum::<u64>()
    }

    /// For each dispatch, whether a barrier precedes it. These are the fewest barriers that satisfy all dependencies,
    /// each placed as late as possible.
    pub fn barriers_before(&self) -> Vec<bool> {
        let mut last = 0;
        let waits = |(number, dispatch): (usize, &Dispatch)| {
            let waits = dispatch.after.iter().any(|&earlier| earlier >= last);
            if waits {
                last = number;
            }
            waits
        };
        self.order.iter().enumerate().map(waits).collect()
    }

    /// For each step, whether a barrier precedes its first dispatch.
    pub fn barriers_before_steps(&self) -> Vec<bool> {
        let dispatches = self.order.iter().zip(self.barriers_before());
        let first = dispatches.filter(|(dispatch, _)| dispatch.call == 0);
        first.map(|(_, barrier)| barrier).collect()
    }

    /// Number of barriers.
    pub fn barriers(&self) -> usize {
        self.barriers_before().into_iter().filter(|&barrier| barrier).count()
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Block::Storage(n) => write!(f, "storage{n}"),
            Block::Control => f.write_str("control"),
            Block::Scratch => f.write_str("scratch"),
            Block::Tickets => f.write_str("tickets"),
            Block::Output(n) => write!(f, "output{n}"),
        }
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { block, offset } = self.place;
        write!(f, "{block}[{offset}] {}{}", self.dtype, self.layout)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let barriers = self.barriers_before_steps();
        for (number, step) in self.steps.iter().enumerate() {
            // Empty until the plan is scheduled.
            if barriers.get(number) == Some(&true) {
                writeln!(f, "---- barrier")?;
            }
            // A step without new results is printed with the states that it updates.
            let made: Vec<&Operand> = match &step.outputs[..] {
                [] => step.updated().collect(),
                outputs => outputs.iter().collect(),
            };
            let [made, read] = [made, step.inputs.iter().collect()].map(|operands| {
                let operands: Vec<String> = operands.into_iter().map(Operand::to_string).collect();
                operands.join(", ")
            });
            writeln!(f, "{number:4} {made} = {} ({read})", step.primitive)?;
            for call in &step.calls {
                writeln!(f, "       {} {:?}", call.kernel.name, call.groups)?;
            }
        }
        writeln!(
            f,
            "{} steps, {} dispatches, {} barriers, scratch {} bytes, control {} bytes",
            self.steps.len(),
            self.dispatches(),
            self.barriers(),
            self.scratch_bytes,
            self.control_bytes
        )
    }
}
