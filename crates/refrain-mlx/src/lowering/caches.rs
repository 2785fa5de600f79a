//! Brings decode attention over MLX's caches into the form that is fused with norms, RoPE and cache writes.
//!
//! MLX keeps the keys of each head together, and writes those of a token by a slice update. Attention sees each key head
//! as a sequence with pages of its own. This pass says the same of the write and of RoPE: the token of each key head is
//! written into the slot of its position, and rotated at that position.

use refrain::graph::{Edge, Graph, Node};
use refrain::operation::WriteRows;
use refrain::{Array, DType, Device, Layout, Primitive};
use refrain_kernels::Values;
use refrain_kernels::elementwise::{self, Expression};
use refrain_lm::BatchTokens;

use super::SamePosition;

/// The same graph with the cache writes before decode attention in the form of a paged cache.
pub(super) fn run(graph: Graph, device: &Device) -> Graph {
    let uses = graph.use_counts();
    let mut paged = Paged::default();
    for number in 0..graph.nodes.len() {
        if let Some(found) = Attention::of(&graph, number) {
            paged.add(&graph, &uses, &found, device);
        }
    }
    paged.applied_to(graph)
}

/// Decode attention over keys and values that are written just before.
struct Attention {
    /// Positions, sequences and pages.
    tokens: [Edge; 3],
    queries: Edge,
    /// The nodes that write keys and values.
    writes: [usize; 2],
    /// Slots of a page.
    page: usize,
}

impl Attention {
    fn of(graph: &Graph, number: usize) -> Option<Attention> {
        let node = &graph.nodes[number];
        if node.primitive.name() != "paged_attention" {
            return None;
        }
        let [queries, keys, values, positions, sequences, pages] = &node.inputs[..] else {
            return None;
        };
        let [first, second] = [keys, values].map(|edge| edge.layout.shape[0]);
        let &[rows, per_sequence] = &pages.layout.shape[..] else {
            return None;
        };
        let heads = positions.layout.count();
        let word = position_word(graph, positions)?;
        let page = first / (rows * per_sequence).max(1);
        let is_whole = rows == heads && page * per_sequence * heads == first && first == second && page > 0;
        if !is_whole || !counts(graph, sequences) || !counts(graph, pages) {
            return None;
        }
        let writes = [keys, values].map(|edge| {
            let write = &graph.nodes[edge.node];
            let [_, part, numbers] = &write.inputs[..] else {
                return None;
            };
            let is_write = write.primitive.operation::<WriteRows>().is_some() && graph.is_whole(edge);
            let rows = part.layout.shape.first() == Some(&heads);
            (is_write && rows && writes_at(graph, numbers, &word, first / heads)).then_some(edge.node)
        });
        let [Some(keys), Some(values)] = writes else {
            return None;
        };
        (keys != values).then(|| Attention {
            tokens: [positions, sequences, pages].map(Edge::clone),
            queries: queries.clone(),
            writes: [keys, values],
            page,
        })
    }
}

/// The word that holds the position of all tokens, if an edge reads such positions.
fn position_word(graph: &Graph, positions: &Edge) -> Option<Edge> {
    let node = &graph.nodes[positions.node];
    node.primitive.operation::<SamePosition>()?;
    let word = &node.inputs[0];
    let is_word = matches!(graph.nodes[word.node].primitive, Primitive::Integers);
    is_word.then(|| word.clone())
}

/// Whether an edge reads 0, 1, 2, …
fn counts(graph: &Graph, edge: &Edge) -> bool {
    let node = &graph.nodes[edge.node];
    let (Primitive::Elementwise(expression), []) = (&node.primitive, &node.inputs[..]) else {
        return false;
    };
    let count = edge.layout.count();
    let expected = (0..count as u32).collect();
    graph.is_whole(edge) && elementwise::reference(expression, &[], count) == Values::U32(expected)
}

