//! How references share their work among threads.

/// Operations that take about as long as handing work to another thread does.
const LEAST: usize = 1 << 14;

/// Items of `operations` each that a thread takes at least, so that small work stays where it is.
pub(crate) fn least_items(operations: usize) -> usize {
    1 + LEAST / operations.max(1)
}
