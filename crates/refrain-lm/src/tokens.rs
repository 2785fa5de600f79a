use refrain::Array;

/// Where each token of a flat batch stands.
#[derive(Clone, Copy)]
pub struct BatchTokens<'a> {
    /// i32 `[T]`: position in its sequence; negative for padding, which gives zeros.
    pub positions: &'a Array,
    /// u32 `[T]`: row of `pages`.
    pub sequences: &'a Array,
    /// u32 `[S, P]`: the pages of each sequence, in order.
    pub pages: &'a Array,
}
