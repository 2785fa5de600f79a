use std::collections::HashMap;

use super::order::Ordered;
use crate::graph::{Edge, Graph, Node};
use crate::plan::{Block, Input, Leaf, Operand, Place, Plan, Step};
use crate::{DType, Primitive};

/// Alignment in bytes of every allocation, so that all loads may be vectorised.
const ALIGNMENT: u64 = 256;

/// Assigns memory to every node. Weights, states and arguments have theirs, outputs get blocks of their own, and
/// intermediate results share scratch memory by liveness. With `keep`, none of it is reused.
pub fn place(ordered: Ordered, keep: bool) -> Plan {
    let Ordered { graph, kernels, levels } = ordered;
    let mut placer = Placer::new(&graph);
    let mut steps = Vec::new();
    for (number, (node, kernels)) in graph.nodes.iter().zip(kernels).enumerate() {
        placer.visit(&graph, number);
        if !node.primitive.is_leaf() {
            let result = |result: usize| Operand {
                place: placer.places[placer.first[number] + result],
                dtype: node.dtype_of(result),
                layout: node.layout_of(result),
            };
            let outputs = (0..node.new_results()).map(result).collect();
            let inputs = node.inputs.iter().map(|edge| placer.operand(&graph, edge)).collect();
            let workspace = kernels.workspace.map(|w| placer.workspace(w));
            let tickets = (kernels.tickets > 0).then(|| placer.tickets(kernels.tickets));
            steps.push(Step {
                primitive: node.primitive.clone(),
                inputs,
                outputs,
                workspace,
                tickets,
                calls: kernels.calls,
                order: kernels.order,
            });
        }
        if !keep {
            placer.retire(&graph, number);
        }
        // Steps of one level may run concurrently, so memory is reused only by later levels.
        if levels.get(number + 1) != Some(&levels[number]) {
            placer.release();
        }
    }
    let output = |edge: &Edge| placer.operand(&graph, edge);
    Plan {
        steps,
        order: vec![],
        outputs: graph.outputs.iter().map(output).collect(),
        leaves: placer.leaves,
        inputs: placer.inputs,
        control_bytes: placer.control_bytes,
        scratch_bytes: placer.arena.peak,
        min_scratch_bytes: placer.arena.peak_in_use,
        ticket_bytes: placer.ticket_bytes,
        output_bytes: placer.output_bytes,
    }
}

struct Placer {
    /// For each node, the index of its first result among all results.
    first: Vec<usize>,
    /// The places of all results so far.
    places: Vec<Place>,
    /// For each result, the result in whose memory it is: its own, or the first version of what it updates.
    owner: Vec<usize>,
    /// For each result with memory of its own, the last node that uses the memory.
    last_use: Vec<usize>,
    /// For each result with memory of its own, whether the program returns it.
    is_returned: Vec<bool>,
    leaves: Vec<Leaf>,
    /// For each slot, its index among the leaves.
    leaf_numbers: HashMap<usize, usize>,
    inputs: Vec<Input>,
    control_bytes: u64,
    output_bytes: Vec<u64>,
    ticket_bytes: u64,
    arena: Arena,
    /// The allocation of each result that is in scratch memory.
    in_arena: HashMap<usize, (u64, u64)>,
    /// Allocations that become free after the level.
    retired: Vec<(u64, u64)>,
}

impl Placer {
    fn new(graph: &Graph) -> Placer {
        let count = graph.nodes.len();
        let (mut first, mut owner) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let mut last_use = Vec::with_capacity(count);
        for (number, node) in graph.nodes.iter().enumerate() {
            first.push(owner.len());
            for result in 0..node.results() {
                let updated = node.updated(result);
                owner.push(updated.map_or(owner.len(), |edge| owner[first[edge.node] + edge.result]));
                last_use.push(number);
            }
        }
        for (number, node) in graph.nodes.iter().enumerate() {
            (node.inputs.iter()).for_each(|edge| last_use[owner[first[edge.node] + edge.result]] = number);
        }
        let mut is_returned = vec![false; owner.len()];
        (graph.outputs.iter()).for_each(|edge| is_returned[owner[first[edge.node] + edge.result]] = true);
        Placer {
            places: Vec::with_capacity(owner.len()),
            first,
            owner,
            last_use,
            is_returned,
            leaves: vec![],
            leaf_numbers: HashMap::new(),
            inputs: vec![],
            control_bytes: 0,
            output_bytes: vec![],
            ticket_bytes: 0,
            arena: Arena::default(),
            in_arena: HashMap::new(),
            retired: vec![],
        }
    }

    /// The operand that an edge reads.
    fn operand(&self, graph: &Graph, edge: &Edge) -> Operand {
        Operand {
            place: self.places[self.result(edge)],
            dtype: graph.dtype(edge),
            layout: edge.layout.clone(),
        }
    }

    /// Assigns places to all results of the next node.
    fn visit(&mut self, graph: &Graph, number: usize) {
        let node = &graph.nodes[number];
        for result in 0..node.results() {
            let place = self.place(node, result, self.first[number] + result);
            self.places.push(place);
        }
    }

    /// The index among all results of the result that an edge reads.
    fn result(&self, edge: &Edge) -> usize {
        self.first[edge.node] + edge.result
    }

