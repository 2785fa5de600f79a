//! Memory by class: blocks taken from the driver, and the buffers cut out of them.

use std::cmp::Reverse;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::backend::{Backend, Failure, RawMemory};
use crate::class::{MemoryClass, memory_types};
use crate::counters::Tally;
use crate::error::Error;
use crate::info::{DeviceInfo, Heap};
use crate::mapped::Mapped;
use crate::queues::Queues;
use crate::ranges::{ALIGNMENT, Ranges, aligned};
use crate::stamps::{Moment, Stamps};

const MIB: u64 = 1 << 20;

/// A range of device memory of one class, 256-byte aligned. Cloning shares it. When the last
/// clone is dropped, the memory is reused as soon as the device's last use of it has completed.
#[derive(Clone)]
pub struct Buffer(Arc<Lease>);

struct Lease {
    memory: Arc<Allocator>,
    class: MemoryClass,
    bytes: u64,
    /// Key of the block among its class's.
    block: u64,
    offset: u64,
    raw: RawMemory,
    stamps: Stamps,
}

impl Buffer {
    /// What the bytes are for.
    pub fn class(&self) -> MemoryClass {
        self.0.class
    }

    /// How many bytes there are.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// The device's address of the first byte.
    pub fn address(&self) -> u64 {
        self.0.raw.address + self.0.offset
    }

    /// The driver's buffer and the offset in it.
    pub(crate) fn place(&self) -> (u64, u64) {
        (self.0.raw.buffer, self.0.offset)
    }

    pub(crate) fn stamps(&self) -> &Stamps {
        &self.0.stamps
    }

    /// Where it lies: an index into [`DeviceInfo::memory_types`].
    pub fn memory_type(&self) -> usize {
        self.0.raw.memory_type
    }

    /// A checked range as the host sees it; `None` if the class is not mapped.
    pub(crate) fn mapped(&self, offset: u64, bytes: u64) -> Result<Option<Mapped>, Error> {
        self.check(offset, bytes)?;
        Ok(self
            .0
            .raw
            .mapped
            .map(|mapped| mapped.part(self.0.offset + offset, bytes)))
    }

    /// # Errors
    /// If the range does not lie within the buffer.
    pub(crate) fn check(&self, offset: u64, bytes: u64) -> Result<(), Error> {
        let size = self.0.bytes;
        if offset.checked_add(bytes).is_none_or(|end| end > size) {
            return Err(Error::OutOfRange { offset, bytes, size });
        }
        Ok(())
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} buffer of {} bytes at {:#x}",
            self.class(),
            self.bytes(),
            self.address()
        )
    }
}

