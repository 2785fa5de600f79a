//! The memory of evaluated arrays.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use refrain_vulkan::MemoryClass;

use crate::Error;

/// Host memory in 4-byte words, aligned for every element type.
#[derive(Debug)]
pub struct HostBuffer(RwLock<Vec<u32>>);

impl HostBuffer {
    /// Zeroed memory of at least `bytes` bytes.
    ///
    /// # Errors
    /// [`Error::HostMemory`] if memory runs out.
    pub fn zeroed(bytes: u64) -> Result<HostBuffer, Error> {
        let words = usize::try_from(bytes.div_ceil(4)).ok();
        let words = words.and_then(|words| bytemuck::allocation::try_zeroed_vec(words).ok());
        words
            .map(|words| HostBuffer(RwLock::new(words)))
            .ok_or(Error::HostMemory { bytes })
    }

    /// Locks the words for reading.
    pub fn read(&self) -> RwLockReadGuard<'_, Vec<u32>> {
        self.0.read().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Locks the words for writing.
    pub fn write(&self) -> RwLockWriteGuard<'_, Vec<u32>> {
        self.0.write().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The memory behind a [`Storage`].
#[derive(Clone, Debug)]
pub enum Memory {
    /// Host memory, of the CPU executor.
    Host(Arc<HostBuffer>),
    /// A buffer of a Vulkan device.
    Vulkan(refrain_vulkan::Buffer),
}

/// A piece of memory with its class, shared by all arrays that are stored in it.
#[derive(Clone, Debug)]
pub struct Storage {
    pub(crate) memory: Memory,
    class: MemoryClass,
    shared: Arc<Shared>,
}

/// What the handles to a piece of memory share.
#[derive(Default, Debug)]
struct Shared {
    /// Number of in-place updates.
    version: AtomicU64,
    /// Number of handles that do not count, because they only keep the memory for the next run of a program.
    idle: AtomicUsize,
}

impl Storage {
    pub(crate) fn new(memory: Memory, class: MemoryClass) -> Storage {
        Storage {
            memory,
            class,
            shared: Arc::default(),
        }
    }

    /// Size of the memory in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        match &self.memory {
            Memory::Host(words) => 4 * words.read().len() as u64,
            Memory::Vulkan(buffer) => buffer.bytes(),
        }
    }

    /// What the memory is used for.
    pub fn class(&self) -> MemoryClass {
        self.class
    }

    /// Whether the contents may be updated in place.
    pub fn is_state(&self) -> bool {
        self.class.is_state()
    }

    /// Number of in-place updates so far.
    pub fn version(&self) -> u64 {
        self.shared.version.load(Ordering::Acquire)
    }

    pub(crate) fn advance(&self) -> u64 {
        self.shared.version.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Whether both are the same memory.
    pub fn same(&self, other: &Storage) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Number of handles to this memory, without idle ones.
    pub(crate) fn handle_count(&self) -> usize {
        Arc::strong_count(&self.shared).saturating_sub(self.shared.idle.load(Ordering::Acquire))
    }

    /// Counts this handle as idle, or no longer.
    pub(crate) fn set_idle(&self, is_idle: bool) {
        if is_idle {
            self.shared.idle.fetch_add(1, Ordering::AcqRel);
        } else {
            self.shared.idle.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// A number that is unique among live storages.
    pub(crate) fn key(&self) -> usize {
        Arc::as_ptr(&self.shared) as usize
    }
}

/// The memory of a program's leaves, by slot.
#[derive(Clone, Debug)]
pub struct Bindings(pub(crate) Vec<Storage>);
