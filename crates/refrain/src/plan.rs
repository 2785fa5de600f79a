//! A plan: the steps that a device takes, their operands' places and the barriers between them.
//!
//! Places are symbolic (block, offset); an [`crate::execute::Executable`] resolves them to memory.

use std::fmt;

use refrain_kernels::{Call, CallOrder, Push};
use refrain_vulkan::MemoryClass;

use crate::{DType, Layout, Primitive};

/// A piece of memory that a plan names without knowing its address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Block {
    /// A weight, a state or an evaluated array: an index into [`Plan::leaves`].
    Storage(usize),
    /// The arguments of a traced function.
    Control,
    /// The arena of intermediate results.
    Scratch,
    /// Counters that are zero between runs.
    Tickets,
    /// A result that outlives the plan.
    Output(usize),
}

/// Where a node's memory lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// In which block.
    pub block: Block,
    /// Bytes from the block's start.
    pub offset: u64,
}

/// An operand of a step.
#[derive(Clone, PartialEq, Debug)]
pub struct Operand {
    /// Start of the memory that the layout counts from.
    pub place: Place,
    /// Storage type of the elements.
    pub dtype: DType,
    /// The elements' places, counted from `place`.
    pub layout: Layout,
}

/// Bytes `start..end` of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// The block.
    pub block: Block,
    /// First byte.
    pub start: u64,
    /// Just after the last byte.
    pub end: u64,
}

impl Range {
    /// Number of bytes.
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }
}

/// One primitive to compute, and the dispatches that compute it on this device.
#[derive(Clone, Debug)]
pub struct Step {
    /// What is computed: all that the CPU executor needs.
    pub primitive: Primitive,
    /// Operands that are read.
    pub inputs: Vec<Operand>,
    /// The operands that are written: the primitive's new results.
    pub outputs: Vec<Operand>,
    /// Memory that only this step uses, as one further operand after the outputs.
    pub workspace: Option<Operand>,
    /// Counters of this step alone that each run leaves at zero, as one further operand.
    pub tickets: Option<Operand>,
    /// Dispatches, in order; operands are numbered inputs, outputs, workspace, tickets. Empty on the CPU executor.
    pub calls: Vec<Call>,
    /// What the calls wait for, beside what other steps wrote.
    pub order: CallOrder,
}

/// A dispatch in the order of a plan; on the CPU executor, a whole step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dispatch {
    /// Number of its step.
    pub step: usize,
    /// Which of the step's calls.
    pub call: usize,
    /// Numbers of earlier dispatches, ascending, that must be over before it begins: with those that they themselves
    /// wait for, all that it conflicts with.
    pub after: Vec<usize>,
}

/// An argument of a traced function.
#[derive(Clone, PartialEq, Debug)]
pub struct Input {
    /// The name given to it.
    pub name: String,
    /// Storage type of its elements.
    pub dtype: DType,
    /// Extents.
    pub shape: Vec<usize>,
    /// Bytes from the control block's start.
    pub offset: u64,
}

/// Memory that is there before the plan runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leaf {
    /// The number by which it is bound ([`crate::Bindings`]).
    pub slot: usize,
    /// What it is for.
    pub class: MemoryClass,
}

/// Everything that a device needs to compute the outputs, again and again, but for the memory.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is done, in order.
    pub steps: Vec<Step>,
    /// The dispatches of all steps, in order, and what each waits for.
    pub order: Vec<Dispatch>,
    /// Weights, states and evaluated arrays that steps read or update.
    pub leaves: Vec<Leaf>,
    /// Arguments, for traced functions.
    pub inputs: Vec<Input>,
    /// Bytes of the control block.
    pub control_bytes: u64,
    /// Bytes of the arena.
    pub scratch_bytes: u64,
    /// The most bytes of results that are needed at once: what no arena can do without.
    pub least_scratch_bytes: u64,
    /// Bytes of the counters.
    pub ticket_bytes: u64,
    /// Bytes of each output block.
    pub output_bytes: Vec<u64>,
    /// What was asked for, in order.
    pub outputs: Vec<Operand>,
}

impl Operand {
    /// The bytes between the first and the last element reached.
    pub fn range(&self) -> Range {
        let size = self.dtype.size() as u64;
        let at = |elements: usize| self.place.offset + elements as u64 * size;
        Range {
            block: self.place.block,
            start: at(self.layout.offset),
            end: at(self.layout.end()),
        }
    }

    /// As kernel families see it.
    pub fn shaped(&self) -> refrain_kernels::OperandSpec {
        refrain_kernels::OperandSpec {
            dtype: self.dtype,
            layout: self.layout.clone(),
        }
    }
}

impl Range {
    /// Whether both name a byte in common.
    pub fn overlaps(&self, other: &Range) -> bool {
        self.block == other.block && self.start < other.end && other.start < self.end
    }
}

