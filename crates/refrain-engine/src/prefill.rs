//! Prefill: computes prompts a chunk at a time.

use std::collections::HashMap;

use refrain::{Array, DType, Device, Function, LowerOptions, SharedScratch};
use refrain_models::{Batch, LayerState, Pages};

use crate::step::HeadTrace;
use crate::{Error, Model};

/// Limit of tokens per call of the model.
pub(crate) const MAX_CHUNK: usize = 2048;
/// Limit if another prompt waits or logits of all tokens are requested, and limit up to which shorter prompts are
/// padded.
pub(crate) const SHORT_CHUNK: usize = 512;
/// Smallest shape class that is three quarters of a power of two.
const MIN_THREE_QUARTERS: usize = 96;
/// Smallest chunk limit, however deep the context.
const MIN_CHUNK_LIMIT: u64 = 16;

/// The traced prefill programs by shape class.
pub(crate) struct PrefillPrograms {
    functions: HashMap<ShapeClass, PrefillProgram>,
    sequences: usize,
    pages: Pages,
    options: LowerOptions,
    /// Memory for intermediate results that other programs share.
    scratch: Option<SharedScratch>,
    traced: u64,
}

/// A program with its outputs.
struct PrefillProgram {
    function: Function,
    outputs: Vec<Array>,
    /// Whether the multi-token prediction head sees the tokens, which needs the input [`NEXT`].
    observes: bool,
}

/// The input u32 `[T]` with the tokens that follow.
const NEXT: &str = "next";

/// The static shape of a trace: everything else is read by the device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct ShapeClass {
    /// Tokens per call: [`class_tokens`].
    tokens: usize,
    /// Tokens whose logits are computed; 0 computes only the states.
    wanted: usize,
    /// Whether hidden states are computed instead of logits.
    hidden: bool,
}

impl ShapeClass {
    fn of(tokens: usize, wanted: usize, hidden: bool) -> ShapeClass {
        let bucket = class_tokens(tokens);
        ShapeClass {
            tokens: bucket,
            wanted: if wanted <= 1 { wanted } else { bucket },
            hidden,
        }
    }
}

/// Consecutive tokens of a sequence.
#[derive(Clone, Copy)]
pub(crate) struct PrefillPiece<'t> {
    pub tokens: &'t [u32],
    /// The sequence: a row of the page table.
    pub sequence: usize,
    /// Position of the first token.
    pub position: usize,
    /// The token behind them, if it is known.
    pub next: Option<u32>,
}

/// The position of padding: -1.
pub(crate) const PADDING: u32 = u32::MAX;

/// Returns the tokens of pieces on one axis, their positions, and their sequences.
pub(crate) fn token_axis(pieces: &[PrefillPiece<'_>]) -> [Vec<u32>; 3] {
    let (mut tokens, mut positions, mut sequences) = (vec![], vec![], vec![]);
    for piece in pieces {
        tokens.extend_from_slice(piece.tokens);
        let first = piece.position as u32;
        positions.extend(first..first + piece.tokens.len() as u32);
        sequences.resize(tokens.len(), piece.sequence as u32);
    }
    [tokens, positions, sequences]
}

/// Returns the token that follows each of those on the axis; 0 if it is unknown.
fn next_tokens(pieces: &[PrefillPiece<'_>]) -> Vec<u32> {
    let next = |piece: &PrefillPiece<'_>| {
        let last = (!piece.tokens.is_empty()).then_some(piece.next.unwrap_or(0));
        piece.tokens.iter().skip(1).copied().chain(last).collect::<Vec<u32>>()
    };
    pieces.iter().flat_map(next).collect()
}

/// Tokens of one call: pieces of different sequences.
pub(crate) struct PrefillChunk<'t> {
    pub pieces: Vec<PrefillPiece<'t>>,
    /// Indices of the tokens whose logits are computed.
    pub wanted: Vec<u32>,
    /// Whether hidden states after the last norm are computed instead of logits; then `wanted` is not empty.
    pub hidden: bool,
}

