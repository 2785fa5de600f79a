//! How command lists access buffers.

/// How a command list accesses a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// Only reads.
    Read,
    /// Writes, and possibly reads.
    Write,
}
