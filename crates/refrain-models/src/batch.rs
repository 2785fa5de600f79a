//! The token batch: the inputs of one model call.

use refrain::{Array, DType, Device, concatenate};
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

/// The tokens of one model call on one flat axis. All arrays are inputs of the traced program, so that one trace
/// serves every batch of the same shape.
#[derive(Clone)]
pub struct Batch {
    /// u32 `[T]`: token ids.
    pub tokens: Array,
    /// The parts of the axis, in order. What reads a sequence's other tokens computes each by itself.
    pub parts: Vec<BatchPart>,
    /// u32 `[S, P]`: the cache pages of each sequence, in order.
    pub pages: Array,
    /// u32 `[O]`: indices of the tokens whose logits are computed; all tokens of the first part if `None`.
    pub logits_indices: Option<Array>,
    /// Positions per page.
    pub page_size: usize,
    /// Maximum context of a sequence in tokens.
    pub context: usize,
}

/// Tokens of a batch that lie side by side. No sequence has tokens in two parts.
#[derive(Clone)]
pub struct BatchPart {
    /// i32 `[t]`: each token's position in its sequence; −1 for padding.
    pub positions: Array,
    /// u32 `[t]`: each token's sequence (row of [`Batch::pages`]).
    pub sequences: Array,
    /// Whether every sequence has exactly one token.
    pub decode: bool,
}

impl Batch {
    /// Creates input placeholders for `tokens` tokens of `sequences` sequences, with `logits_rows` rows of logits.
    pub fn inputs(device: &Device, tokens: usize, sequences: usize, logits_rows: usize, pages: Pages) -> Batch {
        let part = BatchPart {
            positions: Array::input(device, "positions", DType::I32, &[tokens]),
            sequences: Array::input(device, "sequences", DType::U32, &[tokens]),
            decode: false,
        };
        Batch {
            tokens: Array::input(device, "tokens", DType::U32, &[tokens]),
            parts: vec![part],
            pages: Array::input(device, "pages", DType::U32, &[sequences, pages.per_sequence]),
            logits_indices: Some(Array::input(device, "wanted", DType::U32, &[logits_rows])),
            page_size: pages.size,
            context: pages.context,
        }
    }

    /// Creates a batch of `tokens` of one sequence from position `first` on, in the first pages, whose logits are all
    /// computed.
    pub fn of_sequence(device: &Device, tokens: &[u32], first: usize, pages: Pages) -> Batch {
        let count = tokens.len();
        let positions: Vec<i32> = (first..first + count).map(|position| position as i32).collect();
        let numbers: Vec<u32> = (0..pages.per_sequence as u32).collect();
        Batch {
            tokens: Array::from_slice(device, tokens, &[count]),
            parts: vec![BatchPart {
                positions: Array::from_slice(device, &positions, &[count]),
                sequences: Array::from_slice(device, &vec![0u32; count], &[count]),
                decode: count == 1,
            }],
            pages: Array::from_slice(device, &numbers, &[1, pages.per_sequence]),
            logits_indices: None,
            page_size: pages.size,
            context: pages.context,
        }
    }

    /// i32 `[t]` for each part: the KV cache slot of each token; −1 for padding, which is not stored.
    pub fn slots(&self) -> Vec<Array> {
        let slots = |part: &BatchPart| slots(self.tokens_of(part), self.page_size);
        self.parts.iter().map(slots).collect()
    }

    /// i32 `[T]`: each token's position in its sequence; −1 for padding.
    pub fn positions(&self) -> Array {
        match &self.parts[..] {
            [part] => part.positions.clone(),
            parts => concatenate(&parts.iter().map(|part| &part.positions).collect::<Vec<_>>(), 0),
        }
    }

    /// Computes `of(number, part, rows)` for each part, from the last to the first, where `rows` are the part's rows of
    /// `inputs` `[T, …]`. Returns the results in the order of the tokens.
    pub fn by_part<const N: usize>(
        &self,
        inputs: [&Array; N],
        mut of: impl FnMut(usize, &BatchPart, [Array; N]) -> Array,
    ) -> Array {
        if let [part] = &self.parts[..] {
            return of(0, part, inputs.map(Array::clone));
        }
        let mut end = self.tokens.count();
        let mut results = vec![];
        for (number, part) in self.parts.iter().enumerate().rev() {
            let start = end - part.positions.count();
            let rows = inputs.map(|input| input.slice(0, start, end));
            results.push(of(number, part, rows));
            end = start;
        }
        results.reverse();
        concatenate(&results.iter().collect::<Vec<_>>(), 0)
    }

    /// Selects the rows of x `[T, hidden]` whose logits are computed.
    pub fn logits_rows(&self, x: &Array) -> Array {
        match (&self.logits_indices, &self.parts[..]) {
            (Some(indices), _) => x.take(indices, 0),
            (None, [first, _, ..]) => x.slice(0, 0, first.positions.count()),
            (None, _) => x.clone(),
        }
    }

    /// Selects the rows of x `[T, hidden]` that later layers need. After the last layer's token mixing, only rows
    /// with logits are needed.
    pub fn output_rows(&self, x: &Array, is_last: bool) -> Array {
        if is_last { self.logits_rows(x) } else { x.clone() }
    }

    /// Positions, sequences and pages of a part's tokens, as attention takes them.
    pub fn tokens_of<'b>(&'b self, part: &'b BatchPart) -> BatchTokens<'b> {
        BatchTokens {
            positions: &part.positions,
            sequences: &part.sequences,
            pages: &self.pages,
        }
    }
}
