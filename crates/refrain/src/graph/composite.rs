//! The nodes of composites.

use std::hash::Hash;

use super::Node;
use super::trace::{Builder, StateVersions};
use crate::array::{Array, Content};
use crate::composite::{Composite, Composition};
use crate::integers::IntegerSource;
use crate::signature::Signature;
use crate::traced_graph::reachable;
use crate::{Error, Primitive};

impl Builder<'_> {
    /// Adds the arrays of which `array`, a result of `composite` for `inputs`, and its other results are composed.
    pub fn add_composite(
        &mut self,
        array: &Array,
        composite: &dyn Composite,
        inputs: &[Array],
        integer: Option<IntegerSource>,
    ) -> Result<(), Error> {
        let composed = Composition::of(array, composite, inputs, integer.is_some())?;
        for (stand_in, input) in composed.inputs.iter().zip(inputs) {
            let edge = self.edge(input);
            self.edges.insert(stand_in.identity(), edge);
        }
        if let (Some(stand_in), Some(source)) = (&composed.integer, integer) {
            self.add_integer(stand_in, source);
        }
        let (computed, leaves) = reachable(&composed.results.iter().collect::<Vec<_>>())?;
        let is_foreign = |array: &Array| {
            let is_input = matches!(&*array.content(), Content::Lazy(Primitive::Input { .. }, _));
            is_input && !self.edges.contains_key(&array.identity())
        };
        if !leaves.is_empty() || computed.iter().any(is_foreign) {
            let what = format!(
                "{} is composed of arrays that are not among its inputs",
                composite.name()
            );
            return Err(Error::Call(what));
        }
        for array in &computed {
            if !self.edges.contains_key(&array.identity()) {
                self.add_computed(array, None)?;
            }
        }
        for (result, made) in composed.results.iter().enumerate() {
            let edge = self.edge(made);
            self.edges.insert((array.id(), result), edge);
        }
        Ok(())
    }

    /// The number of a node that updates no state: of an earlier one, if that computes the same. Layers of a model
    /// compute angles and masks of the same positions, for example.
    pub fn push_shared(&mut self, node: Node, versions: StateVersions) -> usize {
        let mut signature = Signature::default();
        (&node.primitive, &node.shape, node.dtype).hash(&mut signature);
        for edge in &node.inputs {
            (edge.source(), &edge.layout).hash(&mut signature);
        }
        match self.shared.get(&signature) {
            Some(&number) => number,
            None => {
                let number = self.push(node, versions);
                self.shared.insert(signature, number);
                number
            }
        }
    }
}
