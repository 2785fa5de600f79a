mod create;
mod node;
mod read;

use std::sync::{Arc, MutexGuard};

use crate::operation::ArraySpec;
use crate::ops::slice_update::SliceUpdate;
use crate::storage::Storage;
use crate::{DType, Device, Error, Primitive, SliceBounds};
use node::{ArrayNode, NodeDevice};
pub(crate) use node::{ArrayNumber, Content, Inputs, Value};

/// A lazy n-dimensional array on a device. Cloning is cheap: clones share the elements.
///
/// Operations never fail on the spot. An operation on shapes, dtypes or devices that do not fit returns an
/// *invalid* array, and so does any operation on an invalid array. Evaluation returns the first error, which
/// names the operation and the line that called it. [`Array::error`] returns it without evaluating.
///
/// Operands of different dtypes are promoted to the wider one: floats before integers, i32 before u32 before u8
/// before bool; f16 with bf16 gives f32. Each operation rounds its result to its dtype.
#[derive(Clone)]
pub struct Array {
    node: Arc<ArrayNode>,
    /// Index among the node's results, if those are several. Its count tells how many arrays refer to the result.
    result: Option<Arc<usize>>,
}

impl Array {
    /// The first result of a computation whose other results have the specs `extra_results`. [`Array::sibling`] returns
    /// those.
    pub(crate) fn new(device: &Device, first: ArraySpec, extra_results: Vec<ArraySpec>, content: Content) -> Array {
        let node = ArrayNode::new(NodeDevice::of(device), first, extra_results, content);
        Array::result_of(Arc::new(node), 0)
    }

    /// [`Array::new`] for a computation with inputs, on their device.
    pub(crate) fn lazy(first: ArraySpec, extra_results: Vec<ArraySpec>, primitive: Primitive, inputs: Inputs) -> Array {
        let device = NodeDevice::of(inputs[0].device());
        let node = ArrayNode::new(device, first, extra_results, Content::Lazy(primitive, inputs));
        Array::result_of(Arc::new(node), 0)
    }

    /// An array whose elements are already computed.
    pub(crate) fn ready(device: &Device, shape: &[usize], dtype: DType, value: Value) -> Array {
        let spec = ArraySpec::new(shape, dtype);
        Array::new(device, spec, vec![], Content::Ready(vec![Some(value)]))
    }

    /// An invalid array: evaluating it returns `error`.
    pub(crate) fn invalid(device: &Device, dtype: DType, error: Error) -> Array {
        let spec = ArraySpec::new(&[], dtype);
        Array::new(device, spec, vec![], Content::Invalid(error))
    }

    fn result_of(node: Arc<ArrayNode>, result: usize) -> Array {
        Array {
            result: node.several.as_ref().map(|several| several.handles[result].clone()),
            node,
        }
    }

    /// Result `result` of the computation that makes this array.
    pub(crate) fn sibling(&self, result: usize) -> Array {
        Array::result_of(self.node.clone(), result)
    }

    /// Index of this array among the results of its computation.
    pub(crate) fn result(&self) -> usize {
        self.result.as_deref().copied().unwrap_or(0)
    }

    /// Shapes and dtypes of all results of its computation.
    pub(crate) fn specs(&self) -> impl ExactSizeIterator<Item = &ArraySpec> {
        (0..self.node.results()).map(|result| self.node.spec(result))
    }

    /// Number of results that get memory of their own; the remaining results are next versions of states.
    pub(crate) fn new_results(&self) -> usize {
        let updated = match &*self.content() {
            Content::Lazy(primitive, _) => primitive.updates().len(),
            _ => 0,
        };
        self.specs().len() - updated
    }

    /// Number of `Array` handles to result `result` of this array's computation.
    pub(crate) fn handles_of(&self, result: usize) -> usize {
        match &self.node.several {
            Some(several) => Arc::strong_count(&several.handles[result]) - 1,
            None => self.handle_count(),
        }
    }

    /// Number of `Array` handles to results of this array's computation.
    pub(crate) fn handle_count(&self) -> usize {
        Arc::strong_count(&self.node)
    }

    /// Whether this is a whole state or the result of an update of one, and so may be updated in place.
    pub(crate) fn is_state(&self) -> bool {
        match &*self.content() {
            Content::Ready(values) => values[self.result()].as_ref().is_some_and(|value| {
                value.storage.is_state() && value.layout.offset == 0 && value.layout.is_contiguous()
            }),
            Content::Lazy(Primitive::Reshape, inputs) => inputs[0].is_state(),
            Content::Lazy(primitive, _) => self.result() >= self.specs().len() - primitive.updates().len(),
            Content::Invalid(_) => false,
        }
    }

    /// The array of which this is the beginning along `axis`, if this is a slice that is not computed yet. An operation
    /// can then read the whole array up to a length ([`Array::integer`]), so that its shapes do not depend on the length.
    /// This array itself, if it is an update along that axis that is not computed yet: a cache that has become full.
    pub fn prefix_of(&self, axis: usize) -> Option<Array> {
        match &*self.content() {
            Content::Lazy(Primitive::Slice(bounds), inputs) => {
                let SliceBounds { start, step, .. } = &**bounds;
                let source = &inputs[0];
                let is_whole = |d: usize| d == axis || self.shape()[d] == source.shape()[d];
                let is_prefix = start.iter().all(|&start| start == 0) && step.iter().all(|&step| step == 1);
                (is_prefix && axis < self.rank() && (0..self.rank()).all(is_whole)).then(|| source.clone())
            }
            Content::Lazy(primitive, _) => {
                let update = primitive.operation::<SliceUpdate>();
                update.filter(|update| update.moves_along(axis)).map(|_| self.clone())
            }
            _ => None,
        }
    }