impl Step {
    /// The operands that dispatch `call` reads: those whose addresses it is given. (On the CPU executor, where steps have
    /// no dispatches, all that the step reads.)
    pub fn read_by(&self, call: usize) -> impl Iterator<Item = &Operand> + '_ {
        let own = self.workspace.iter().chain(&self.tickets);
        let first_own = self.inputs.len() + self.outputs.len();
        let read = (0..).zip(&self.inputs).chain((first_own..).zip(own));
        read.filter(move |&(number, _)| self.is_given(call, number))
            .map(|(_, operand)| operand)
    }

    /// The operands that dispatch `call` writes, as far as is known: of those whose addresses it is given, all that
    /// the step writes.
    pub fn written_by(&self, call: usize) -> impl Iterator<Item = &Operand> + '_ {
        let updated = self.primitive.updates().iter();
        let updated = updated.map(|&number| (number, &self.inputs[number]));
        let own = self.outputs.iter().chain(&self.workspace).chain(&self.tickets);
        let written = updated.chain((self.inputs.len()..).zip(own));
        written
            .filter(move |&(number, _)| self.is_given(call, number))
            .map(|(_, operand)| operand)
    }

    fn is_given(&self, call: usize, operand: usize) -> bool {
        let names = |push: &Push| matches!(push, Push::Address { operand: given, .. } if *given == operand);
        (self.calls.get(call)).is_none_or(|call| call.push.iter().any(names))
    }

    /// Byte ranges that the step reads.
    pub fn reads(&self) -> impl Iterator<Item = Range> + '_ {
        self.inputs.iter().map(Operand::range)
    }

    /// The operands that the step writes: its new results, the states that it updates, its own memory.
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

    /// About how many multiplications the step takes, attention over as many positions as its pages hold;
    /// of steps that multiply little, the elements that they touch.
    pub fn multiplications(&self) -> u64 {
        let touched = || {
            let operands = self.inputs.iter().chain(&self.outputs);
            operands.map(|operand| operand.layout.count() as u64).max().unwrap_or(0)
        };
        match &self.primitive {
            Primitive::Operation(operation) => operation.multiplications(&self.shaped()),
            _ => touched(),
        }
    }

    /// Bytes of keys and values that a step of attention reads, of one sequence: those of `depth` positions, or of its
    /// window.
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

    /// Inputs and new results as kernel families see them.
    fn shaped(&self) -> Vec<refrain_kernels::OperandSpec> {
        self.inputs.iter().chain(&self.outputs).map(Operand::shaped).collect()
    }

    /// Operand `number` of the step's calls.
    pub fn operand(&self, number: usize) -> &Operand {
        let own = || self.workspace.iter().chain(&self.tickets);
        let mut all = self.inputs.iter().chain(&self.outputs).chain(own());
        all.nth(number).expect("a call names operands that its step has")
    }
}

impl Plan {
    /// Number of dispatches.
    pub fn dispatches(&self) -> usize {
        self.steps.iter().map(|s| s.calls.len()).sum()
    }

    /// Bytes of weights that a step reads if it reads each once: of a table only the rows that are looked
    /// up, of experts no more than tokens are routed to.
    pub fn weight_bytes(&self, step: &Step) -> u64 {
        let is_weight = |operand: &&Operand| match operand.place.block {
            Block::Storage(number) => self.leaves[number].class == MemoryClass::Weight,
            _ => false,
        };
        let [wanted, all] = match &step.primitive {
            Primitive::Operation(operation) => operation.rows_read(&step.shaped()).unwrap_or([1, 1]),
            _ => [1, 1],
        };
        let (all, wanted) = (all.max(1) as u64, wanted.min(all) as u64);
        let bytes = |operand: &Operand| operand.range().bytes() / all * wanted;
        step.inputs.iter().filter(is_weight).map(bytes).sum()
    }

    /// Every block with its bytes: of storages, those that steps reach.
    pub fn blocks(&self) -> Vec<(Block, u64)> {
        let storages = (0..self.leaves.len()).map(Block::Storage);
        let own = [Block::Control, Block::Scratch, Block::Tickets].into_iter();
        let all = storages
            .chain(own)
            .chain((0..self.output_bytes.len()).map(Block::Output));
        all.map(|block| (block, self.bytes_of(block))).collect()
    }

    /// Bytes of a block: of a storage, those that steps reach.
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

    /// Bytes of memory that a run needs beside leaves.
    pub fn own_bytes(&self) -> u64 {
        self.scratch_bytes + self.ticket_bytes + self.control_bytes + self.output_bytes.iter().sum::<u64>()
    }

    /// Of each dispatch, whether a barrier stands before it: the fewest that make each wait for what it must, each as
    /// late as may be.
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

    /// Of each step, whether a barrier stands before its first dispatch.
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
            // Before it is scheduled, a plan has none.
            if barriers.get(number) == Some(&true) {
                writeln!(f, "---- barrier")?;
            }
            // What makes nothing new is told by what it updates.
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