impl<'t> PrefillChunk<'t> {
    /// Returns a chunk of one sequence, of whose last `wanted` tokens logits or hidden states are computed.
    pub fn single(piece: PrefillPiece<'t>, wanted: usize, hidden: bool) -> PrefillChunk<'t> {
        let count = piece.tokens.len() as u32;
        PrefillChunk {
            pieces: vec![piece],
            wanted: (count - wanted as u32..count).collect(),
            hidden,
        }
    }

    /// Returns the number of tokens.
    pub fn count(&self) -> usize {
        self.pieces.iter().map(|piece| piece.tokens.len()).sum()
    }
}

impl PrefillPrograms {
    /// Creates programs for sequences numbered below `sequences`.
    pub fn new(sequences: usize, pages: Pages) -> PrefillPrograms {
        PrefillPrograms {
            functions: HashMap::new(),
            sequences,
            pages,
            options: LowerOptions::default(),
            scratch: None,
            traced: 0,
        }
    }

    /// Keeps intermediate results of all programs in shared memory.
    pub fn with_scratch(self, scratch: &SharedScratch) -> PrefillPrograms {
        PrefillPrograms {
            scratch: Some(scratch.clone()),
            ..self
        }
    }

    /// Sets how programs are lowered, and discards existing ones.
    pub fn set_lowering(&mut self, options: LowerOptions) {
        self.options = options;
        self.release();
    }

    /// Discards all programs. They are traced again when needed.
    pub fn release(&mut self) {
        self.functions.clear();
        if let Some(scratch) = &self.scratch {
            scratch.release();
        }
    }

    /// Returns how often the model was traced: once per shape class.
    pub fn traced(&self) -> u64 {
        self.traced
    }

    /// Returns the bytes of intermediate results, arguments and logits.
    pub fn own_bytes(&self) -> u64 {
        self.functions
            .values()
            .map(|program| program.function.working_bytes())
            .sum()
    }

    /// Computes a chunk into `states`; `table` has the pages of all sequences, `[N, P]`. The function's first
    /// output starts with the wanted logits, `[wanted, vocabulary]`, or hidden states, `[wanted, hidden]`. Returns
    /// before the device is done.
    ///
    /// # Errors
    /// If the device fails.
    pub fn run(
        &mut self,
        model: &Model,
        states: &[LayerState],
        chunk: &PrefillChunk<'_>,
        table: &[u32],
    ) -> Result<&Function, Error> {
        let class = ShapeClass::of(chunk.count(), chunk.wanted.len(), chunk.hidden);
        let [mut tokens, mut positions, mut sequences] = token_axis(&chunk.pieces);
        let last = sequences.last().copied().unwrap_or(0);
        tokens.resize(class.tokens, 0);
        positions.resize(class.tokens, PADDING);
        sequences.resize(class.tokens, last);
        let mut rows = chunk.wanted.clone();
        rows.resize(class.wanted, rows.last().copied().unwrap_or(0));
        let program = self.program_of(model, states, class)?;
        let mut next = if program.observes {
            next_tokens(&chunk.pieces)
        } else {
            vec![]
        };
        next.resize(class.tokens, 0);
        let inputs = [
            ("tokens", bytemuck::cast_slice(&tokens)),
            ("positions", bytemuck::cast_slice(&positions)),
            ("sequences", bytemuck::cast_slice(&sequences)),
            ("pages", bytemuck::cast_slice(table)),
            ("wanted", bytemuck::cast_slice(&rows)),
            (NEXT, bytemuck::cast_slice(&next)),
        ];
        let used = inputs.len() - usize::from(!program.observes);
        program.function.call_bytes(&inputs[..used])?;
        Ok(&program.function)
    }

    /// Compiles and allocates ahead of the first [`PrefillPrograms::run`] of `tokens` tokens with `wanted` rows of
    /// logits.
    ///
    /// # Errors
    /// As [`PrefillPrograms::function`].
    pub fn prepare(&mut self, model: &Model, states: &[LayerState], tokens: usize, wanted: usize) -> Result<(), Error> {
        Ok(self.function(model, states, tokens, wanted)?.prepare()?)
    }

