//! The one way of bytes between host and device-local memory: a ring of mapped slots, made when
//! the device is opened.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};

use crate::backend::Queue;
use crate::command::{Access, Command, CommandList};
use crate::counters::Tally;
use crate::error::Error;
use crate::mapped::Mapped;
use crate::memory::Buffer;
use crate::queues::Queues;

/// Bytes of a slot.
pub(crate) const SLOT_BYTES: u64 = 8 << 20;
/// How many slots: one is filled while others are copied.
pub(crate) const SLOTS: u64 = 4;
/// How many of them may wait for kernels whose results are read back, so that there are always some for others.
const READ_SLOTS: u64 = SLOTS / 2;

struct Slot {
    offset: u64,
    /// The copy that last used it.
    value: u64,
}

/// The slots that nobody has, and how many more readers may have one.
struct Free {
    slots: VecDeque<Slot>,
    reads: u64,
}

/// What a slot is taken for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    Upload,
    /// Held until what is read was computed and copied.
    Read,
}

/// The ring of slots.
pub(crate) struct Staging {
    buffer: Buffer,
    /// Where the copies run.
    queue: Queue,
    free: Mutex<Free>,
    returned: Condvar,
}

/// A slot in use; it goes back to the ring when dropped.
struct Taken<'a> {
    ring: &'a Staging,
    slot: Slot,
    purpose: For,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let slot = Slot { ..self.slot };
        let mut free = self.ring.lock();
        free.slots.push_back(slot);
        free.reads += u64::from(self.purpose == For::Read);
        drop(free);
        // Those who wait may wait for different things.
        self.ring.returned.notify_all();
    }
}

impl Staging {
    /// A ring over a staging buffer of [`SLOTS`] slots.
    pub fn new(buffer: Buffer, queue: Queue) -> Self {
        let slot = |index| Slot {
            offset: index * SLOT_BYTES,
            value: 0,
        };
        Self {
            buffer,
            queue,
            free: Mutex::new(Free {
                slots: (0..SLOTS).map(slot).collect(),
                reads: READ_SLOTS,
            }),
            returned: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(|broken| broken.into_inner())
    }

    /// The slot whose last copy is the oldest, once that copy has completed.
    fn take(&self, queues: &Queues, purpose: For) -> Result<(Taken<'_>, Mapped), Error> {
        let mut free = self.lock();
        let slot = loop {
            let may = purpose == For::Upload || free.reads > 0;
            let slot = if may { free.slots.pop_front() } else { None };
            match slot {
                Some(slot) => break slot,
                None => free = self.returned.wait(free).unwrap_or_else(|e| e.into_inner()),
            }
        };
        free.reads -= u64::from(purpose == For::Read);
        drop(free);
        let taken = Taken {
            ring: self,
            slot,
            purpose,
        };
        queues.wait(self.queue, taken.slot.value)?;
        let mapped = self.buffer.mapped(taken.slot.offset, SLOT_BYTES)?;
        let mapped = mapped.ok_or(Error::NotHostVisible {
            class: self.buffer.class(),
        })?;
        Ok((taken, mapped))
    }

    /// Fills `bytes` of a buffer from `offset` on, slot by slot. `fill` gets the offset within
    /// the upload and the bytes to write. Copies of earlier slots run meanwhile, and the last may
    /// still run on return.
    pub fn upload(
        &self,
        queues: &Queues,
        tally: &Tally,
        (buffer, offset): (&Buffer, u64),
        bytes: u64,
        fill: &mut dyn FnMut(u64, &mut [u8]),
    ) -> Result<(), Error> {
        let mut done = 0;
        while done < bytes {
            let part = SLOT_BYTES.min(bytes - done);
            let (mut taken, mapped) = self.take(queues, For::Upload)?;
            // SAFETY: the slot is taken, its last copy has completed, and the slice ends here.
            fill(done, unsafe { mapped.part(0, part).as_mut_slice() });
            let list = CommandList {
                name: "upload".to_owned(),
                commands: vec![Command::Copy {
                    src: self.buffer.clone(),
                    src_offset: taken.slot.offset,
                    dst: buffer.clone(),
                    dst_offset: offset + done,
                    bytes: part,
                }],
                uses: vec![(buffer.clone(), Access::Write)],
            };
            taken.slot.value = self.submit(queues, tally, &list, part, buffer.class().mapped())?;
            done += part;
        }
        Ok(())
    }

    /// Copies bytes of a buffer from `offset` on to the host, and waits for them.
    pub fn read(
        &self,
        queues: &Queues,
        tally: &Tally,
        (buffer, offset): (&Buffer, u64),
        data: &mut [u8],
    ) -> Result<(), Error> {
        let mut from = offset;
        for part in data.chunks_mut(SLOT_BYTES as usize) {
            let bytes = part.len() as u64;
            let (mut taken, mapped) = self.take(queues, For::Read)?;
            let list = CommandList {
                name: "read back".to_owned(),
                commands: vec![Command::Copy {
                    src: buffer.clone(),
                    src_offset: from,
                    dst: self.buffer.clone(),
                    dst_offset: taken.slot.offset,
                    bytes,
                }],
                uses: vec![(buffer.clone(), Access::Read)],
            };
            taken.slot.value = self.submit(queues, tally, &list, bytes, true)?;
            queues.wait(self.queue, taken.slot.value)?;
            // SAFETY: the slot is taken, its copy has completed, and the slice ends here.
            part.copy_from_slice(unsafe { mapped.part(0, bytes).as_mut_slice() });
            from += bytes;
        }
        Ok(())
    }

    fn submit(
        &self,
        queues: &Queues,
        tally: &Tally,
        list: &CommandList,
        bytes: u64,
        host_reads: bool,
    ) -> Result<u64, Error> {
        let value = queues.submit(self.queue, list, host_reads)?;
        tally.count(|counters| {
            counters.transfer_submits += 1;
            counters.bytes_staged += bytes;
        });
        Ok(value)
    }
}
