mod node;

use std::sync::{Arc, MutexGuard};

use refrain_vulkan::MemoryClass;

use crate::claims::{Claim, ClaimedWork};
use crate::device::Flush;
use crate::evaluate::{eval, evaluate};
use crate::operation::ArraySpec;
use crate::ops::Caller;
use crate::storage::Storage;
use crate::{DType, Device, Element, Error, Layout, Primitive};
use node::ArrayNode;
pub(crate) use node::{Content, Value};

/// A lazy n-dimensional array on a device. Cloning shares it.
///
/// Operations never fail on the spot: an operation on shapes, dtypes or devices that do not fit gives
/// an *invalid* array (as does any operation on an invalid one), and evaluating it returns the first
/// error, which names the operation and the line that called it. [`Array::error`] tells at once.
///
/// Operands of different dtypes meet in the wider: floats before integers, i32 before u32 before u8
/// before bool; f16 and bf16 meet in f32. Each operation rounds its result to its dtype.
#[derive(Clone)]
pub struct Array {
    node: Arc<ArrayNode>,
    /// Which of the node's results.
    result: usize,
}

impl Array {
    /// The first result of a computation, and what its others are; [`Array::sibling`] names them.
    pub(crate) fn new(device: &Device, first: ArraySpec, further: Vec<ArraySpec>, content: Content) -> Array {
        let node = Arc::new(ArrayNode::new(device, first, further, content));
        Array { node, result: 0 }
    }

    /// Elements that are there.
    pub(crate) fn ready(device: &Device, shape: &[usize], dtype: DType, value: Value) -> Array {
        let shape = shape.to_vec();
        Array::new(
            device,
            ArraySpec { shape, dtype },
            vec![],
            Content::Ready(vec![Some(value)]),
        )
    }

    /// What evaluates to `error`.
    pub(crate) fn invalid(device: &Device, dtype: DType, error: Error) -> Array {
        let shape = vec![];
        Array::new(device, ArraySpec { shape, dtype }, vec![], Content::Invalid(error))
    }

    /// Result `result` of the same computation.
    pub(crate) fn sibling(&self, result: usize) -> Array {
        let node = self.node.clone();
        Array { node, result }
    }

    /// Which of its computation's results this is.
    pub(crate) fn result(&self) -> usize {
        self.result
    }

    /// What the results of its computation are.
    pub(crate) fn specs(&self) -> impl ExactSizeIterator<Item = &ArraySpec> {
        (0..self.node.further.len() + 1).map(|result| self.node.spec(result))
    }

    /// How many of these are new: the others are next versions of states.
    pub(crate) fn new_results(&self) -> usize {
        let updated = match &*self.content() {
            Content::Lazy(primitive, _) => primitive.updates().len(),
            _ => 0,
        };
        self.specs().len() - updated
    }

    /// How many arrays name results of the computation of this one.
    pub(crate) fn names(&self) -> usize {
        Arc::strong_count(&self.node)
    }

    /// Whether this is the whole of a state or of an update of one: what may be written in place.
    pub(crate) fn is_state(&self) -> bool {
        match &*self.content() {
            Content::Ready(values) => values[self.result].as_ref().is_some_and(|value| {
                value.storage.is_state() && value.layout.offset == 0 && value.layout.is_contiguous()
            }),
            Content::Lazy(Primitive::Reshape, inputs) => inputs[0].is_state(),
            Content::Lazy(primitive, _) => self.result >= self.specs().len() - primitive.updates().len(),
            Content::Invalid(_) => false,
        }
    }

    /// The memory of which this is the whole state, once it is evaluated.
    pub(crate) fn whole_state(&self) -> Option<Storage> {
        let value = self.value()?;
        (value.storage.is_state() && value.layout.offset == 0).then_some(value.storage)
    }

    /// The elements, once they are there.
    pub(crate) fn value(&self) -> Option<Value> {
        self.content().value(self.result).cloned()
    }

    fn stored(device: &Device, storage: Storage, dtype: DType, shape: &[usize]) -> Array {
        let value = Value {
            version: storage.version(),
            storage,
            layout: Layout::contiguous(shape),
        };
        Array::ready(device, shape, dtype, value)
    }

    /// An array of the given elements, row-major. The product of `shape` must be their number; if it is
    /// not, or memory is short, the array is invalid.
    #[track_caller]
    pub fn from_slice<T: Element>(device: &Device, elements: &[T], shape: &[usize]) -> Array {
        Array::from_bytes(device, bytemuck::cast_slice(elements), T::DTYPE, shape)
    }

