//! The memory of evaluated arrays.

use std::sync::atomic::{AtomicU64, Ordering};
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
    /// Number of in-place updates.
    version: Arc<AtomicU64>,
}

impl Storage {
    pub(crate) fn new(memory: Memory, class: MemoryClass) -> Storage {
        Storage {
            memory,
            class,
            version: Arc::default(),
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
        self.version.load(Ordering::Acquire)
    }

    pub(crate) fn advance(&self) -> u64 {
        self.version.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Whether both are the same memory.
    pub fn same(&self, other: &Storage) -> bool {
        Arc::ptr_eq(&self.version, &other.version)
    }

    /// Number of handles to this memory.
    pub(crate) fn handle_count(&self) -> usize {
        Arc::strong_count(&self.version)
    }

    /// A number that is unique among live storages.
    pub(crate) fn key(&self) -> usize {
        Arc::as_ptr(&self.version) as usize
    }
}

/// The memory of a program's leaves, by slot.
#[derive(Clone, Debug)]
pub struct Bindings(pub(crate) Vec<Storage>);
