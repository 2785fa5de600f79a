//! The token batch: the inputs of one model call.

use refrain::{Array, DType, Device};
use refrain_lm::{BatchTokens, slots};

/// Layout of a paged KV cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pages {
    /// Positions per page; a power of two.
    pub size: usize,
    /// Pages per sequence.
    pub per_sequence: usize,
    /// Maximum positions of a sequence, at most what its pages hold.
    pub context: usize,
}

impl Pages {
    /// Positions that the pages of one sequence hold.
    pub fn positions(self) -> usize {
        self.size * self.per_sequence
    }
}

/// The tokens of one model call on one flat axis. All fields are inputs of the traced program, so that one trace
/// serves every batch of the same shape.
pub struct Batch {
    /// u32 `[T]`: token ids.
    pub tokens: Array,
    /// i32 `[T]`: each token's position in its sequence; −1 for padding.
    pub positions: Array,
    /// u32 `[T]`: each token's sequence (row of `pages`).
    pub sequences: Array,
    /// u32 `[S, P]`: the cache pages of each sequence, in order.
    pub pages: Array,
    /// u32 `[O]`: indices of the tokens whose logits are computed; all tokens if `None`.
    pub logits_indices: Option<Array>,
    /// Positions per page.
    pub page_size: usize,
    /// Maximum context of a sequence in tokens.
    pub context: usize,
    /// Whether every sequence has exactly one token.
    pub decode: bool,
}

impl Batch {
    /// Creates input placeholders for `tokens` tokens of `sequences` sequences, with `logits_rows` rows of logits.
    pub fn inputs(device: &Device, tokens: usize, sequences: usize, logits_rows: usize, pages: Pages) -> Batch {
        Batch {
            tokens: Array::input(device, "tokens", DType::U32, &[tokens]),
            positions: Array::input(device, "positions", DType::I32, &[tokens]),
            sequences: Array::input(device, "sequences", DType::U32, &[tokens]),
            pages: Array::input(device, "pages", DType::U32, &[sequences, pages.per_sequence]),
            logits_indices: Some(Array::input(device, "wanted", DType::U32, &[logits_rows])),
            page_size: pages.size,
            context: pages.context,
            decode: false,
        }
    }

    /// i32 `[T]`: the KV cache slot of each token; −1 for padding, which is not stored.
    pub fn slots(&self) -> Array {
        slots(self.batch_tokens(), self.page_size)
    }

    /// Selects the rows of x `[T, hidden]` whose logits are computed.
    pub fn logits_rows(&self, x: &Array) -> Array {
        match &self.logits_indices {
            Some(indices) => x.take(indices, 0),
            None => x.clone(),
        }
    }

    /// Selects the rows of x `[T, hidden]` that later layers need. After the last layer's token mixing, only rows
    /// with logits are needed.
    pub fn output_rows(&self, x: &Array, is_last: bool) -> Array {
        if is_last { self.logits_rows(x) } else { x.clone() }
    }

    /// Positions, sequences and pages, as attention takes them.
    pub fn batch_tokens(&self) -> BatchTokens<'_> {
        BatchTokens {
            positions: &self.positions,
            sequences: &self.sequences,
            pages: &self.pages,
        }
    }
}
