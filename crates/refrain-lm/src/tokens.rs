//! The tokens of a flat batch.

use refrain::Array;

/// Positions, sequences and pages of the tokens of a flat batch.
#[derive(Clone, Copy)]
pub struct BatchTokens<'a> {
    /// i32 `[T]`: each token's position in its sequence; negative for padding, whose outputs are zero.
    pub positions: &'a Array,
    /// u32 `[T]`: each token's row of `pages`.
    pub sequences: &'a Array,
    /// u32 `[S, P]`: the page table, the pages of each sequence in order.
    pub pages: &'a Array,
}