    /// Returns how many of `tokens` tokens one call may compute, with `wanted` rows of logits: all of them, or half
    /// as many repeatedly while memory is too small for a long chunk. Prepares the program.
    ///
    /// # Errors
    /// As [`PrefillPrograms::function`], except for such a lack of memory.
    pub fn fit_to_memory(
        &mut self,
        model: &Model,
        states: &[LayerState],
        tokens: usize,
        wanted: usize,
    ) -> Result<usize, Error> {
        let mut fewer = tokens;
        while fewer > SHORT_CHUNK {
            let wanted = if fewer == tokens { wanted } else { 0 };
            match self.prepare(model, states, fewer, wanted) {
                Err(error) if error.is_out_of_memory() => {
                    self.release();
                    fewer /= 2;
                }
                prepared => {
                    prepared?;
                    break;
                }
            }
        }
        Ok(fewer)
    }

    /// Returns the program for `tokens` tokens and `wanted` rows of logits, traced on first use.
    ///
    /// # Errors
    /// If it cannot be lowered, or there is too little memory.
    pub fn function(
        &mut self,
        model: &Model,
        states: &[LayerState],
        tokens: usize,
        wanted: usize,
    ) -> Result<&Function, Error> {
        let class = ShapeClass::of(tokens, wanted, false);
        Ok(&self.program_of(model, states, class)?.function)
    }

    /// Prints that program after a pass.
    ///
    /// # Errors
    /// As [`PrefillPrograms::function`], or if there is no such pass.
    pub fn print_after(
        &mut self,
        model: &Model,
        states: &[LayerState],
        tokens: usize,
        wanted: usize,
        after: &str,
    ) -> Result<String, Error> {
        let options = self.options;
        let program = self.program_of(model, states, ShapeClass::of(tokens, wanted, false))?;
        let outputs: Vec<&Array> = program.outputs.iter().collect();
        Ok(refrain::passes::printed(&outputs, options, after)?)
    }

    fn program_of(
        &mut self,
        model: &Model,
        states: &[LayerState],
        class: ShapeClass,
    ) -> Result<&PrefillProgram, Error> {
        if !self.functions.contains_key(&class) {
            let batch = Batch::inputs(model.device(), class.tokens, self.sequences, class.wanted, self.pages);
            // The clones are the states' versions within the trace; the updates happen in the same memory.
            let mut states = states.to_vec();
            let head = HeadTrace::take(model, &mut states).filter(|_| class.wanted == 0);
            let observes = head.is_some();
            self.traced += 1;
            let outputs = match head {
                Some(mut head) => {
                    let all = Batch {
                        logits_indices: None,
                        ..batch.clone()
                    };
                    let hidden = model.decoder().hidden(&all, &mut states);
                    let next = Array::input(model.device(), NEXT, DType::U32, &[class.tokens]);
                    head.observe(&all, &hidden, &next);
                    let own = states.iter().flat_map(LayerState::arrays).cloned();
                    own.chain(head.arrays()).collect()
                }
                None => {
                    let rows = if class.hidden {
                        model.decoder().hidden(&batch, &mut states)
                    } else {
                        model.decoder().forward(&batch, &mut states)
                    };
                    match class.wanted {
                        0 => states.iter().flat_map(LayerState::arrays).cloned().collect(),
                        _ => vec![rows],
                    }
                }
            };
            let mut function = Function::trace_with(&outputs.iter().collect::<Vec<_>>(), self.options)?;
            if let Some(scratch) = &self.scratch {
                function = function.with_scratch(scratch);
            }
            self.functions.insert(
                class,
                PrefillProgram {
                    function,
                    outputs,
                    observes,
                },
            );
        }
        Ok(&self.functions[&class])
    }
}

/// Token counts of the shape classes, ascending: powers of two, and three quarters of those large enough to be
/// worth a program.
pub(crate) fn class_sizes() -> impl Iterator<Item = usize> {
    let powers = (0..usize::BITS).map(|bit| 1usize << bit);
    powers.flat_map(|power| {
        let fewer = power / 4 * 3;
        (fewer >= MIN_THREE_QUARTERS)
            .then_some(fewer)
            .into_iter()
            .chain([power])
    })
}

/// Returns the token count that `tokens` tokens are padded to.
pub(crate) fn class_tokens(tokens: usize) -> usize {
    class_sizes().find(|&size| size >= tokens).unwrap_or(tokens)
}

/// Returns how many tokens one call may compute after `depth` others, at most `max`. It bounds the device time of a
/// layer's attention.
pub(crate) fn max_chunk_tokens(model: &Model, max: usize, depth: usize) -> usize {
    let config = model.config();
    // Scores, and weighted sums of values.
    let each = config.attention.heads * (config.attention.head_dim + config.attention.value_dim);
    limit_chunk(max, depth, each, model.device().max_submit_work())
}

/// Returns the largest power of two, at most `chunk`, for which attention after `depth` tokens takes no more than
/// `max` multiplications, at `each` multiplications per token and position.
fn limit_chunk(chunk: usize, depth: usize, each: usize, max: u64) -> usize {
    let tokens = max / (each * (depth + chunk)).max(1) as u64;
    chunk.min(1 << tokens.max(MIN_CHUNK_LIMIT).ilog2())
}

/// Returns the default chunk size of a prompt while no other waits. Matrix cores need less time per token for
/// larger products: 2,048 tokens of Qwen3-8B on an H200 take 11 % less in one call than in four, of Qwen3-0.6B 44
/// %.
pub(crate) fn default_chunk(device: &Device) -> usize {
    if device.has_matrix_cores() {
        MAX_CHUNK
    } else {
        SHORT_CHUNK
    }
}

/// Returns how many of `left` tokens the next call computes, at most `max`. Large counts are rounded down to a shape
/// class, since padding would cost as much as tokens; unless the call for the rest would have as much of it.
pub(crate) fn next_chunk(left: usize, max: usize) -> usize {
    let most = left.min(max);
    if most <= SHORT_CHUNK {
        return most;
    }
    let rounded = class_sizes().take_while(|&size| size <= most).last().unwrap_or(most);
    let whole = class_tokens(left);
    if whole <= max && whole == rounded + class_tokens(left - rounded) {
        return left;
    }
    rounded
}

#[cfg(test)]
mod tests {
    use super::{class_tokens, limit_chunk, next_chunk};