    /// The place of a node's result, which has index `number` among all results.
    fn place(&mut self, node: &Node, result: usize, number: usize) -> Place {
        // An update writes into the memory of its state.
        if let Some(state) = node.updated(result) {
            return self.places[self.result(state)];
        }
        let bytes = (node.layout_of(result).end() * node.dtype_of(result).size()) as u64;
        match &node.primitive {
            &Primitive::Stored { slot, class, .. } => {
                let next = self.leaves.len();
                let index = *self.leaf_numbers.entry(slot).or_insert(next);
                if index == next {
                    self.leaves.push(Leaf { slot, class });
                }
                Place {
                    block: Block::Storage(index),
                    offset: 0,
                }
            }
            Primitive::Input { .. } | Primitive::Integers => {
                let name = match &node.primitive {
                    Primitive::Input { name } => name.as_str(),
                    other => other.name(),
                };
                let offset = self.control_bytes;
                self.control_bytes += bytes.max(1).next_multiple_of(ALIGNMENT);
                self.inputs.push(Input {
                    name: name.to_string(),
                    dtype: node.dtype,
                    shape: node.shape.clone(),
                    offset,
                });
                Place {
                    block: Block::Control,
                    offset,
                }
            }
            _ if self.is_returned[number] => {
                self.output_bytes.push(bytes.next_multiple_of(4));
                Place {
                    block: Block::Output(self.output_bytes.len() - 1),
                    offset: 0,
                }
            }
            _ => {
                let piece = self.arena.allocate(bytes);
                self.in_arena.insert(number, piece);
                Place {
                    block: Block::Scratch,
                    offset: piece.0,
                }
            }
        }
    }

    /// Memory for one step's calls only.
    fn workspace(&mut self, operand: refrain_kernels::OperandSpec) -> Operand {
        let piece = self
            .arena
            .allocate((operand.layout.end() * operand.dtype.size()) as u64);
        self.retired.push(piece);
        Operand {
            place: Place {
                block: Block::Scratch,
                offset: piece.0,
            },
            dtype: operand.dtype,
            layout: operand.layout,
        }
    }

    /// Counters of one step. Steps do not share them, because they are zero between the runs of their step.
    fn tickets(&mut self, count: usize) -> Operand {
        let operand = refrain_kernels::OperandSpec::contiguous(DType::U32, &[count]);
        let offset = self.ticket_bytes;
        self.ticket_bytes += 4 * count as u64;
        Operand {
            place: Place {
                block: Block::Tickets,
                offset,
            },
            dtype: operand.dtype,
            layout: operand.layout,
        }
    }

    /// Queues the memory that no node after `number` uses.
    fn retire(&mut self, graph: &Graph, number: usize) {
        let node = &graph.nodes[number];
        let read = node.inputs.iter().map(|edge| self.first[edge.node] + edge.result);
        let own = self.first[number]..self.first[number] + node.results();
        for result in read.chain(own) {
            let result = self.owner[result];
            if self.last_use[result] == number
                && let Some(piece) = self.in_arena.remove(&result)
            {
                self.retired.push(piece);
            }
        }
    }

    /// Frees the queued memory.
    fn release(&mut self) {
        self.retired.drain(..).for_each(|piece| self.arena.free(piece));
    }
}

/// A first-fit allocator over one growing range. Allocations are (offset, bytes).
#[derive(Default)]
struct Arena {
    /// Free pieces by offset, merged. Everything beyond `end` is free too.
    free: Vec<(u64, u64)>,
    end: u64,
    peak: u64,
    in_use: u64,
    /// Maximum bytes in use at once: a lower bound of `peak`.
    peak_in_use: u64,
}

impl Arena {
    fn allocate(&mut self, bytes: u64) -> (u64, u64) {
        let bytes = bytes.max(1).next_multiple_of(ALIGNMENT);
        self.in_use += bytes;
        self.peak_in_use = self.peak_in_use.max(self.in_use);
        if let Some(i) = self.free.iter().position(|&(_, size)| size >= bytes) {
            let (offset, size) = self.free[i];
            if size == bytes {
                self.free.remove(i);
            } else {
                self.free[i] = (offset + bytes, size - bytes);
            }
            return (offset, bytes);
        }
        let offset = self.end;
        self.end += bytes;
        self.peak = self.peak.max(self.end);
        (offset, bytes)
    }

    fn free(&mut self, (offset, bytes): (u64, u64)) {
        self.in_use -= bytes;
        let at = self.free.partition_point(|&(o, _)| o < offset);
        self.free.insert(at, (offset, bytes));
        let mut merged: Vec<(u64, u64)> = Vec::with_capacity(self.free.len());
        for &(o, n) in &self.free {
            match merged.last_mut() {
                Some((last, size)) if *last + *size == o => *size += n,
                _ => merged.push((o, n)),
            }
        }
        if let Some(&(o, n)) = merged.last()
            && o + n == self.end
        {
            self.end = o;
            merged.pop();
        }
        self.free = merged;
    }
}

#[cfg(test)]
mod tests {
    use super::Arena;

    #[test]
    fn freed_pieces_are_used_again_and_merge() {
        let mut arena = Arena::default();
        let (a, b, c) = (arena.allocate(100), arena.allocate(300), arena.allocate(256));
        assert_eq!((a.0, b.0, c.0), (0, 256, 768));
        arena.free(a);
        arena.free(b);
        assert_eq!(arena.allocate(700), (0, 768), "two neighbours make one piece");
        arena.free(c);
        assert_eq!(arena.allocate(512).0, 768, "the end moves back");
        assert_eq!(arena.peak, 1280);
    }
}
