//! The nodes that arrays share: a computation and its results.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use smallvec::SmallVec;

use super::Array;
use crate::operation::ArraySpec;
use crate::storage::Storage;
use crate::{Device, Error, Layout, Primitive};

/// The inputs of a computation. Up to four are stored inline, since programs make thousands of nodes for each token.
pub(crate) type Inputs = SmallVec<[Array; 4]>;

/// A computation. Its results are arrays: first the new ones, then the next version of each state that it updates.
///
/// One thread makes nodes, and another walks over them: of what both write, they wait for each other's cache lines. So
/// that is in the first line, beside the counts of the `Arc`, and a node has four lines.
#[repr(C)]
pub(super) struct ArrayNode {
    /// Grows with creation. Inputs have smaller ids, so ids give the program order.
    pub id: u64,
    pub mark: Mark,
    /// Whether it is not [`Content::Invalid`], which never changes. Read without the lock.
    pub is_valid: bool,
    /// Of a computation with several results.
    pub several: Option<Box<SeveralResults>>,
    device: Arc<NodeDevice>,
    pub content: Mutex<Content>,
    first: ArraySpec,
}

/// What a computation with several results has.
pub(super) struct SeveralResults {
    /// Of the results after the first.
    extra: Vec<ArraySpec>,
    /// The index of each result. Arrays hold clones, which tell how many refer to the result.
    pub handles: Vec<Arc<usize>>,
}

/// The device of nodes that a thread made one after another. One count for all nodes would be a cache line that the
/// thread that makes nodes and the one that drops them pass back and forth.
pub(super) struct NodeDevice(Device);

/// Number of nodes that share a [`NodeDevice`].
const NODES_PER_DEVICE: u32 = 256;

thread_local! {
    /// The device of the last node, and how many more may share it.
    static LAST_DEVICE: RefCell<(Weak<NodeDevice>, u32)> = const { RefCell::new((Weak::new(), 0)) };
}

impl NodeDevice {
    /// The device for the thread's next node.
    pub fn of(device: &Device) -> Arc<NodeDevice> {
        LAST_DEVICE.with_borrow_mut(|(last, left)| {
            if let Some(shared) = last.upgrade()
                && *left > 0
                && shared.0.same(device)
            {
                *left -= 1;
                return shared;
            }
            let own = Arc::new(NodeDevice(device.clone()));
            (*last, *left) = (Arc::downgrade(&own), NODES_PER_DEVICE - 1);
            own
        })
    }
}

/// The number of a computation in a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ArrayNumber {
    /// Among those to compute, in program order.
    Computed(u32),
    /// Among those that are computed already, in the order of their first use.
    Leaf(u32),
    /// A computed one that has no number yet, or several results.
    None,
}

impl ArrayNumber {
    const LEAF: u32 = 1 << 31;

    /// The number from [`ArrayNumber::word`].
    pub(super) fn of(word: u32) -> ArrayNumber {
        match word {
            u32::MAX => ArrayNumber::None,
            word if word & ArrayNumber::LEAF != 0 => ArrayNumber::Leaf(word ^ ArrayNumber::LEAF),
            word => ArrayNumber::Computed(word),
        }
    }

    pub(super) fn word(self) -> u32 {
        match self {
            ArrayNumber::Computed(number) => number,
            ArrayNumber::Leaf(number) => number | ArrayNumber::LEAF,
            ArrayNumber::None => u32::MAX,
        }
    }
}

/// What the last walk over a program noted at a computation. Walks take place one at a time, under a lock.
#[derive(Default)]
pub(super) struct Mark {
    /// The number of the walk.
    walk: AtomicU64,
    number: AtomicU32,
}

impl Mark {
    /// Notes that a walk came here. Returns whether it did for the first time.
    pub fn visit(&self, walk: u64) -> bool {
        let is_first = self.walk.load(Ordering::Relaxed) != walk;
        if is_first {
            self.walk.store(walk, Ordering::Relaxed);
            self.number.store(u32::MAX, Ordering::Relaxed);
        }
        is_first
    }

    /// The number that this walk gave to the computation; `u32::MAX` if none.
    pub fn number(&self) -> u32 {
        self.number.load(Ordering::Relaxed)
    }

    pub fn set_number(&self, number: u32) {
        self.number.store(number, Ordering::Relaxed);
    }
}

/// The state of a computation.
pub(crate) enum Content {
    Lazy(Primitive, Inputs),
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
    pub fn new(
        device: Arc<NodeDevice>,
        first: ArraySpec,
        extra_results: Vec<ArraySpec>,
        content: Content,
    ) -> ArrayNode {
        let several = (!extra_results.is_empty()).then(|| {
            Box::new(SeveralResults {
                handles: (0..=extra_results.len()).map(Arc::new).collect(),
                extra: extra_results,
            })
        });
        ArrayNode {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            mark: Mark::default(),
            is_valid: !matches!(content, Content::Invalid(_)),
            several,
            device,
            content: Mutex::new(content),
            first,
        }
    }

    pub fn device(&self) -> &Device {
        &self.device.0
    }

    /// Number of results.
    pub fn results(&self) -> usize {
        1 + self.several.as_ref().map_or(0, |several| several.extra.len())
    }

    pub fn spec(&self, result: usize) -> &ArraySpec {
        match &self.several {
            Some(several) if result > 0 => &several.extra[result - 1],
            _ => &self.first,
        }
    }
}

impl Drop for ArrayNode {
    fn drop(&mut self) {
        release(self.take_inputs());
    }
}

impl ArrayNode {
    /// Takes out the inputs, if it is not evaluated.
    fn take_inputs(&mut self) -> Inputs {
        match self.content.get_mut().unwrap_or_else(PoisonError::into_inner) {
            Content::Lazy(_, inputs) => std::mem::take(inputs),
            _ => Inputs::new(),
        }
    }
}

/// Frees a long chain of unevaluated arrays without recursion.
fn release(mut pending: Inputs) {
    while let Some(Array { mut node, .. }) = pending.pop() {
        if let Some(node) = Arc::get_mut(&mut node) {
            pending.extend(node.take_inputs());
        // Another thread may have dropped its handle meanwhile.
        } else if let Some(mut node) = Arc::into_inner(node) {
            pending.extend(node.take_inputs());
        }
    }
}
