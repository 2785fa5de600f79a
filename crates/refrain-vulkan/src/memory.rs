//! The memory allocator: blocks allocated from the driver by class, and sub-allocation of buffers.

use std::cmp::Reverse;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::backend::{Backend, Failure, RawMemory};
use crate::buffer_uses::{BufferUses, TimelinePoint};
use crate::class::MemoryClass;
use crate::counters::SharedCounters;
use crate::error::Error;
use crate::free_list::{ALIGNMENT, FreeList, align_up};
use crate::info::{DeviceInfo, Heap};
use crate::mapped::Mapped;
use crate::memory_types::memory_types;
use crate::queues::Queues;

const MIB: u64 = 1 << 20;

/// A range of device memory of one class, aligned to 256 bytes. Clones share it. Its memory is reused after the last
/// clone is dropped and the last use by the device has completed.
#[derive(Clone)]
pub struct Buffer(Arc<BufferInner>);

struct BufferInner {
    memory: Arc<Allocator>,
    class: MemoryClass,
    bytes: u64,
    /// Key of the block within its class.
    block: u64,
    offset: u64,
    raw: RawMemory,
    uses: BufferUses,
}

impl Buffer {
    /// Returns the memory class.
    pub fn class(&self) -> MemoryClass {
        self.0.class
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// Returns the device address of the first byte.
    pub fn address(&self) -> u64 {
        self.0.raw.address + self.0.offset
    }

    /// Returns the handle of the underlying buffer and the offset within it.
    pub(crate) fn handle_and_offset(&self) -> (u64, u64) {
        (self.0.raw.buffer, self.0.offset)
    }

    pub(crate) fn uses(&self) -> &BufferUses {
        &self.0.uses
    }

    /// Returns the memory type, an index into [`DeviceInfo::memory_types`].
    pub fn memory_type(&self) -> usize {
        self.0.raw.memory_type
    }

    /// Returns the host mapping of a range; `None` if the class is not mapped.
    pub(crate) fn mapped(&self, offset: u64, bytes: u64) -> Result<Option<Mapped>, Error> {
        self.check(offset, bytes)?;
        Ok(self
            .0
            .raw
            .mapped
            .map(|mapped| mapped.part(self.0.offset + offset, bytes)))
    }

    /// Checks that a range is within the buffer.
    ///
    /// # Errors
    /// Fails if it is not.
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
    /// Whether both are the same allocation.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Buffer {}

impl Drop for BufferInner {
    fn drop(&mut self) {
        let range = BlockRange {
            class: self.class,
            block: self.block,
            offset: self.offset,
            bytes: self.bytes,
        };
        self.memory.release(range, self.uses.used());
    }
}

/// A range of a block.
struct BlockRange {
    class: MemoryClass,
    block: u64,
    offset: u64,
    bytes: u64,
}

struct MemoryBlock {
    key: u64,
    raw: RawMemory,
    /// Offset of the first aligned address.
    alignment_offset: u64,
    free: FreeList,
    /// Whether the block holds a single buffer.
    dedicated: bool,
}

#[derive(Default)]
struct Pools {
    blocks: [Vec<MemoryBlock>; MemoryClass::ALL.len()],
    next_key: u64,
    /// Ranges of dropped buffers, and the point until which the device may use them.
    pending: Vec<(BlockRange, TimelinePoint)>,
}

/// The allocator of a device.
pub(crate) struct Allocator {
    backend: Arc<dyn Backend>,
    queues: Arc<Queues>,
    counters: Arc<SharedCounters>,
    info: Arc<DeviceInfo>,
    pools: Mutex<Pools>,
    /// Bytes of empty scratch blocks that are kept ([`crate::OpenOptions::keep_scratch`]).
    kept_scratch: u64,
}

/// The share of the device's memory that [`crate::OpenOptions::keep_scratch`] keeps, as its divisor.
const KEPT_SHARE: u64 = 16;

/// Returns the size of the next shared block of a class, which already holds `held` bytes. Block sizes double, so a
/// small model uses little memory and a large one needs few blocks.
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
    pub fn new(
        backend: Arc<dyn Backend>,
        queues: Arc<Queues>,
        counters: Arc<SharedCounters>,
        info: Arc<DeviceInfo>,
        keep_scratch: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            kept_scratch: if keep_scratch {
                info.device_memory() / KEPT_SHARE
            } else {
                0
            },
            backend,
            queues,
            counters,
            info,
            pools: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Pools> {
        self.pools.lock().unwrap_or_else(|broken| broken.into_inner())
    }

    /// Allocates a buffer.
    pub fn allocate(self: &Arc<Self>, class: MemoryClass, bytes: u64) -> Result<Buffer, Error> {
        let limit = self.info.limits.max_allocation_bytes;
        if bytes > limit.saturating_sub(ALIGNMENT) {
            return Err(Error::BufferTooLarge {
                requested: bytes,
                limit,
            });
        }
        self.queues.check()?;
        loop {
            let mut pools = self.lock();
            self.reclaim(&mut pools);
            match self.try_allocate(&mut pools, class, bytes) {
                Err(Failure::OutOfMemory) => {}
                other => return other.map_err(|failure| self.queues.error(failure)),
            }
            // Before failing, free idle blocks, then wait for dropped buffers that the device still uses.
            self.free_empty(&mut pools);
            let next_release = pools.pending.first().map(|(_, until)| *until);
            if let Ok(buffer) = self.try_allocate(&mut pools, class, bytes) {
                return Ok(buffer);
            }
            // Unlock while waiting, so that other threads can allocate.
            drop(pools);
            match next_release {
                Some(until) => self.queues.wait_for_point(until)?,
                None => return Err(self.out_of_memory(class, bytes)),
            }
        }
    }

    /// Sub-allocates a buffer from an existing block, or from a new one.
    fn try_allocate(self: &Arc<Self>, pools: &mut Pools, class: MemoryClass, bytes: u64) -> Result<Buffer, Failure> {
        if let Some(buffer) = self.sub_allocate(pools, class, bytes) {
            return Ok(buffer);
        }
        self.grow(pools, class, bytes)?;
        self.sub_allocate(pools, class, bytes).ok_or(Failure::OutOfMemory)
    }

    /// Returns how many more bytes the driver can allocate for a class, over all its heaps.
    pub fn free_bytes(&self, class: MemoryClass) -> u64 {
        self.class_heaps(class).map(|(_, heap)| heap.free()).sum()
    }

    /// Returns the heaps that back a class, with their indices and current usage.
    fn class_heaps(&self, class: MemoryClass) -> impl Iterator<Item = (usize, Heap)> {
        let heaps = self.backend.heaps();
        let class_heaps = self.info.heaps_for(class).into_iter();
        class_heaps.filter_map(move |index| Some((index, *heaps.get(index)?)))
    }

    /// Sub-allocates a buffer from an existing block.
    fn sub_allocate(self: &Arc<Self>, pools: &mut Pools, class: MemoryClass, bytes: u64) -> Option<Buffer> {
        let own = align_up(bytes);
        let blocks = &mut pools.blocks[class.index()];
        // A small buffer would keep a large block from the next large one.
        let suits = |block: &&mut MemoryBlock| !block.dedicated || own > block.raw.bytes / 2;
        blocks.iter_mut().filter(suits).find_map(|block| {
            let start = block.free.allocate(own)?;
            Some(Buffer(Arc::new(BufferInner {
                memory: self.clone(),
                class,
                bytes,
                block: block.key,
                offset: block.alignment_offset + start,
                raw: block.raw,
                uses: BufferUses::default(),
            })))
        })
    }

    /// Adds a block for a buffer: a shared block, or a dedicated one if the buffer is large or memory is short.
    fn grow(&self, pools: &mut Pools, class: MemoryClass, bytes: u64) -> Result<(), Failure> {
        let own = align_up(bytes);
        let held = pools.blocks[class.index()].iter().map(|block| block.raw.bytes).sum();
        let shared = next_block_bytes(class, held).min(self.info.limits.max_allocation_bytes / 4);
        let shared = shared / ALIGNMENT * ALIGNMENT;
        let mut failure = Failure::OutOfMemory;
        for (size, dedicated) in [(shared, false), (own, true)] {
            if !dedicated && own > shared / 2 {
                continue;
            }
            for memory_type in memory_types(&self.info, class) {
                match self.allocate_block(class, memory_type, size) {
                    Ok((raw, alignment_offset)) => {
                        let key = pools.next_key;
                        pools.next_key += 1;
                        let free = FreeList::new(size);
                        let block = MemoryBlock {
                            key,
                            raw,
                            alignment_offset,
                            free,
                            dedicated,
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

    /// Allocates a block of at least `size` aligned bytes. Also returns the offset of its first aligned address.
    fn allocate_block(&self, class: MemoryClass, memory_type: usize, size: u64) -> Result<(RawMemory, u64), Failure> {
        let heap = self.info.memory_types[memory_type].heap;
        // Beyond its budget, a discrete card pages to host memory, and an integrated GPU to disk. Both would be
        // silently slow.
        let free = self.backend.heaps().get(heap).map_or(0, |heap| heap.free());
        if size > free {
            return Err(Failure::OutOfMemory);
        }
        let mut raw = self.backend.allocate(class, memory_type, size)?;
        let mut alignment_offset = raw.address.next_multiple_of(ALIGNMENT) - raw.address;
        if alignment_offset > 0 {
            // Rare: the driver aligns to less than 256 bytes.
            self.backend.free(&raw);
            raw = self.backend.allocate(class, memory_type, size + ALIGNMENT)?;
            alignment_offset = raw.address.next_multiple_of(ALIGNMENT) - raw.address;
        }
        self.counters.allocated(class, raw.bytes);
        Ok((raw, alignment_offset))
    }

    fn out_of_memory(&self, class: MemoryClass, requested: u64) -> Error {
        let largest = self
            .class_heaps(class)
            .max_by_key(|(index, heap)| (heap.free(), Reverse(*index)));
        let (index, heap) = largest.unwrap_or_default();
        let hint = match class {
            MemoryClass::Weight => {
                "use a smaller or more strongly quantised model, close other programs that use the GPU, or choose another device"
            }
            MemoryClass::State => "use a shorter context or fewer sequences",
            MemoryClass::Scratch => "use a shorter context, a smaller model, or close other programs that use the GPU",
            MemoryClass::Control | MemoryClass::Report | MemoryClass::Staging => "close other programs",
        };
        Error::OutOfMemory {
            requested,
            free: heap.free(),
            heap: heap.describe(index),
            class,
            hint: hint.to_owned(),
        }
    }

    fn release(&self, range: BlockRange, until: TimelinePoint) {
        let has_passed = self.queues.has_passed(until);
        let mut pools = self.lock();
        if has_passed {
            self.free_range(&mut pools, &range);
        } else {
            pools.pending.push((range, until));
        }
    }

    /// Frees the pending ranges whose last use has completed.
    fn reclaim(&self, pools: &mut Pools) {
        if pools.pending.is_empty() {
            return;
        }
        self.queues.refresh();
        let has_passed = |(_, until): &mut (BlockRange, TimelinePoint)| self.queues.is_known_passed(*until);
        let reusable: Vec<_> = pools.pending.extract_if(.., has_passed).collect();
        reusable.iter().for_each(|(range, _)| self.free_range(pools, range));
    }

    fn free_range(&self, pools: &mut Pools, range: &BlockRange) {
        let blocks = &mut pools.blocks[range.class.index()];
        let Some(at) = blocks.iter().position(|block| block.key == range.block) else {
            return;
        };
        let block = &mut blocks[at];
        block
            .free
            .free(range.offset - block.alignment_offset, align_up(range.bytes));
        if !block.free.is_empty() {
            return;
        }
        let empty = || blocks.iter().filter(|block| block.free.is_empty());
        if range.class == MemoryClass::Scratch && empty().map(|block| block.raw.bytes).sum::<u64>() <= self.kept_scratch
        {
            return;
        }
        // One empty shared block is kept, so that allocating and dropping one buffer repeatedly makes no driver calls.
        if blocks[at].dedicated || empty().filter(|block| !block.dedicated).count() > 1 {
            let block = blocks.swap_remove(at);
            self.free_block(range.class, &block);
        }
    }

    fn free_block(&self, class: MemoryClass, block: &MemoryBlock) {
        self.backend.free(&block.raw);
        self.counters.freed(class, block.raw.bytes);
    }

    fn free_empty(&self, pools: &mut Pools) {
        for class in MemoryClass::ALL {
            let blocks = &mut pools.blocks[class.index()];
            let empty = blocks.extract_if(.., |block| block.free.is_empty());
            empty.for_each(|block| self.free_block(class, &block));
        }
    }
}

impl Drop for Allocator {
    fn drop(&mut self) {
        // Every buffer holds a reference to the allocator, so all are dropped. The device may still use the last ones.
        let mut pools = std::mem::take(&mut *self.lock());
        for (_, until) in pools.pending.drain(..) {
            // A lost device cannot be waited for, and need not be.
            let _ = self.queues.wait_for_point(until);
        }
        for class in MemoryClass::ALL {
            for block in pools.blocks[class.index()].drain(..) {
                self.free_block(class, &block);
            }
        }
    }
}
