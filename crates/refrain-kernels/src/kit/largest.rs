//! The largest elements of a row that a workgroup holds.

use super::iterations::looped;

/// The most elements of such a row: the experts of a mixture, say.
pub(crate) const MOST_ELEMENTS: usize = 512;

/// What finds them, behind `order.glsl` and a constant `FOURS`: [`fours`].
pub(crate) const TEXT: &str = include_str!("largest.glsl");

/// Fours of keys that hold a row.
pub(crate) fn fours(elements: usize) -> u32 {
    elements.div_ceil(4) as u32
}

/// Shared memory that it takes.
pub(crate) fn shared_bytes(elements: usize) -> usize {
    (16 + 4 + 4) * fours(elements) as usize + 12
}

/// Iterations of an invocation of a workgroup of `width` that finds the `count` largest.
pub(crate) fn iterations(elements: usize, count: usize, width: usize) -> usize {
    let fours = fours(elements) as usize;
    let over = |elements: usize, each: usize| looped(elements.div_ceil(width), each);
    let tops = over(fours + 3, 0) + over(fours, looped(fours.div_ceil(4), 0));
    let candidates = count.min(fours);
    tops + over(4 * candidates, looped(candidates, 0))
}