    /// An array from little-endian bytes of `dtype`, row-major; bool is one byte, 0 or 1. Invalid when
    /// the bytes do not make the elements of `shape`, or memory is short.
    #[track_caller]
    pub fn from_bytes(device: &Device, bytes: &[u8], dtype: DType, shape: &[usize]) -> Array {
        let operation = Caller::new("from_bytes");
        let fill = &mut |offset: u64, piece: &mut [u8]| piece.copy_from_slice(&bytes[offset as usize..][..piece.len()]);
        let made = operation.bytes(shape, dtype).and_then(|wanted| {
            if wanted != bytes.len() as u64 {
                let what = format!("{} bytes do not make {dtype} elements of shape {shape:?}", bytes.len());
                return Err(operation.error(what));
            }
            Array::filled(device, MemoryClass::Scratch, dtype, shape, wanted, fill)
        });
        made.unwrap_or_else(|error| Array::invalid(device, dtype, error))
    }

    /// A weight: memory that is written once, here, and never waited for. `fill(offset, piece)` is
    /// called with consecutive pieces of its bytes, so nothing needs to be whole in host memory.
    ///
    /// # Errors
    /// Too little memory, or more elements than memory has addresses for.
    #[track_caller]
    pub fn weight(
        device: &Device,
        dtype: DType,
        shape: &[usize],
        fill: &mut dyn FnMut(u64, &mut [u8]),
    ) -> Result<Array, Error> {
        let bytes = Caller::new("weight").bytes(shape, dtype)?;
        Array::filled(device, MemoryClass::Weight, dtype, shape, bytes, fill)
    }

    /// Version 0 of a state of zeros: memory that updates change in place (a KV cache, say).
    ///
    /// # Errors
    /// As [`Array::weight`].
    #[track_caller]
    pub fn state(device: &Device, dtype: DType, shape: &[usize]) -> Result<Array, Error> {
        let bytes = Caller::new("state").bytes(shape, dtype)?;
        Array::filled(device, MemoryClass::State, dtype, shape, bytes, &mut |_, piece| {
            piece.fill(0)
        })
    }

    /// As [`Array::state`], in memory that the host reads without a copy: for a few words that it wants
    /// often. To the device they are far away.
    ///
    /// # Errors
    /// As [`Array::weight`].
    #[track_caller]
    pub fn mapped_state(device: &Device, dtype: DType, shape: &[usize]) -> Result<Array, Error> {
        let bytes = Caller::new("state").bytes(shape, dtype)?;
        let storage = device.allocate(MemoryClass::Report, bytes)?;
        device.write(&storage, 0, &vec![0; bytes as usize])?;
        Ok(Array::stored(device, storage, dtype, shape))
    }

    fn filled(
        device: &Device,
        class: MemoryClass,
        dtype: DType,
        shape: &[usize],
        bytes: u64,
        fill: &mut dyn FnMut(u64, &mut [u8]),
    ) -> Result<Array, Error> {
        let storage = device.allocate(class, bytes)?;
        if bytes > 0 {
            device.fill(&storage, bytes, fill)?;
        }
        Ok(Array::stored(device, storage, dtype, shape))
    }

    /// A placeholder for an argument of a traced function (see [`crate::Function`]).
    #[track_caller]
    pub fn input(device: &Device, name: &str, dtype: DType, shape: &[usize]) -> Array {
        let primitive = Primitive::Input { name: name.to_string() };
        Caller::new("input").source(device, primitive, shape, dtype)
    }