/// Whether an edge reads the rows that a token at the position in `word` has in arrays of `extent` rows each, one after
/// the other.
fn writes_at(graph: &Graph, rows: &Edge, word: &Edge, extent: usize) -> bool {
    let node = &graph.nodes[rows.node];
    let (Primitive::Elementwise(expression), [start]) = (&node.primitive, &node.inputs[..]) else {
        return false;
    };
    let is_word = start.source() == word.source()
        && start.layout.offset == word.layout.offset
        && start.layout.strides.iter().all(|&stride| stride == 0);
    is_word && graph.is_whole(rows) && is_affine(expression, rows.layout.count(), extent)
}

/// Whether the expression is `extent` · index + input, for as many elements.
fn is_affine(expression: &Expression, count: usize, extent: usize) -> bool {
    let at = |start: i32| elementwise::reference(expression, &[Values::I32(vec![start; count])], count);
    let expected = |start: usize| Values::I32((0..count).map(|n| (n * extent + start) as i32).collect());
    let adds = expression.inputs == [DType::I32];
    // The core writes nothing but sums; the first, the last and some position between tell which.
    adds && [0, 1, extent / 2, extent.saturating_sub(1)]
        .into_iter()
        .all(|start| at(start as i32) == expected(start))
}

/// A node that computes slots, to be made. Caches with other pages have other slots of the same positions.
struct SlotsNode {
    tokens: [Edge; 3],
    page: usize,
    primitive: Primitive,
}

/// Changes to make, all at once.
#[derive(Default)]
struct Paged {
    /// Nodes in another form, by number.
    changed: Vec<(usize, Node)>,
    /// The nodes that compute slots.
    slots: Vec<SlotsNode>,
    /// For changed writes, which slots they read.
    writes: Vec<(usize, usize)>,
}

impl Paged {
    fn add(&mut self, graph: &Graph, uses: &[usize], found: &Attention, device: &Device) {
        let heads = found.tokens[0].layout.count();
        let Some(slots) = self.slots_of(found, device) else {
            return;
        };
        let writes = found
            .writes
            .map(|number| written(graph, number, heads).map(|node| (number, node)));
        let [Some(keys), Some(values)] = writes else {
            return;
        };
        // If queries and keys are rotated at this position, say so in the same way for both.
        let sources = [&found.queries, &graph.nodes[found.writes[0]].inputs[1]];
        let rotated = sources.map(|edge| rotated(graph, uses, edge, &found.tokens[0]));
        if let [Some(queries), Some(keys)] = rotated {
            self.changed.extend([queries, keys]);
        }
        for (number, node) in [keys, values] {
            self.writes.push((number, slots));
            self.changed.push((number, node));
        }
    }

    /// The number of the node that computes the slots of an attention's tokens.
    fn slots_of(&mut self, found: &Attention, device: &Device) -> Option<usize> {
        let is_same = |node: &SlotsNode| node.tokens == found.tokens && node.page == found.page;
        if let Some(number) = self.slots.iter().position(is_same) {
            return Some(number);
        }
        self.slots.push(SlotsNode {
            tokens: found.tokens.clone(),
            page: found.page,
            primitive: slots(found, device)?,
        });
        Some(self.slots.len() - 1)
    }

