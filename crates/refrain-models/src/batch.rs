use refrain::fast::Tokens;
use refrain::{Array, DType, Device};

/// The shape of a paged KV cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pages {
    /// Positions per page: a power of two.
    pub size: usize,
    /// Pages that a sequence may have.
    pub per_sequence: usize,
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
    /// u32 `[O]`: the tokens (by index) whose logits are wanted.
    pub wanted: Array,
    /// Positions per page.
    pub page_size: usize,
}

impl Batch {
    /// Placeholders for `tokens` tokens of `sequences` sequences with `wanted` rows of logits.
    pub fn inputs(device: &Device, tokens: usize, sequences: usize, wanted: usize, pages: Pages) -> Batch {
        Batch {
            tokens: Array::input(device, "tokens", DType::U32, &[tokens]),
            positions: Array::input(device, "positions", DType::I32, &[tokens]),
            sequences: Array::input(device, "sequences", DType::U32, &[tokens]),
            pages: Array::input(device, "pages", DType::U32, &[sequences, pages.per_sequence]),
            wanted: Array::input(device, "wanted", DType::U32, &[wanted]),
            page_size: pages.size,
        }
    }

    /// i32 `[T]`: where each token's keys and values go; −1 (nowhere) for padding.
    pub fn slots(&self) -> Array {
        let device = self.positions.device();
        let number = |n: usize| Array::full(device, DType::I32, &[], n as f32);
        let page_in_sequence = self.positions.shift_right(&number(self.page_size.ilog2() as usize));
        let entry = self.sequences.astype(DType::I32) * number(self.pages.dim(1)) + page_in_sequence;
        let page = self.pages.reshape(&[-1]).take(&entry, 0).astype(DType::I32);
        let slot = page * number(self.page_size) + self.positions.bit_and(&number(self.page_size - 1));
        self.positions.lt(&number(0)).select(&(number(0) - number(1)), &slot)
    }

    /// What attention needs to know of the tokens.
    pub fn places(&self) -> Tokens<'_> {
        Tokens {
            positions: &self.positions,
            sequences: &self.sequences,
            pages: &self.pages,
        }
    }
}