    /// What an update that is not computed yet writes, if this reads just that at the beginning of `axis`: a cache that
    /// holds nothing else yet.
    pub fn written_prefix(&self, axis: usize) -> Option<Array> {
        match &*self.prefix_of(axis)?.content() {
            Content::Lazy(primitive, inputs) => {
                let update = primitive.operation::<SliceUpdate>()?;
                update.replaces_beginning(self.shape()).then(|| inputs[1].clone())
            }
            _ => None,
        }
    }

    /// The array whose last two dimensions this swaps, if this is such a view that is not computed yet. An operation can
    /// then read the rows of that array, which are together in memory.
    pub fn transpose_of(&self) -> Option<Array> {
        let outer = self.rank().checked_sub(2)?;
        match &*self.content() {
            Content::Lazy(Primitive::Permute { axes }, inputs) => {
                let swaps = axes[..outer].iter().copied().eq(0..outer) && axes[outer..] == [outer + 1, outer];
                swaps.then(|| inputs[0].clone())
            }
            _ => None,
        }
    }

    /// The memory of the state, if this array is evaluated and starts at a state's first element.
    pub(crate) fn whole_state(&self) -> Option<Storage> {
        let value = self.value()?;
        (value.storage.is_state() && value.layout.offset == 0).then_some(value.storage)
    }

    /// The elements, if they are computed.
    pub(crate) fn value(&self) -> Option<Value> {
        self.content().value(self.result()).cloned()
    }

    /// Extents of the dimensions.
    pub fn shape(&self) -> &[usize] {
        &self.spec().shape
    }

    /// Extent of dimension `axis`; negative axes count from the last. 0 if there is no such dimension.
    pub fn dim(&self, axis: isize) -> usize {
        resolve_axis(axis, self.rank()).map_or(0, |axis| self.shape()[axis])
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape().len()
    }

    /// Number of elements.
    pub fn count(&self) -> usize {
        self.shape().iter().product()
    }

    /// Storage type of the elements.
    pub fn dtype(&self) -> DType {
        self.spec().dtype
    }

    /// Shape and dtype.
    pub(crate) fn spec(&self) -> &ArraySpec {
        self.node.spec(self.result())
    }

    /// The device that computes and stores this array.
    pub fn device(&self) -> &Device {
        self.node.device()
    }

    /// The error that made this array invalid, if it is invalid.
    pub fn error(&self) -> Option<Error> {
        if self.node.is_valid {
            return None;
        }
        match &*self.content() {
            Content::Invalid(error) => Some(error.clone()),
            _ => None,
        }
    }

    /// What tells this array from all others, its clones excepted: its computation's number, which grows with creation,
    /// and the index of the result.
    pub fn identity(&self) -> (u64, usize) {
        (self.id(), self.result())
    }

    /// Id of its computation; grows with creation.
    pub(crate) fn id(&self) -> u64 {
        self.node.id
    }

    /// Notes that a walk over a program came to its computation. Returns whether it did for the first time. Walks have
    /// numbers from 1 on; call it inside [`crate::locks::WorkLock::acquire`].
    pub(crate) fn visit(&self, walk: u64) -> bool {
        self.node.mark.visit(walk)
    }

    /// The number that the last walk gave to its computation.
    pub(crate) fn number(&self) -> ArrayNumber {
        ArrayNumber::of(self.node.mark.number())
    }

    pub(crate) fn set_number(&self, number: ArrayNumber) {
        self.node.mark.set_number(number.word());
    }

    /// Whether its computation has one result.
    pub(crate) fn is_only_result(&self) -> bool {
        self.node.several.is_none()
    }

    pub(crate) fn content(&self) -> MutexGuard<'_, Content> {
        self.node
            .content
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn set_ready(&self, value: Value) {
        let mut content = self.content();
        if let Content::Ready(values) = &mut *content {
            values[self.result()] = Some(value);
            return;
        }
        let mut values = vec![None; self.specs().len()];
        values[self.result()] = Some(value);
        let before = std::mem::replace(&mut *content, Content::Ready(values));
        // The inputs are dropped after the lock is released: they may be the last of a long chain.
        drop(content);
        drop(before);
    }

    /// Whether the elements are computed (or submitted to the device).
    pub fn is_evaluated(&self) -> bool {
        self.content().value(self.result()).is_some()
    }
}

impl std::fmt::Debug for Array {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &*self.content() {
            Content::Invalid(error) => write!(f, "Array(invalid: {error})"),
            _ => write!(
                f,
                "Array({}{:?} on {})",
                self.dtype(),
                self.shape(),
                self.device().name()
            ),
        }
    }
}

/// Resolves an axis of `rank` dimensions.
pub(crate) fn resolve_axis(axis: isize, rank: usize) -> Option<usize> {
    let resolved = if axis < 0 {
        axis.checked_add_unsigned(rank)?
    } else {
        axis
    };
    usize::try_from(resolved).ok().filter(|&axis| axis < rank)
}
