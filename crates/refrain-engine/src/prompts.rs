//! Tokens on their way into the states of a model's layers, a chunk at a time.

use std::collections::HashMap;

use refrain::{Array, Device, Function, LowerOptions};
use refrain_models::{Batch, LayerState, Pages};

use crate::{Error, Model};

/// The most tokens that one call of the model sees.
pub(crate) const MAX_CHUNK: usize = 2048;
/// So many where another prompt waits, or each token's logits are wanted, and the most that a shorter prompt is padded to.
pub(crate) const SHORT_CHUNK: usize = 512;
/// The fewest that are three quarters of a power of two.
const LEAST_QUARTERS: usize = 96;
/// The fewest that a deep context leaves.
const FEWEST: u64 = 16;

/// The traced programs that take in tokens, by their shape class.
pub(crate) struct PromptPrograms {
    functions: HashMap<ShapeClass, PromptProgram>,
    sequences: usize,
    pages: Pages,
    options: LowerOptions,
    traced: u64,
}

/// One of them, with what it computes.
struct PromptProgram {
    function: Function,
    outputs: Vec<Array>,
}

/// What a trace is made for: everything else is read by the device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct ShapeClass {
    /// Tokens per call: [`class_tokens`].
    tokens: usize,
    /// Tokens whose logits are computed; 0: the states alone are.
    wanted: usize,
    /// Whether hidden states are wanted in place of logits.
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

/// Neighbouring tokens of a sequence.
#[derive(Clone, Copy)]
pub(crate) struct PromptChunk<'t> {
    pub tokens: &'t [u32],
    /// The sequence: a row of the table of pages.
    pub sequence: usize,
    /// Of the first token.
    pub position: usize,
    /// The last tokens whose logits are computed.
    pub wanted: usize,
    /// Whether their hidden states behind the last norm are wanted in place of logits: then of one at least.
    pub hidden: bool,
}

impl PromptPrograms {
    /// For sequences numbered below `sequences`.
    pub fn new(sequences: usize, pages: Pages) -> PromptPrograms {
        PromptPrograms {
            functions: HashMap::new(),
            sequences,
            pages,
            options: LowerOptions::default(),
            traced: 0,
        }
    }

    /// Sets how programs are lowered. Those that there are are made anew.
    pub fn set_lowering(&mut self, options: LowerOptions) {
        self.options = options;
        self.release();
    }

    /// Lets go of the programs that there are. They are made anew.
    pub fn release(&mut self) {
        self.functions.clear();
    }

    /// How often the model's code has run: once per shape class.
    pub fn traced(&self) -> u64 {
        self.traced
    }

    /// Bytes of intermediate results, arguments and logits.
    pub fn own_bytes(&self) -> u64 {
        self.functions
            .values()
            .map(|program| program.function.own_bytes())
            .sum()
    }

    /// Takes a chunk into `states`; `table` has the pages of all sequences, `[N, P]`. The function's first output has the
    /// wanted logits, `[wanted, vocabulary]`, or hidden states, `[wanted, hidden]`, from its beginning on. Returns before
    /// the device is done.
    ///
    /// # Errors
    /// A failing device.
    pub fn run(
        &mut self,
        model: &Model,
        states: &[LayerState],
        chunk: &PromptChunk<'_>,
        table: &[u32],
    ) -> Result<&Function, Error> {
        let class = ShapeClass::of(chunk.tokens.len(), chunk.wanted, chunk.hidden);
        let count = chunk.tokens.len();
        let mut tokens = chunk.tokens.to_vec();
        tokens.resize(class.tokens, 0);
        let position = |t: usize| if t < count { (chunk.position + t) as i32 } else { -1 };
        let positions: Vec<i32> = (0..class.tokens).map(position).collect();
        let first = count - chunk.wanted;
        let row = |row: usize| (first + row).min(count - 1) as u32;
        let rows: Vec<u32> = (0..class.wanted).map(row).collect();
        let function = &self.program_of(model, states, class)?.function;
        function.call_bytes(&[
            ("tokens", bytemuck::cast_slice(&tokens)),
            ("positions", bytemuck::cast_slice(&positions)),
            (
                "sequences",
                bytemuck::cast_slice(&vec![chunk.sequence as u32; class.tokens]),
            ),
            ("pages", bytemuck::cast_slice(table)),
            ("wanted", bytemuck::cast_slice(&rows)),
        ])?;
        Ok(function)
    }