    fn cut(mut left: usize, max: usize, next: fn(usize, usize) -> usize) -> Vec<usize> {
        let mut chunks = vec![];
        while left > 0 {
            chunks.push(next(left, max));
            left -= chunks[chunks.len() - 1];
        }
        chunks
    }

    #[test]
    fn chunks_shrink_with_depth() {
        let slow = |depth| limit_chunk(512, depth, 2 * 32 * 128, 1 << 34);
        assert_eq!(
            [0, 3_000, 7_000, 32_000, 120_000, 1 << 30].map(slow),
            [512, 512, 256, 64, 16, 16]
        );
        assert_eq!(limit_chunk(512, 32_000, 2 * 32 * 128, 1 << 38), 512);
        assert_eq!(limit_chunk(5, 120_000, 2 * 32 * 128, 1 << 34), 5);
        assert_eq!(limit_chunk(100, 0, 0, 1 << 34), 100);
    }

    #[test]
    fn pads_to_powers_of_two_or_three_quarters_of_them() {
        let padded = [1, 3, 17, 65, 90, 97, 128, 129, 300, 385, 700, 1025, 1537].map(class_tokens);
        assert_eq!(padded, [1, 4, 32, 96, 96, 128, 128, 192, 384, 512, 768, 1536, 2048]);
    }

    #[test]
    fn cuts_long_prompts_without_padding() {
        let cut = |left, max| cut(left, max, next_chunk);
        assert_eq!(cut(5000, 2048), [2048, 2048, 768, 136]);
        assert_eq!(cut(1600, 2048), [1536, 64]);
        // 1,536 and 384 tokens, but not 512.
        assert_eq!(cut(1920, 2048), [1536, 384]);
        assert_eq!(cut(1921, 2048), [1921]);
        assert_eq!(cut(4000, 2048), [2048, 1952]);
        assert_eq!(cut(750, 1024), [750]);
        assert_eq!(cut(750, 750), [512, 238]);
        assert_eq!(cut(700, 512), [512, 188]);
        assert_eq!(cut(300, 2048), [300]);
        assert_eq!(cut(30, 13), [13, 13, 4]);
    }
}
