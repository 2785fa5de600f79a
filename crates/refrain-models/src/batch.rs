use refrain::{Array, DType, Device};
use refrain_lm::{BatchTokens, slots};

/// The shape of a paged KV cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pages {
    /// Positions per page: a power of two.
    pub size: usize,
    /// Pages that a sequence may have.
    pub per_sequence: usize,
    /// Positions that a sequence may have: at most as many as its pages hold.
    pub context: usize,
}

impl Pages {
    /// Positions of a sequence.
    pub fn positions(self) -> usize {
        self.size * self.per_sequence
    }
}

/// The tokens that one call of a model sees, on one flat axis. All are arguments of the traced
/// program, so that one trace serves every batch of the same extents.
pub struct Batch {
    /// u32 `[T]`: token ids.
    pub tokens: Array,
    /// i32 `[T]`: each token's position in its sequence; −1 for padding.
    pub positions: Array,
    /// u32 `[T]`: each token's sequence, a row of `pages`.
    pub sequences: Array,
    /// u32 `[S, P]`: the cache pages of each sequence, in order.
    pub pages: Array,
    /// u32 `[O]`: the tokens (by index) whose logits are wanted; all of them if `None`.
    pub wanted: Option<Array>,
    /// Positions per page.
    pub page_size: usize,
    /// The most tokens that a sequence will have.
    pub context: usize,
    /// Whether each token is the only one of its sequence.
    pub decode: bool,
}

impl Batch {
    /// Placeholders for `tokens` tokens of `sequences` sequences with `wanted` rows of logits.
    pub fn inputs(device: &Device, tokens: usize, sequences: usize, wanted: usize, pages: Pages) -> Batch {
        Batch {
            tokens: Array::input(device, "tokens", DType::U32, &[tokens]),
            positions: Array::input(device, "positions", DType::I32, &[tokens]),
            sequences: Array::input(device, "sequences", DType::U32, &[tokens]),
            pages: Array::input(device, "pages", DType::U32, &[sequences, pages.per_sequence]),
            wanted: Some(Array::input(device, "wanted", DType::U32, &[wanted])),
            page_size: pages.size,
            context: pages.context,
            decode: false,
        }
    }

    /// i32 `[T]`: where each token's keys and values go; −1 (nowhere) for padding.
    pub fn slots(&self) -> Array {
        slots(self.places(), self.page_size)
    }

    /// The rows of x `[T, hidden]` whose logits are wanted.
    pub fn wanted_rows(&self, x: &Array) -> Array {
        match &self.wanted {
            Some(wanted) => x.take(wanted, 0),
            None => x.clone(),
        }
    }

    /// The rows of x `[T, hidden]` that are needed behind a layer's mixing of tokens: behind the last layer's, those
    /// whose logits are wanted.
    pub fn rows_behind(&self, x: &Array, is_last: bool) -> Array {
        if is_last { self.wanted_rows(x) } else { x.clone() }
    }

    /// What attention needs to know of the tokens.
    pub fn places(&self) -> BatchTokens<'_> {
        BatchTokens {
            positions: &self.positions,
            sequences: &self.sequences,
            pages: &self.pages,
        }
    }
}
