//! Evaluating arrays, reading them, and access to states.

use refrain_vulkan::MemoryClass;

use super::{Array, Value};
use crate::device::Flush;
use crate::evaluate::{eval, evaluate};
use crate::locks::{LockKey, WorkLock};
use crate::ops::CallSite;
use crate::storage::Storage;
use crate::{Device, Element, Error};

impl Array {
    /// Computes this array. Returns once the work is submitted; reading waits.
    ///
    /// # Errors
    /// Returns the error of an invalid array that it depends on. Fails if memory runs out, if the device does not
    /// support an operation, or if the device fails.
    pub fn eval(&self) -> Result<(), Error> {
        eval(&[self])
    }

    /// The elements in row-major order, evaluated if necessary. Waits only for this array's memory.
    ///
    /// # Errors
    /// Fails as [`Array::eval`], or if `T` is not this array's dtype. [`Error::StaleState`] if this is (a view of) a
    /// state that has been updated since.
    #[track_caller]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, Error> {
        let call_site = CallSite::new("to_vec");
        if T::DTYPE != self.dtype() && self.error().is_none() {
            return Err(call_site.error(format!("the elements are {}, not {}", self.dtype(), T::DTYPE)));
        }
        crate::element::decode(&self.to_bytes()?).map_err(|what| call_site.error(what))
    }

    /// The little-endian bytes of the elements in row-major order, evaluated if necessary.
    ///
    /// # Errors
    /// As [`Array::to_vec`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        evaluate(&[self], Flush::ReadBack)?;
        let (value, reading) = match self.value_to_read()? {
            // Memory that is no state keeps its contents: read it also while another thread traces.
            (value, keys) if keys.is_empty() => (value, None),
            _ => {
                let (value, lock) = WorkLock::acquire(|| self.value_to_read())?;
                (value, Some(lock))
            }
        };
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

    /// The value of an evaluated array, and the state that has to be locked while it is read.
    fn value_to_read(&self) -> Result<(Value, Vec<LockKey>), Error> {
        let value = self.value().expect("evaluated arrays are ready");
        let (read, current) = (value.version, value.storage.version());
        if read != current {
            return Err(Error::StaleState {
                op: "to_bytes".to_string(),
                read,
                current,
            });
        }
        let work = value.storage.is_state().then(|| LockKey::of_state(&value.storage));
        Ok((value, work.into_iter().collect()))
    }

    /// Copies words of a state, made with [`Array::mapped_state`], from word `at` on, as they are at this moment. A
    /// run's writes are visible once the run is over.
    ///
    /// # Errors
    /// Fails if the words lie outside the state, or this array is no such state.
    pub fn peek(&self, at: usize, out: &mut [u32]) -> Result<(), Error> {
        let storage = self.state_storage(4 * at, 4 * out.len())?;
        self.device()
            .peek(&storage, 4 * at as u64, bytemuck::cast_slice_mut(out))
    }

    /// Copies bytes of a state, whatever its version, from byte `start` on. Waits for the last run that writes it.
    ///
    /// # Errors
    /// Fails if the bytes lie outside the state, if this array is no state, or if the device fails.
    pub fn read_state(&self, start: usize, out: &mut [u8]) -> Result<(), Error> {
        let storage = self.state_storage(start, out.len())?;
        self.device().read(&storage, start as u64, out)
    }

    /// Writes bytes into a state from byte `start` on, after all submitted runs and before later ones. `start` must
    /// be a multiple of 4. Waits for runs that use a state of host-visible memory ([`Array::mapped_state`]).
    ///
    /// # Errors
    /// As [`Array::read_state`].
    pub fn write_state(&self, start: usize, bytes: &[u8]) -> Result<(), Error> {
        let storage = self.state_storage(start, bytes.len())?;
        if storage.class().mapped() {
            return self.device().write_after_uses(&storage, start as u64, bytes);
        }
        let fill = &mut |offset: u64, piece: &mut [u8]| piece.copy_from_slice(&bytes[offset as usize..][..piece.len()]);
        self.device()
            .fill_from(&storage, start as u64, bytes.len() as u64, fill)
    }

    /// The memory of this state, if bytes `start..start + bytes` lie within it.
    fn state_storage(&self, start: usize, bytes: usize) -> Result<Storage, Error> {
        let all = self.count() * self.dtype().size();
        let inside = start.checked_add(bytes).is_some_and(|end| end <= all);
        self.whole_state().filter(|_| inside).ok_or_else(|| {
            let end = start.saturating_add(bytes);
            Error::Call(format!("bytes {start}..{end} are not within a state: {self:?}"))
        })
    }

    /// A copy of the elements on another device, made through host memory.
    ///
    /// # Errors
    /// As [`Array::to_vec`]; also fails if memory on `device` runs out.
    #[track_caller]
    pub fn to_device(&self, device: &Device) -> Result<Array, Error> {
        let call_site = CallSite::new("to_device");
        let fill = self.to_bytes()?;
        let bytes = call_site.bytes(self.shape(), self.dtype())?;
        let copy = &mut |offset: u64, piece: &mut [u8]| piece.copy_from_slice(&fill[offset as usize..][..piece.len()]);
        Array::filled(device, MemoryClass::Scratch, self.dtype(), self.shape(), bytes, copy)
    }
}