    /// Extent of each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.spec().shape
    }

    /// Extent of dimension `axis`; negative counts from the last. 0 where there is no such dimension.
    pub fn dim(&self, axis: isize) -> usize {
        crate::ops::axis_of(self, axis).map_or(0, |axis| self.shape()[axis])
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
        self.node.spec(self.result)
    }

    /// The device that computes and holds it.
    pub fn device(&self) -> &Device {
        &self.node.device
    }

    /// The error that made this array invalid, if one did.
    pub fn error(&self) -> Option<Error> {
        match &*self.content() {
            Content::Invalid(error) => Some(error.clone()),
            _ => None,
        }
    }

    /// The number of its computation.
    pub(crate) fn id(&self) -> u64 {
        self.node.id
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
            values[self.result] = Some(value);
            return;
        }
        let mut values = vec![None; self.specs().len()];
        values[self.result] = Some(value);
        let before = std::mem::replace(&mut *content, Content::Ready(values));
        // The inputs are dropped after the lock is released: they may be the last of a long chain.
        drop(content);
        drop(before);
    }

    /// Whether the elements have been computed (or are being computed by the device).
    pub fn is_evaluated(&self) -> bool {
        self.content().value(self.result).is_some()
    }

    /// Computes this array. Returns once the work is submitted; reading waits.
    ///
    /// # Errors
    /// That of an invalid array it is made of; too little memory; what the device cannot compute, or its failure.
    pub fn eval(&self) -> Result<(), Error> {
        eval(&[self])
    }

    /// The elements in row-major order, evaluated if need be. Waits for this array's memory alone.
    ///
    /// # Errors
    /// Those of the evaluation; when `T` is not this array's dtype; [`Error::StaleState`] when this is a
    /// state (or a part of one) that has been updated since.
    #[track_caller]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, Error> {
        let operation = Caller::new("to_vec");
        if T::DTYPE != self.dtype() && self.error().is_none() {
            return Err(operation.error(format!("the elements are {}, not {}", self.dtype(), T::DTYPE)));
        }
        crate::element::decode(&self.to_bytes()?).map_err(|what| operation.error(what))
    }

    /// The elements' bytes (little-endian) in row-major order, evaluated if need be.
    ///
    /// # Errors
    /// As [`Array::to_vec`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        evaluate(&[self], Flush::ReadBack)?;
        let (value, reading) = Claim::of(|| self.value_to_read())?;
        if !value.layout.is_contiguous() {
            drop(reading);
            return self.contiguous().to_bytes();
        }
        let size = self.dtype().size();
        let mut bytes = vec![0; self.count() * size];
        self.device()
            .read(&value.storage, (value.layout.offset * size) as u64, &mut bytes)?;
        Ok(bytes)
    }

    /// The elements of an evaluated array, and the state that reading them reads.
    fn value_to_read(&self) -> Result<(Value, Vec<ClaimedWork>), Error> {
        let value = self.value().expect("evaluated arrays are ready");
        let (read, current) = (value.version, value.storage.version());
        if read != current {
            return Err(Error::StaleState {
                op: "to_bytes".to_string(),
                read,
                current,
            });
        }
        let work = value.storage.is_state().then(|| ClaimedWork::on(&value.storage));
        Ok((value, work.into_iter().collect()))
    }

    /// Words of a state from word `at` on as they are now, of one made with [`Array::mapped_state`]: what a
    /// run wrote is there once the run is over.
    ///
    /// # Errors
    /// Words outside of the state, another array than such a state.
    pub fn peek(&self, at: usize, out: &mut [u32]) -> Result<(), Error> {
        let storage = self.words_of_state(4 * at, 4 * out.len())?;
        self.device()
            .peek(&storage, 4 * at as u64, bytemuck::cast_slice_mut(out))
    }

    /// Bytes of a state from byte `start` on, whatever its version. Waits for the last run that writes it.
    ///
    /// # Errors
    /// Bytes outside of the state, an array that is none, a failing device.
    pub fn read_state(&self, start: usize, out: &mut [u8]) -> Result<(), Error> {
        let storage = self.words_of_state(start, out.len())?;
        self.device().read(&storage, start as u64, out)
    }

    /// Puts bytes into a state from byte `start` on, behind all runs so far and before later ones. `start`
    /// is a multiple of 4.
    ///
    /// # Errors
    /// As [`Array::read_state`].
    pub fn write_state(&self, start: usize, bytes: &[u8]) -> Result<(), Error> {
        let storage = self.words_of_state(start, bytes.len())?;
        let fill = &mut |offset: u64, piece: &mut [u8]| piece.copy_from_slice(&bytes[offset as usize..][..piece.len()]);
        self.device()
            .fill_from(&storage, start as u64, bytes.len() as u64, fill)
    }

    /// The memory of a state of which bytes `start..start + bytes` are wanted.
    fn words_of_state(&self, start: usize, bytes: usize) -> Result<Storage, Error> {
        let all = self.count() * self.dtype().size();
        let inside = start.checked_add(bytes).is_some_and(|end| end <= all);
        self.whole_state().filter(|_| inside).ok_or_else(|| {
            let end = start.saturating_add(bytes);
            Error::Call(format!("bytes {start}..{end} of {self:?} are not those of a state"))
        })
    }

    /// The same elements on another device, copied by way of the host.
    ///
    /// # Errors
    /// As [`Array::to_vec`], and too little memory on `device`.
    #[track_caller]
    pub fn to_device(&self, device: &Device) -> Result<Array, Error> {
        let operation = Caller::new("to_device");
        let fill = self.to_bytes()?;
        let bytes = operation.bytes(self.shape(), self.dtype())?;
        let copy = &mut |offset: u64, piece: &mut [u8]| piece.copy_from_slice(&fill[offset as usize..][..piece.len()]);
        Array::filled(device, MemoryClass::Scratch, self.dtype(), self.shape(), bytes, copy)
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