    /// Does what [`PromptPrograms::run`] of `tokens` tokens and `wanted` rows of logits does the first time alone: their
    /// program is made, has its memory, and its commands are the driver's.
    ///
    /// # Errors
    /// As [`PromptPrograms::function`].
    pub fn prepare(&mut self, model: &Model, states: &[LayerState], tokens: usize, wanted: usize) -> Result<(), Error> {
        Ok(self.function(model, states, tokens, wanted)?.prepare()?)
    }

    /// How many of `tokens` tokens one call is to see, of which `wanted` rows of logits are wanted: all of them, or, where
    /// there is too little memory for a long chunk, half as many again and again. Their program is made then.
    ///
    /// # Errors
    /// As [`PromptPrograms::function`], but for that.
    pub fn with_room(
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

    /// The program for `tokens` tokens and `wanted` rows of logits, made when it is first needed.
    ///
    /// # Errors
    /// What cannot be lowered, too little memory.
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

    /// That program after a stage of its lowering.
    ///
    /// # Errors
    /// As [`PromptPrograms::function`]; no such stage.
    pub fn printed(
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

    fn program_of(&mut self, model: &Model, states: &[LayerState], class: ShapeClass) -> Result<&PromptProgram, Error> {
        if !self.functions.contains_key(&class) {
            let batch = Batch::inputs(model.device(), class.tokens, self.sequences, class.wanted, self.pages);
            // The clones are the states' versions within the trace: the updates happen in the same memory.
            let mut states = states.to_vec();
            let rows = if class.hidden {
                model.decoder().hidden(&batch, &mut states)
            } else {
                model.decoder().forward(&batch, &mut states)
            };
            self.traced += 1;
            let outputs = match class.wanted {
                0 => states.iter().flat_map(LayerState::arrays).cloned().collect(),
                _ => vec![rows],
            };
            let function = Function::trace_with(&outputs.iter().collect::<Vec<_>>(), self.options)?;
            self.functions.insert(class, PromptProgram { function, outputs });
        }
        Ok(&self.functions[&class])
    }
}

/// Numbers of tokens that programs are made for, the fewest first: powers of two, and three quarters of those where that is
/// worth a program.
pub(crate) fn class_sizes() -> impl Iterator<Item = usize> {
    let powers = (0..usize::BITS).map(|bit| 1usize << bit);
    powers.flat_map(|whole| {
        let fewer = whole / 4 * 3;
        (fewer >= LEAST_QUARTERS).then_some(fewer).into_iter().chain([whole])
    })
}

/// What `tokens` tokens are padded to.
fn class_tokens(tokens: usize) -> usize {
    class_sizes().find(|&size| size >= tokens).unwrap_or(tokens)
}

/// How many tokens behind `depth` others one call of a model sees, of `most`: so many that a layer's attention keeps the
/// device no longer busy than it may be.
pub(crate) fn most_tokens(model: &Model, most: usize, depth: usize) -> usize {
    let config = model.config();
    // Scores and sums of values.
    let each = config.attention.heads * (config.attention.head_dim + config.attention.value_dim);
    bounded(most, depth, each, model.device().most_work())
}

/// `chunk` tokens, or so many fewer behind `depth` tokens that a layer's attention, of `each`
/// multiplications for a token and a position, takes no more than `most`: a power of two.
fn bounded(chunk: usize, depth: usize, each: usize, most: u64) -> usize {
    let tokens = most / (each * (depth + chunk)).max(1) as u64;
    chunk.min(1 << tokens.max(FEWEST).ilog2())
}

/// How many tokens of a prompt that nobody else waits for one call sees: products of more take matrix cores less time a
/// token (2,048 of Qwen3-8B on an H200 by one call 11 % less than by four, of Qwen3-0.6B 44 %).
pub(crate) fn usual_chunk(device: &Device) -> usize {
    if device.has_matrix_cores() {
        MAX_CHUNK
    } else {
        SHORT_CHUNK
    }
}

/// How many of `left` tokens of such a prompt the next call sees, of `most` at once: of many as many as a program is made
/// for, since padding would cost as much as tokens.
pub(crate) fn unpadded_tokens(left: usize, most: usize) -> usize {
    match left.min(most) {
        few if few <= SHORT_CHUNK => few,
        many => class_sizes().take_while(|&size| size <= many).last().unwrap_or(many),
    }
}

/// How many of `left` tokens the next call sees, of `most` at once: a power of two, unless the last call is almost that
/// many, and no more than short chunks have.
pub(crate) fn next_tokens(left: usize, most: usize) -> usize {
    let room = left.next_power_of_two();
    if left >= most || left > SHORT_CHUNK {
        1 << left.min(most).ilog2()
    } else if 4 * left >= 3 * room {
        left
    } else {
        room / 2
    }
}

#[cfg(test)]
mod tests {
    use super::{bounded, class_tokens, next_tokens, unpadded_tokens};

    fn cut(mut left: usize, most: usize, next: fn(usize, usize) -> usize) -> Vec<usize> {
        let mut chunks = vec![];
        while left > 0 {
            chunks.push(next(left, most));
            left -= chunks[chunks.len() - 1];
        }
        chunks
    }

    #[test]
    fn chunks_shrink_with_depth() {
        let slow = |depth| bounded(512, depth, 2 * 32 * 128, 1 << 34);
        assert_eq!(
            [0, 3_000, 7_000, 32_000, 120_000, 1 << 30].map(slow),
            [512, 512, 256, 64, 16, 16]
        );
        assert_eq!(bounded(512, 32_000, 2 * 32 * 128, 1 << 38), 512);
        assert_eq!(bounded(5, 120_000, 2 * 32 * 128, 1 << 34), 5);
        assert_eq!(bounded(100, 0, 0, 1 << 34), 100);
    }

    #[test]
    fn tokens_are_padded_to_powers_of_two_or_three_quarters_of_one() {
        let padded = [1, 3, 17, 65, 90, 97, 128, 129, 300, 385, 700, 1025, 1537].map(class_tokens);
        assert_eq!(padded, [1, 4, 32, 96, 96, 128, 128, 192, 384, 512, 768, 1536, 2048]);
    }

    #[test]
    fn long_prompts_are_cut_where_nothing_is_padded() {
        let cut = |left, most| cut(left, most, unpadded_tokens);
        assert_eq!(cut(5000, 2048), [2048, 2048, 768, 136]);
        assert_eq!(cut(1600, 2048), [1536, 64]);
        assert_eq!(cut(700, 512), [512, 188]);
        assert_eq!(cut(300, 2048), [300]);
        assert_eq!(cut(30, 13), [13, 13, 4]);
    }

    #[test]
    fn chunks_are_powers_of_two_or_nearly() {
        let cut = |left, most| cut(left, most, next_tokens);
        assert_eq!(cut(1300, 512), [512, 512, 256, 16, 4]);
        assert_eq!(cut(400, 512), [400]);
        assert_eq!(cut(300, 512), [256, 32, 12]);
        assert_eq!(cut(5, 2), [2, 2, 1]);
        assert_eq!(cut(1, 512), [1]);
        assert_eq!(cut(100, 100), [64, 32, 4]);
        assert_eq!(cut(3900, 2048), [2048, 1024, 512, 256, 60]);
    }
}
