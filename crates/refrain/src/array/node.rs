//! The nodes that arrays share: a computation and its results.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::Array;
use crate::operation::ArraySpec;
use crate::storage::Storage;
use crate::{Device, Error, Layout, Primitive};

/// A computation. Its results are arrays: first the new ones, then the next version of each state that it updates.
pub(super) struct ArrayNode {
    /// Grows with creation. Inputs have smaller ids, so ids give the program order.
    pub id: u64,
    pub first: ArraySpec,
    /// The results after the first; most computations have none.
    pub extra_results: Vec<ArraySpec>,
    pub device: Device,
    pub content: Mutex<Content>,
}

/// The state of a computation.
pub(crate) enum Content {
    Lazy(Primitive, Vec<Array>),
    /// The value of each result. `None` for a result that no array referred to when the computation ran.
    Ready(Vec<Option<Value>>),
    Invalid(Error),
}

impl Content {
    /// The elements of a result, if they are computed.
    pub fn value(&self, result: usize) -> Option<&Value> {
        match self {
            Content::Ready(values) => values[result].as_ref(),
            _ => None,
        }
    }
}

/// Evaluated elements: memory, the layout within it, and the version of the memory (for states).
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub storage: Storage,
    pub layout: Layout,
    pub version: u64,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

impl ArrayNode {
    pub fn new(device: &Device, first: ArraySpec, extra_results: Vec<ArraySpec>, content: Content) -> ArrayNode {
        ArrayNode {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            first,
            extra_results,
            device: device.clone(),
            content: Mutex::new(content),
        }
    }

    pub fn spec(&self, result: usize) -> &ArraySpec {
        if result == 0 {
            &self.first
        } else {
            &self.extra_results[result - 1]
        }
    }
}

/// Frees a long chain of unevaluated arrays without recursion.
fn release(inputs: Vec<Array>) {
    let mut pending = vec![inputs];
    while let Some(inputs) = pending.pop() {
        for input in inputs {
            if let Some(node) = Arc::into_inner(input.node)
                && let Content::Lazy(_, inputs) = &mut *lock(&node)
            {
                pending.push(std::mem::take(inputs));
            }
        }
    }
}

fn lock(node: &ArrayNode) -> MutexGuard<'_, Content> {
    node.content.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Drop for ArrayNode {
    fn drop(&mut self) {
        let content = self.content.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Content::Lazy(_, inputs) = content {
            release(std::mem::take(inputs));
        }
    }
}
