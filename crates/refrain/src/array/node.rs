//! What arrays share: computations and their results.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::Array;
use crate::operation::ArraySpec;
use crate::storage::Storage;
use crate::{Device, Error, Layout, Primitive};

/// A computation, whose results are arrays: first what is new, then the next version of each state that it updates.
pub(super) struct ArrayNode {
    /// Grows with creation: inputs have smaller ids, so ids are the program's order.
    pub id: u64,
    pub first: ArraySpec,
    /// The results behind the first: few have any.
    pub further: Vec<ArraySpec>,
    pub device: Device,
    pub content: Mutex<Content>,
}

/// What the results of a computation are made of.
pub(crate) enum Content {
    Lazy(Primitive, Vec<Array>),
    /// Of each result; none of one that nothing named any more when it was computed.
    Ready(Vec<Option<Value>>),
    Invalid(Error),
}

impl Content {
    /// The elements of a result, once they are there.
    pub fn value(&self, result: usize) -> Option<&Value> {
        match self {
            Content::Ready(values) => values[result].as_ref(),
            _ => None,
        }
    }
}

/// Evaluated elements.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub storage: Storage,
    pub layout: Layout,
    pub version: u64,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

impl ArrayNode {
    pub fn new(device: &Device, first: ArraySpec, further: Vec<ArraySpec>, content: Content) -> ArrayNode {
        ArrayNode {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            first,
            further,
            device: device.clone(),
            content: Mutex::new(content),
        }
    }

    pub fn spec(&self, result: usize) -> &ArraySpec {
        if result == 0 {
            &self.first
        } else {
            &self.further[result - 1]
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
