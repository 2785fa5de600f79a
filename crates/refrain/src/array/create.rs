//! Arrays from elements, states and placeholders.

use refrain_vulkan::MemoryClass;

use super::{Array, Value};
use crate::ops::CallSite;
use crate::storage::Storage;
use crate::{DType, Device, Element, Error, Layout, Primitive};

impl Array {
    fn stored(device: &Device, storage: Storage, dtype: DType, shape: &[usize]) -> Array {
        let value = Value {
            version: storage.version(),
            storage,
            layout: Layout::contiguous(shape),
        };
        Array::ready(device, shape, dtype, value)
    }

    /// An array of the given elements, row-major. It is invalid if the product of `shape` is not the number of
    /// elements, or if memory runs out.
    #[track_caller]
    pub fn from_slice<T: Element>(device: &Device, elements: &[T], shape: &[usize]) -> Array {
        Array::from_bytes(device, bytemuck::cast_slice(elements), T::DTYPE, shape)
    }

    /// An array from little-endian bytes of `dtype`, row-major; a bool is one byte, 0 or 1. It is invalid if the
    /// number of bytes does not match `shape`, or if memory runs out.
    #[track_caller]
    pub fn from_bytes(device: &Device, bytes: &[u8], dtype: DType, shape: &[usize]) -> Array {
        let call_site = CallSite::new("from_bytes");
        let fill = &mut |offset: u64, piece: &mut [u8]| piece.copy_from_slice(&bytes[offset as usize..][..piece.len()]);
        let made = call_site.bytes(shape, dtype).and_then(|wanted| {
            if wanted != bytes.len() as u64 {
                let what = format!("{} bytes are not the size of {dtype}{shape:?}", bytes.len());
                return Err(call_site.error(what));
            }
            Array::filled(device, MemoryClass::Scratch, dtype, shape, wanted, fill)
        });
        made.unwrap_or_else(|error| Array::invalid(device, dtype, error))
    }

    /// A weight: memory that is written once, here, so that no later use waits for it. `fill(offset, piece)` is
    /// called for consecutive pieces of its bytes; the whole weight never has to be in host memory.
    ///
    /// # Errors
    /// Fails if memory runs out or the size overflows.
    #[track_caller]
    pub fn weight(
        device: &Device,
        dtype: DType,
        shape: &[usize],
        fill: &mut dyn FnMut(u64, &mut [u8]),
    ) -> Result<Array, Error> {
        let bytes = CallSite::new("weight").bytes(shape, dtype)?;
        Array::filled(device, MemoryClass::Weight, dtype, shape, bytes, fill)
    }

    /// Version 0 of a state of zeros. A state is memory that operations update in place, such as a KV cache.
    ///
    /// # Errors
    /// As [`Array::weight`].
    #[track_caller]
    pub fn state(device: &Device, dtype: DType, shape: &[usize]) -> Result<Array, Error> {
        let bytes = CallSite::new("state").bytes(shape, dtype)?;
        Array::filled(device, MemoryClass::State, dtype, shape, bytes, &mut |_, piece| {
            piece.fill(0)
        })
    }

    /// [`Array::state`] in host-visible memory, which the host reads and writes without a copy. Meant for a few words
    /// that the host polls or changes often; the GPU accesses this memory more slowly.
    ///
    /// # Errors
    /// As [`Array::weight`].
    #[track_caller]
    pub fn mapped_state(device: &Device, dtype: DType, shape: &[usize]) -> Result<Array, Error> {
        let bytes = CallSite::new("state").bytes(shape, dtype)?;
        let storage = device.allocate(MemoryClass::Report, bytes)?;
        device.write(&storage, 0, &vec![0; bytes as usize])?;
        Ok(Array::stored(device, storage, dtype, shape))
    }

    pub(super) fn filled(
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

    /// An i32 without dimensions: a position, a length. Unlike other constants it is no part of a program.
    /// Evaluations that differ in such integers only share one program, which reads those that change from memory.
    ///
    /// ```
    /// # use refrain::{Array, DType, Device};
    /// let device = Device::cpu();
    /// for position in 0..5 {
    ///     let x = Array::arange(&device, DType::I32, 3) + Array::integer(&device, position);
    ///     assert_eq!(x.to_vec::<i32>()?, [position, position + 1, position + 2]);
    /// }
    /// // One with the constant, one that reads the position.
    /// assert_eq!(device.program_counts().lowerings, 2);
    /// # Ok::<(), refrain::Error>(())
    /// ```
    #[track_caller]
    pub fn integer(device: &Device, value: i32) -> Array {
        CallSite::new("integer").source(device, Primitive::Integer { value }, &[], DType::I32)
    }

    /// A placeholder for an argument of a traced function (see [`crate::Function`]).
    #[track_caller]
    pub fn input(device: &Device, name: &str, dtype: DType, shape: &[usize]) -> Array {
        let primitive = Primitive::Input { name: name.to_string() };
        CallSite::new("input").source(device, primitive, shape, dtype)
    }
}
