//! Work division of the CPU references.

/// Number of operations that take about as long as scheduling a task on another thread.
const MIN_OPERATIONS: usize = 1 << 14;

/// Minimum number of items of `operations` operations per task, so that little work stays on one thread.
pub(crate) fn min_items(operations: usize) -> usize {
    1 + MIN_OPERATIONS / operations.max(1)
}
