//! The staging ring: mapped slots through which all bytes pass between host and device-local memory. Created when the
//! device is opened.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};

use crate::access::Access;
use crate::command::{Command, CommandList};
use crate::counters::SharedCounters;
use crate::error::Error;
use crate::mapped::Mapped;
use crate::memory::Buffer;
use crate::queue::Queue;
use crate::queues::Queues;

/// Size of a slot in bytes.
pub(crate) const SLOT_BYTES: u64 = 8 << 20;
/// Number of slots: one is filled while others are copied.
pub(crate) const SLOTS: u64 = 4;
/// Maximum number of slots that may wait for kernels whose results are read, so that uploads always find a slot.
const MAX_READ_SLOTS: u64 = SLOTS / 2;

struct Slot {
    offset: u64,
    /// Timeline value of the last copy that used it.
    value: u64,
}

/// The free slots, and how many more of them readers may acquire.
struct FreeSlots {
    slots: VecDeque<Slot>,
    reads: u64,
}

/// Purpose of an acquired slot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SlotUse {
    Upload,
    /// Held until the data is computed and copied.
    Read,
}

/// The ring of slots.
pub(crate) struct Staging {
    buffer: Buffer,
    /// Queue that runs the copies.
    queue: Queue,
    free: Mutex<FreeSlots>,
    slot_freed: Condvar,
}

/// An acquired slot, returned to the ring on drop.
struct AcquiredSlot<'a> {
    ring: &'a Staging,
    slot: Slot,
    purpose: SlotUse,
}

impl Drop for AcquiredSlot<'_> {
    fn drop(&mut self) {
        let slot = Slot { ..self.slot };
        let mut free = self.ring.lock();
        free.slots.push_back(slot);
        free.reads += u64::from(self.purpose == SlotUse::Read);
        drop(free);
        // Wake all waiters, since they wait for different conditions.
        self.ring.slot_freed.notify_all();
    }
}

impl Staging {
    /// Creates the ring over a staging buffer of [`SLOTS`] slots.
    pub fn new(buffer: Buffer, queue: Queue) -> Self {
        let slot = |index| Slot {
            offset: index * SLOT_BYTES,
            value: 0,
        };
        Self {
            buffer,
            queue,
            free: Mutex::new(FreeSlots {
                slots: (0..SLOTS).map(slot).collect(),
                reads: MAX_READ_SLOTS,
            }),
            slot_freed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, FreeSlots> {
        self.free.lock().unwrap_or_else(|broken| broken.into_inner())
    }

    /// Acquires the slot with the oldest copy and waits until that copy has completed.
    fn acquire(&self, queues: &Queues, purpose: SlotUse) -> Result<(AcquiredSlot<'_>, Mapped), Error> {
        let mut free = self.lock();
        let slot = loop {
            let allowed = purpose == SlotUse::Upload || free.reads > 0;
            let slot = if allowed { free.slots.pop_front() } else { None };
            match slot {
                Some(slot) => break slot,
                None => free = self.slot_freed.wait(free).unwrap_or_else(|e| e.into_inner()),
            }
        };
        free.reads -= u64::from(purpose == SlotUse::Read);
        drop(free);
        let acquired = AcquiredSlot {
            ring: self,
            slot,
            purpose,
        };
        queues.wait(self.queue, acquired.slot.value)?;
        let mapped = self.buffer.mapped(acquired.slot.offset, SLOT_BYTES)?;
        let mapped = mapped.ok_or(Error::NotHostVisible {
            class: self.buffer.class(),
        })?;
        Ok((acquired, mapped))
    }

    /// Uploads `bytes` to a buffer, starting at `offset`, slot by slot. `fill` gets the offset within the upload and
    /// the slice to write. Copies of earlier slots run meanwhile, and the last ones may still run on return.
    pub fn upload(
        &self,
        queues: &Queues,
        counters: &SharedCounters,
        (buffer, offset): (&Buffer, u64),
        bytes: u64,
        fill: &mut dyn FnMut(u64, &mut [u8]),
    ) -> Result<(), Error> {
        let mut done = 0;
        while done < bytes {
            let part = SLOT_BYTES.min(bytes - done);
            let (mut acquired, mapped) = self.acquire(queues, SlotUse::Upload)?;
            // SAFETY: the slot is acquired, its last copy has completed, and the slice ends here.
            fill(done, unsafe { mapped.part(0, part).as_mut_slice() });
            let list = CommandList {
                name: "upload".to_owned(),
                commands: vec![Command::Copy {
                    src: self.buffer.clone(),
                    src_offset: acquired.slot.offset,
                    dst: buffer.clone(),
                    dst_offset: offset + done,
                    bytes: part,
                }],
                uses: vec![(buffer.clone(), Access::Write)],
            };
            acquired.slot.value = self.submit(queues, counters, &list, part, buffer.class().mapped())?;
            done += part;
        }
        Ok(())
    }

    /// Reads from a buffer, starting at `offset`, and waits for the data.
    pub fn read(
        &self,
        queues: &Queues,
        counters: &SharedCounters,
        (buffer, offset): (&Buffer, u64),
        data: &mut [u8],
    ) -> Result<(), Error> {
        let mut from = offset;
        for part in data.chunks_mut(SLOT_BYTES as usize) {
            let bytes = part.len() as u64;
            let (mut acquired, mapped) = self.acquire(queues, SlotUse::Read)?;
            let list = CommandList {
                name: "read back".to_owned(),
                commands: vec![Command::Copy {
                    src: buffer.clone(),
                    src_offset: from,
                    dst: self.buffer.clone(),
                    dst_offset: acquired.slot.offset,
                    bytes,
                }],
                uses: vec![(buffer.clone(), Access::Read)],
            };
            acquired.slot.value = self.submit(queues, counters, &list, bytes, true)?;
            queues.wait(self.queue, acquired.slot.value)?;
            // SAFETY: the slot is acquired, its copy has completed, and the slice ends here.
            part.copy_from_slice(unsafe { mapped.part(0, bytes).as_mut_slice() });
            from += bytes;
        }
        Ok(())
    }

    fn submit(
        &self,
        queues: &Queues,
        counters: &SharedCounters,
        list: &CommandList,
        bytes: u64,
        host_reads: bool,
    ) -> Result<u64, Error> {
        let value = queues.submit(self.queue, list, host_reads)?;
        counters.update(|counters| {
            counters.transfer_submits += 1;
            counters.bytes_staged += bytes;
        });
        Ok(value)
    }
}
