use std::collections::HashMap;

use super::order::Ordered;
use crate::graph::{Edge, Graph, Node};
use crate::plan::{Block, Input, Leaf, Operand, Place, Plan, Step};
use crate::{DType, Primitive};

/// Memory is handed out in multiples of this many bytes, so that any load may be 16 bytes wide.
const ALIGNMENT: u64 = 256;

/// Gives every node its memory: weights, states and arguments where they are, outputs in blocks of
/// their own, everything between in one arena by liveness; with `keep`, each in memory of its own there.
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
                layout: node.written_of(result),
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
        // Steps of one level may run at once, so none of them gets memory that another still uses.
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
        least_scratch_bytes: placer.arena.most_in_use,
        ticket_bytes: placer.ticket_bytes,
        output_bytes: placer.output_bytes,
    }
}

struct Placer {
    /// Of each node, the number of its first result among all results.
    first: Vec<usize>,
    /// Where results so far lie.
    places: Vec<Place>,
    /// Of each result, the last node that uses it.
    last_use: Vec<usize>,
    /// Of each result, whether the program returns it.
    is_returned: Vec<bool>,
    leaves: Vec<Leaf>,
    /// Of each slot, its place among the leaves.
    leaf_numbers: HashMap<usize, usize>,
    inputs: Vec<Input>,
    control_bytes: u64,
    output_bytes: Vec<u64>,
    ticket_bytes: u64,
    arena: Arena,
    /// By result.
    in_arena: HashMap<usize, (u64, u64)>,
    /// Pieces that are free once the level is done.
    retired: Vec<(u64, u64)>,
}

impl Placer {
    fn new(graph: &Graph) -> Placer {
        let (mut first, mut last_use) = (
            Vec::with_capacity(graph.nodes.len()),
            Vec::with_capacity(graph.nodes.len()),
        );
        for (number, node) in graph.nodes.iter().enumerate() {
            first.push(last_use.len());
            last_use.resize(last_use.len() + node.results(), number);
        }
        for (number, node) in graph.nodes.iter().enumerate() {
            (node.inputs.iter()).for_each(|edge| last_use[first[edge.node] + edge.result] = number);
        }
        let mut is_returned = vec![false; last_use.len()];
        (graph.outputs.iter()).for_each(|edge| is_returned[first[edge.node] + edge.result] = true);
        Placer {
            places: Vec::with_capacity(last_use.len()),
            first,
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

    /// What an edge sees, where it lies.
    fn operand(&self, graph: &Graph, edge: &Edge) -> Operand {
        Operand {
            place: self.places[self.result(edge)],
            dtype: graph.dtype(edge),
            layout: edge.layout.clone(),
        }
    }

    /// Gives all results of the next node their places.
    fn visit(&mut self, graph: &Graph, number: usize) {
        let node = &graph.nodes[number];
        for result in 0..node.results() {
            let place = self.place(node, result, self.first[number] + result);
            self.places.push(place);
        }
    }

    /// The number among all results of what an edge sees.
    fn result(&self, edge: &Edge) -> usize {
        self.first[edge.node] + edge.result
    }

    /// The place of a node's result, which is number `number` of all.
    fn place(&mut self, node: &Node, result: usize, number: usize) -> Place {
        // An update happens in the memory of the state that it updates.
        if let Some(state) = node.updated(result) {
            return self.places[self.result(state)];
        }
        let bytes = (node.written_of(result).end() * node.dtype_of(result).size()) as u64;
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
            Primitive::Input { name } => {
                let offset = self.control_bytes;
                self.control_bytes += bytes.max(1).next_multiple_of(ALIGNMENT);
                self.inputs.push(Input {
                    name: name.clone(),
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
                let piece = self.arena.take(bytes);
                self.in_arena.insert(number, piece);
                Place {
                    block: Block::Scratch,
                    offset: piece.0,
                }
            }
        }
    }

    /// Memory for one step's calls alone.
    fn workspace(&mut self, operand: refrain_kernels::OperandSpec) -> Operand {
        let piece = self.arena.take((operand.layout.end() * operand.dtype.size()) as u64);
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

    /// Counters of one step, apart from all others: they are zero between the runs of that step.
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

    /// Sets aside what no node after `number` uses.
    fn retire(&mut self, graph: &Graph, number: usize) {
        let node = &graph.nodes[number];
        let read = node.inputs.iter().map(|edge| self.first[edge.node] + edge.result);
        let own = self.first[number]..self.first[number] + node.results();
        for result in read.chain(own) {
            if self.last_use[result] == number
                && let Some(piece) = self.in_arena.remove(&result)
            {
                self.retired.push(piece);
            }
        }
    }

    /// Gives back what was set aside.
    fn release(&mut self) {
        self.retired.drain(..).for_each(|piece| self.arena.give(piece));
    }
}

/// First fit over one growing range; pieces are (offset, bytes).
#[derive(Default)]
struct Arena {
    /// Free pieces by offset, never touching each other; what lies beyond `end` is free too.
    free: Vec<(u64, u64)>,
    end: u64,
    peak: u64,
    in_use: u64,
    /// The most bytes in use at once: no arena could be smaller.
    most_in_use: u64,
}

impl Arena {
    fn take(&mut self, bytes: u64) -> (u64, u64) {
        let bytes = bytes.max(1).next_multiple_of(ALIGNMENT);
        self.in_use += bytes;
        self.most_in_use = self.most_in_use.max(self.in_use);
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

    fn give(&mut self, (offset, bytes): (u64, u64)) {
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
        let (a, b, c) = (arena.take(100), arena.take(300), arena.take(256));
        assert_eq!((a.0, b.0, c.0), (0, 256, 768));
        arena.give(a);
        arena.give(b);
        assert_eq!(arena.take(700), (0, 768), "two neighbours make one piece");
        arena.give(c);
        assert_eq!(arena.take(512).0, 768, "the end moves back");
        assert_eq!(arena.peak, 1280);
    }
}