    fn applied_to(self, graph: Graph) -> Graph {
        if self.slots.is_empty() {
            return graph;
        }
        let Graph { nodes, outputs } = graph;
        // What slots depend on comes first: constants and words.
        let mut early = vec![false; nodes.len()];
        for edge in self.slots.iter().flat_map(|node| &node.tokens) {
            early[edge.node] = true;
        }
        for (number, node) in nodes.iter().enumerate() {
            early[number] |= node.primitive.is_leaf();
        }
        let count = nodes.len();
        let mut nodes: Vec<Option<Node>> = nodes.into_iter().map(Some).collect();
        for (number, node) in self.changed {
            nodes[number] = Some(node);
        }
        let mut renamed = vec![usize::MAX; count];
        let mut made: Vec<Node> = Vec::with_capacity(count + self.slots.len());
        let mut slots = Vec::with_capacity(self.slots.len());
        let mut place = |made: &mut Vec<Node>, renamed: &mut Vec<usize>, number: usize, slots: &[usize]| {
            let mut node = nodes[number].take().expect("each node is placed once");
            node.inputs.iter_mut().for_each(|edge| edge.node = renamed[edge.node]);
            if let Some((_, of)) = self.writes.iter().find(|(write, _)| *write == number) {
                let heads = node.inputs[1].layout.shape[0];
                node.inputs.truncate(2);
                node.inputs.push(Edge::first(slots[*of], Layout::contiguous(&[heads])));
            }
            renamed[number] = made.len();
            made.push(node);
        };
        (0..count)
            .filter(|&number| early[number])
            .for_each(|number| place(&mut made, &mut renamed, number, &[]));
        for SlotsNode { tokens, primitive, .. } in self.slots {
            let heads = tokens[0].layout.count();
            let inputs = tokens.map(|edge| Edge {
                node: renamed[edge.node],
                ..edge
            });
            slots.push(made.len());
            made.push(Node::new(primitive, inputs.to_vec(), vec![heads], DType::I32));
        }
        (0..count)
            .filter(|&number| !early[number])
            .for_each(|number| place(&mut made, &mut renamed, number, &slots));
        let outputs = outputs.into_iter().map(|edge| Edge {
            node: renamed[edge.node],
            ..edge
        });
        Graph {
            outputs: outputs.collect(),
            nodes: made,
        }
    }
}

/// The operation that computes slots in pages, as `refrain-lm` makes it.
fn slots(found: &Attention, device: &Device) -> Option<Primitive> {
    let input = |edge: &Edge, name: &str, dtype: DType| Array::input(device, name, dtype, &edge.layout.shape);
    let [positions, sequences, pages] = &found.tokens;
    let tokens = [
        input(positions, "positions", DType::I32),
        input(sequences, "sequences", DType::U32),
        input(pages, "pages", DType::U32),
    ];
    let tokens = BatchTokens {
        positions: &tokens[0],
        sequences: &tokens[1],
        pages: &tokens[2],
    };
    let traced = Graph::trace(&[&refrain_lm::slots(tokens, found.page)]).ok()?;
    let edge = traced.outputs.first()?;
    let primitive = traced.nodes[edge.node].primitive.clone();
    matches!(primitive, Primitive::Operation(_)).then_some(primitive)
}

/// A write of rows `[N, D]` as one of rows `[N, 1, D]`, without its slots.
fn written(graph: &Graph, number: usize, heads: usize) -> Option<Node> {
    let node = &graph.nodes[number];
    let [state, part, numbers] = &node.inputs[..] else {
        return None;
    };
    let &[rows, width] = &state.layout.shape[..] else {
        return None;
    };
    let through = |edge: &Edge, shape: &[usize]| Some(edge.through(edge.layout.reshape(shape)?));
    let inputs = vec![
        through(state, &[rows, 1, width])?,
        through(part, &[heads, 1, width])?,
        numbers.clone(),
    ];
    Some(Node::new(
        node.primitive.clone(),
        inputs,
        vec![rows, 1, width],
        node.dtype,
    ))
}

/// RoPE before an edge, over tokens of one key head each at these positions, if it rotates at the same position.
fn rotated(graph: &Graph, uses: &[usize], edge: &Edge, positions: &Edge) -> Option<(usize, Node)> {
    let node = &graph.nodes[edge.node];
    let [x, own, frequencies] = &node.inputs[..] else {
        return None;
    };
    let word = position_word(graph, positions)?;
    let is_same =
        position_word(graph, own).is_some_and(|own| own.source() == word.source() && own.layout == word.layout);
    let is_rope = node.primitive.name() == "rope";
    let (tokens, width) = (positions.layout.count(), *node.shape.last()?);
    let rows = node.layout.count() / (tokens * width).max(1);
    let fits = is_rope
        && is_same
        && uses[edge.node] == 1
        && graph.is_whole(edge)
        && rows * tokens * width == node.layout.count();
    if !fits {
        return None;
    }
    let shape = [tokens, rows, width];
    let x = x.through(x.layout.reshape(&shape)?);
    let inputs = vec![x, positions.clone(), frequencies.clone()];
    Some((
        edge.node,
        Node::new(node.primitive.clone(), inputs, shape.to_vec(), node.dtype),
    ))
}
