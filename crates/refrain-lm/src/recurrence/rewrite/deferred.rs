//! Updates of the states that come after the gate, with some of the tokens: the nodes that make them become one.

use std::sync::Arc;

use refrain::graph::{Edge, Graph, Node};
use refrain::operation::ArraySpec;
use refrain::rewrite::{Replacement, computes};
use refrain::{Device, Primitive};
use refrain_kernels::RecurrenceForm;
use refrain_kernels::delta_net::DeltaNetParams;

use super::DeltaRule;
use super::window::Window;
use crate::recurrence::causal_conv::CausalConv;
use crate::recurrence::delta_net::FusedDeltaNet;
use crate::recurrence::gated_delta::GatedDelta;

/// The nodes that update the states of a delta net after its gate.
pub(super) struct Updates {
    window: usize,
    state: usize,
    /// Positions of the tokens that count.
    positions: Edge,
}

impl Updates {
    /// Returns the nodes that update the window and the state behind gate `number`, from the inputs of `conv` and `rule`.
    /// Only outputs may read the next states.
    pub fn of(graph: &Graph, number: usize, conv: &Window, rule: &DeltaRule) -> Option<Updates> {
        let sequences = &rule.places[1];
        let later = || (number + 1..graph.nodes.len()).map(|n| (n, &graph.nodes[n]));
        let (window, positions) = later().find_map(|(n, node)| {
            let CausalConv(RecurrenceForm::StateOnly) = node.primitive.operation()? else {
                return None;
            };
            let [x, weights, positions, same, state] = &node.inputs[..] else {
                return None;
            };
            let found = [x, weights, same, state] == [&conv.x, &conv.weights, sequences, &conv.state];
            found.then_some((n, positions))
        })?;
        let (state, _) = later().find(|(_, node)| {
            let form = node.primitive.operation::<GatedDelta>();
            let inputs = rule.rows.iter().chain(&rule.gates);
            let inputs = inputs.chain([positions, sequences, &rule.state]);
            matches!(
                form,
                Some(GatedDelta {
                    form: RecurrenceForm::StateOnly,
                    ..
                })
            ) && node.inputs.iter().eq(inputs)
        })?;
        let mut edges = graph.nodes.iter().flat_map(|node| &node.inputs);
        let is_unread = edges.all(|edge| edge.node != window && edge.node != state);
        is_unread.then(|| Updates {
            window,
            state,
            positions: positions.clone(),
        })
    }

    /// Returns the node that replaces both, in place of the later one. `inputs` are those of the fused results.
    pub fn replacement(
        &self,
        graph: &Graph,
        params: DeltaNetParams,
        mut inputs: Vec<Edge>,
        device: &Device,
    ) -> Option<(usize, Replacement)> {
        inputs[5] = self.positions.clone();
        let form = RecurrenceForm::StateOnly;
        let operation = Primitive::Operation(Arc::new(FusedDeltaNet {
            params,
            form,
            one_token: false,
        }));
        let [window, state] = [self.window, self.state].map(|number| &graph.nodes[number]);
        let node = Node {
            extra_results: vec![ArraySpec::new(&state.shape, state.dtype)],
            ..Node::new(operation, inputs, window.shape.clone(), window.dtype)
        };
        computes(graph, &node, device).then(|| {
            let replacement = Replacement {
                node,
                dropped: vec![self.window.min(self.state)],
                next: vec![((self.window, 0), 0), ((self.state, 0), 1)],
                absorbed: None,
            };
            (self.window.max(self.state), replacement)
        })
    }
}
