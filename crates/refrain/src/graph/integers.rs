//! Integers of a program in its graph: constants, or words that the host writes before a run.

use refrain_kernels::elementwise::{BinaryOp, Expression, ExpressionStep, Scalar};

use super::trace::{Builder, StateVersions};
use super::{Edge, Node};
use crate::array::Array;
use crate::integers::{IntegerSource, IntegerSources};
use crate::ops::scatter::ScatterRows;
use crate::ops::slice_update::{RowsUpdate, SliceUpdate};
use crate::ops::write_rows::WriteRows;
use crate::signature::FastMap;
use crate::{DType, Layout, Primitive};

/// The integers of a graph that is being built.
pub(super) struct Integers {
    sources: IntegerSources,
    /// Number of integers so far.
    next: usize,
    /// The node of the words, if there are any.
    words: Option<usize>,
    /// The node of the rows that an update replaces, for each kind of update and each word where it starts.
    rows: FastMap<(usize, RowsUpdate), usize>,
}

impl Integers {
    pub fn new(sources: &IntegerSources) -> Integers {
        Integers {
            sources: sources.clone(),
            next: 0,
            words: None,
            rows: FastMap::default(),
        }
    }

    /// The source of the next integer in program order.
    pub fn next(&mut self) -> IntegerSource {
        self.next += 1;
        self.sources.get(self.next - 1)
    }
}

impl Builder<'_> {
    /// Adds the words, if there are any.
    pub fn add_integers(&mut self) {
        let count = self.integers.sources.word_count();
        if count > 0 {
            let node = Node::new(Primitive::Integers, vec![], vec![count], DType::I32);
            self.integers.words = Some(self.push(node, StateVersions::Stateless));
        }
    }

    /// Adds a [`Primitive::Integer`].
    pub fn add_integer(&mut self, array: &Array, source: IntegerSource) {
        let edge = match source {
            IntegerSource::Word(word) => self.word(word, &[]),
            IntegerSource::Constant(value) => {
                let (value, dtype) = (Scalar::I32(value), DType::I32);
                let expression = Expression {
                    inputs: vec![],
                    steps: vec![ExpressionStep::Constant { value, dtype }],
                };
                let node = Node::new(Primitive::Elementwise(expression), vec![], vec![], DType::I32);
                Edge::first(
                    self.push_shared(node, StateVersions::Stateless),
                    Layout::contiguous(&[]),
                )
            }
        };
        self.edges.insert((array.id(), array.result()), edge);
    }

    /// A word, broadcast to a shape.
    fn word(&self, number: usize, shape: &[usize]) -> Edge {
        let layout = Layout {
            shape: shape.into(),
            strides: vec![0; shape.len()].into(),
            offset: number,
        };
        Edge::first(self.integers.words.expect("a word has a source"), layout)
    }

    /// A slice update whose start is a word: an update of rows. Returns the primitive, its inputs and its shape.
    pub fn rows_update(
        &mut self,
        update: &SliceUpdate,
        word: usize,
        inputs: Vec<Edge>,
        is_in_place: bool,
    ) -> (Primitive, Vec<Edge>, Vec<usize>) {
        let rows = update.as_rows(&inputs[0].layout.shape).expect("its start moves");
        let numbers = match self.integers.rows.get(&(word, rows)) {
            Some(&node) => node,
            None => {
                let node = row_numbers(rows, self.word(word, &[rows.outer * rows.count]));
                let node = self.push(node, StateVersions::Stateless);
                self.integers.rows.insert((word, rows), node);
                node
            }
        };
        let shape = vec![rows.outer * rows.extent, rows.inner];
        let x = self.reshaped(&inputs[0], &shape);
        let part = self.reshaped(&inputs[1], &[rows.outer * rows.count, rows.inner]);
        let numbers = Edge::first(numbers, Layout::contiguous(&[rows.outer * rows.count]));
        let primitive = if is_in_place {
            Primitive::Operation(std::sync::Arc::new(WriteRows))
        } else {
            Primitive::Operation(std::sync::Arc::new(ScatterRows { combine: None }))
        };
        (primitive, vec![x, part, numbers], shape)
    }

    fn reshaped(&mut self, edge: &Edge, shape: &[usize]) -> Edge {
        let dtype = self.nodes[edge.node].dtype_of(edge.result);
        let versions = match self.version_at(edge) {
            Some((slot, version)) => StateVersions::Version(slot, version),
            None => StateVersions::Stateless,
        };
        let node = Node::new(Primitive::Reshape, vec![edge.clone()], shape.to_vec(), dtype);
        Edge::first(self.push(node, versions), Layout::contiguous(shape))
    }
}

/// The rows that an update replaces, from the row where it starts: o · extent + start + i for o · count + i.
fn row_numbers(rows: RowsUpdate, start: Edge) -> Node {
    let constant = |value: usize| ExpressionStep::Constant {
        value: Scalar::I32(value as i32),
        dtype: DType::I32,
    };
    let steps = vec![
        ExpressionStep::Index,
        ExpressionStep::Cast(0, DType::I32),
        constant(rows.count),
        ExpressionStep::Binary(BinaryOp::Div, 1, 2),
        constant(rows.extent - rows.count),
        ExpressionStep::Binary(BinaryOp::Mul, 3, 4),
        ExpressionStep::Binary(BinaryOp::Add, 1, 5),
        ExpressionStep::Input(0),
        ExpressionStep::Binary(BinaryOp::Add, 6, 7),
    ];
    let expression = Expression {
        inputs: vec![DType::I32],
        steps,
    };
    let shape = vec![rows.outer * rows.count];
    Node::new(Primitive::Elementwise(expression), vec![start], shape, DType::I32)
}
