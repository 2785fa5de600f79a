//! Top-k of a row that a workgroup holds in shared memory.

use super::iterations::looped;

/// Maximum number of elements of such a row, for example the experts of a model.
pub(crate) const MAX_ELEMENTS: usize = 512;

/// GLSL source. It needs `order.glsl` and a constant `FOURS`, see [`fours`].
pub(crate) const TEXT: &str = include_str!("largest.glsl");

/// Number of vec4s of keys that hold a row.
pub(crate) fn fours(elements: usize) -> u32 {
    elements.div_ceil(4) as u32
}

/// Bytes of shared memory.
pub(crate) fn shared_bytes(elements: usize) -> usize {
    (16 + 4 + 4) * fours(elements) as usize + 12
}

/// Iterations of an invocation that selects the `count` largest, in a workgroup of `width` invocations.
pub(crate) fn iterations(elements: usize, count: usize, width: usize) -> usize {
    let fours = fours(elements) as usize;
    let over = |elements: usize, each: usize| looped(elements.div_ceil(width), each);
    let tops = over(fours + 3, 0) + over(fours, looped(fours.div_ceil(4), 0));
    let candidates = count.min(fours);
    tops + over(4 * candidates, looped(candidates, 0))
}