impl PartialEq for Buffer {
    /// Whether both are the same memory.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Buffer {}

impl Drop for Lease {
    fn drop(&mut self) {
        let range = BlockRange {
            class: self.class,
            block: self.block,
            offset: self.offset,
            bytes: self.bytes,
        };
        self.memory.release(range, self.stamps.used());
    }
}

/// A range to give back.
struct BlockRange {
    class: MemoryClass,
    block: u64,
    offset: u64,
    bytes: u64,
}

struct MemoryBlock {
    key: u64,
    raw: RawMemory,
    /// Bytes before the first aligned address.
    bias: u64,
    ranges: Ranges,
    /// Made for one buffer alone.
    single: bool,
}

#[derive(Default)]
struct Pools {
    blocks: [Vec<MemoryBlock>; MemoryClass::ALL.len()],
    next_key: u64,
    /// Ranges that the device may still be using, and until when.
    pending: Vec<(BlockRange, Moment)>,
}

/// All memory of a device.
pub(crate) struct Allocator {
    backend: Arc<dyn Backend>,
    queues: Arc<Queues>,
    tally: Arc<Tally>,
    info: Arc<DeviceInfo>,
    pools: Mutex<Pools>,
}

/// How large the next shared block of a class is, given the bytes that it holds already: blocks
/// double, so a small model takes little and a large one needs few blocks.
fn next_block_bytes(class: MemoryClass, held: u64) -> u64 {
    let (first, last) = match class {
        MemoryClass::Weight => (16 * MIB, 256 * MIB),
        MemoryClass::State | MemoryClass::Scratch => (4 * MIB, 256 * MIB),
        MemoryClass::Control | MemoryClass::Report => (MIB / 4, 16 * MIB),
        MemoryClass::Staging => (0, 0),
    };
    held.next_power_of_two().clamp(first, last)
}

impl Allocator {
    pub fn new(backend: Arc<dyn Backend>, queues: Arc<Queues>, tally: Arc<Tally>, info: Arc<DeviceInfo>) -> Arc<Self> {
        Arc::new(Self {
            backend,
            queues,
            tally,
            info,
            pools: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Pools> {
        self.pools.lock().unwrap_or_else(|broken| broken.into_inner())
    }

    /// A buffer of the class.
    pub fn allocate(self: &Arc<Self>, class: MemoryClass, bytes: u64) -> Result<Buffer, Error> {
        let limit = self.info.limits.max_allocation_bytes;
        if bytes > limit.saturating_sub(ALIGNMENT) {
            return Err(Error::BufferTooLarge { asked: bytes, limit });
        }
        self.queues.check()?;
        loop {
            let mut pools = self.lock();
            self.reclaim(&mut pools);
            match self.take(&mut pools, class, bytes) {
                Err(Failure::OutOfMemory) => {}
                other => return other.map_err(|failure| self.queues.error(failure)),
            }
            // Before giving up: what the device still uses of dropped buffers comes back, and what is kept idle.
            self.free_empty(&mut pools);
            let awaited = pools.pending.first().map(|(_, until)| *until);
            if let Ok(buffer) = self.take(&mut pools, class, bytes) {
                return Ok(buffer);
            }
            // Others go on meanwhile.
            drop(pools);
            match awaited {
                Some(until) => self.queues.wait_until(until)?,
                None => return Err(self.out_of_memory(class, bytes)),
            }
        }
    }

    /// Cuts a buffer out of the blocks that there are, or out of a new one.
    fn take(self: &Arc<Self>, pools: &mut Pools, class: MemoryClass, bytes: u64) -> Result<Buffer, Failure> {
        if let Some(buffer) = self.cut(pools, class, bytes) {
            return Ok(buffer);
        }
        self.grow(pools, class, bytes)?;
        self.cut(pools, class, bytes).ok_or(Failure::OutOfMemory)
    }

    /// Bytes that buffers of a class may still take up, over all heaps that serve it.
    pub fn room(&self, class: MemoryClass) -> u64 {
        self.serving(class).map(|(_, heap)| heap.free()).sum()
    }

    /// The heaps that serve a class, with their numbers, as they are now.
    fn serving(&self, class: MemoryClass) -> impl Iterator<Item = (usize, Heap)> {
        let heaps = self.backend.heaps();
        let serving = self.info.heaps_for(class).into_iter();
        serving.filter_map(move |index| Some((index, *heaps.get(index)?)))
    }

    /// Cuts a buffer out of the blocks that there are.
    fn cut(self: &Arc<Self>, pools: &mut Pools, class: MemoryClass, bytes: u64) -> Option<Buffer> {
        let block = &mut pools.blocks[class.index()];
        block.iter_mut().find_map(|block| {
            let start = block.ranges.take(aligned(bytes))?;
            Some(Buffer(Arc::new(Lease {
                memory: self.clone(),
                class,
                bytes,
                block: block.key,
                offset: block.bias + start,
                raw: block.raw,
                stamps: Stamps::default(),
            })))
        })
    }

    /// Adds a block with room for a buffer: a shared one, or one for the buffer alone if it is
    /// large or memory is short.
    fn grow(&self, pools: &mut Pools, class: MemoryClass, bytes: u64) -> Result<(), Failure> {
        let own = aligned(bytes);
        let held = pools.blocks[class.index()].iter().map(|block| block.raw.bytes).sum();
        let shared = next_block_bytes(class, held).min(self.info.limits.max_allocation_bytes / 4);
        let shared = shared / ALIGNMENT * ALIGNMENT;
        let mut failure = Failure::OutOfMemory;
        for (size, single) in [(shared, false), (own, true)] {
            if !single && own > shared / 2 {
                continue;
            }
            for memory_type in memory_types(&self.info, class) {
                match self.take_block(class, memory_type, size) {
                    Ok((raw, bias)) => {
                        let key = pools.next_key;
                        pools.next_key += 1;
                        let ranges = Ranges::new(size);
                        let block = MemoryBlock {
                            key,
                            raw,
                            bias,
                            ranges,
                            single,
                        };
                        pools.blocks[class.index()].push(block);
                        return Ok(());
                    }
                    Err(Failure::OutOfMemory) => {}
                    Err(other) => failure = other,
                }
            }
        }
        Err(failure)
    }

    /// A block of at least `size` aligned bytes, and how far its first aligned address lies in.
    fn take_block(&self, class: MemoryClass, memory_type: usize, size: u64) -> Result<(RawMemory, u64), Failure> {
        let heap = self.info.memory_types[memory_type].heap;
        // Beyond its budget a card pages to host memory, and what shares the host's memory to its disk: both
        // would be silently slow.
        let free = self.backend.heaps().get(heap).map_or(0, |heap| heap.free());
        if size > free {
            return Err(Failure::OutOfMemory);
        }
        let mut raw = self.backend.allocate(class, memory_type, size)?;
        let mut bias = raw.address.next_multiple_of(ALIGNMENT) - raw.address;
        if bias > 0 {
            // Rare: the driver aligns less than we do.
            self.backend.free(&raw);
            raw = self.backend.allocate(class, memory_type, size + ALIGNMENT)?;
            bias = raw.address.next_multiple_of(ALIGNMENT) - raw.address;
        }
        self.tally.allocated(class, raw.bytes);
        Ok((raw, bias))
    }

    fn out_of_memory(&self, class: MemoryClass, asked: u64) -> Error {
        let largest = self
            .serving(class)
            .max_by_key(|(index, heap)| (heap.free(), Reverse(*index)));
        let (index, heap) = largest.unwrap_or_default();
        let hint = match class {
            MemoryClass::Weight => {
                "use a smaller or further quantised model, close other programs that use the GPU, or choose another device"
            }
            MemoryClass::State => "use a shorter context or fewer sequences",
            MemoryClass::Scratch => "use a shorter context, a smaller model, or close other programs that use the GPU",
            MemoryClass::Control | MemoryClass::Report | MemoryClass::Staging => "close other programs",
        };
        Error::OutOfMemory {
            asked,
            free: heap.free(),
            heap: heap.describe(index),
            class,
            hint: hint.to_owned(),
        }
    }

    fn release(&self, range: BlockRange, until: Moment) {
        let is_past = self.queues.is_past(until);
        let mut pools = self.lock();
        if is_past {
            self.give_back(&mut pools, &range);
        } else {
            pools.pending.push((range, until));
        }
    }

    /// Gives back the pending ranges whose last use has completed.
    fn reclaim(&self, pools: &mut Pools) {
        if pools.pending.is_empty() {
            return;
        }
        self.queues.refresh();
        let past = |(_, until): &mut (BlockRange, Moment)| self.queues.is_known_past(*until);
        let past: Vec<_> = pools.pending.extract_if(.., past).collect();
        past.iter().for_each(|(range, _)| self.give_back(pools, range));
    }

    fn give_back(&self, pools: &mut Pools, range: &BlockRange) {
        let blocks = &mut pools.blocks[range.class.index()];
        let Some(at) = blocks.iter().position(|block| block.key == range.block) else {
            return;
        };
        let block = &mut blocks[at];
        block.ranges.give(range.offset - block.bias, aligned(range.bytes));
        if !block.ranges.is_empty() {
            return;
        }
        // One empty shared block is kept, so that a buffer that comes and goes costs the driver
        // nothing.
        let idle = |block: &&MemoryBlock| block.ranges.is_empty() && !block.single;
        if blocks[at].single || blocks.iter().filter(idle).count() > 1 {
            let block = blocks.swap_remove(at);
            self.free_block(range.class, &block);
        }
    }

    fn free_block(&self, class: MemoryClass, block: &MemoryBlock) {
        self.backend.free(&block.raw);
        self.tally.freed(class, block.raw.bytes);
    }

    fn free_empty(&self, pools: &mut Pools) {
        for class in MemoryClass::ALL {
            let blocks = &mut pools.blocks[class.index()];
            let empty = blocks.extract_if(.., |block| block.ranges.is_empty());
            empty.for_each(|block| self.free_block(class, &block));
        }
    }
}

impl Drop for Allocator {
    fn drop(&mut self) {
        // Every buffer holds this, so all are gone; the device may still work on the last.
        let mut pools = std::mem::take(&mut *self.lock());
        for (_, until) in pools.pending.drain(..) {
            // A lost device cannot be waited for, and needs not be.
            let _ = self.queues.wait_until(until);
        }
        for class in MemoryClass::ALL {
            for block in pools.blocks[class.index()].drain(..) {
                self.free_block(class, &block);
            }
        }
    }
}
