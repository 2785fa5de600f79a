//! Prefill: computes prompts a chunk at a time.

mod chunk_sizes;

use std::collections::HashMap;

use refrain::{Array, DType, Function, LowerOptions, SharedScratch};
use refrain_lm::{Logprobs, logprobs};
use refrain_models::{Batch, LayerState, ModelConfig, Pages};

pub(crate) use self::chunk_sizes::{
    MAX_CHUNK, SHORT_CHUNK, class_sizes, class_tokens, default_chunk, max_chunk_tokens, next_chunk,
};
use crate::logprob::MAX_TOP_LOGPROBS;
use crate::step::HeadTrace;
use crate::{Error, Model};

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
    /// Whether it has the input [`NEXT`]: for the multi-token prediction head, or for log-probabilities.
    has_next: bool,
}

/// The input u32 `[T]` with the tokens that follow.
const NEXT: &str = "next";

/// The static shape of a trace: everything else is read by the device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct ShapeClass {
    /// Tokens per call: [`class_tokens`].
    tokens: usize,
    /// Tokens whose outputs are computed; 0 computes only the states.
    wanted: usize,
    output: RowOutput,
}

impl ShapeClass {
    fn of(tokens: usize, wanted: usize, output: RowOutput) -> ShapeClass {
        let bucket = class_tokens(tokens);
        ShapeClass {
            tokens: bucket,
            wanted: if wanted <= 1 { wanted } else { bucket },
            output,
        }
    }
}

/// What is computed after a token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub(crate) enum RowOutput {
    /// Logits, `[vocabulary]`.
    #[default]
    Logits,
    /// The hidden state after the last norm, `[hidden]`.
    Hidden,
    /// Log-probabilities of the token that follows and of the [`MAX_TOP_LOGPROBS`] most likely ones: a row of
    /// [`logprobs`].
    Logprobs,
}

impl RowOutput {
    /// Returns the number of values of a row.
    pub fn width(self, config: &ModelConfig) -> usize {
        match self {
            RowOutput::Logits => config.vocab_size,
            RowOutput::Hidden => config.hidden_size,
            RowOutput::Logprobs => Logprobs::width(MAX_TOP_LOGPROBS.min(config.vocab_size)),
        }
    }

    /// Computes rows from hidden states `[O, hidden]` and the tokens `next` `[O]` that follow.
    fn of(self, model: &Model, hidden: Array, next: &Array) -> Array {
        match self {
            RowOutput::Hidden => hidden,
            RowOutput::Logits => model.decoder().logits(&hidden),
            RowOutput::Logprobs => {
                let logits = model.decoder().logits(&hidden);
                logprobs(&logits, next, MAX_TOP_LOGPROBS.min(model.config().vocab_size))
            }
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
    /// Indices of the tokens whose outputs are computed.
    pub wanted: Vec<u32>,
    pub output: RowOutput,
}

impl<'t> PrefillChunk<'t> {
    /// Returns a chunk of one sequence, of whose last `wanted` tokens outputs are computed.
    pub fn single(piece: PrefillPiece<'t>, wanted: usize, output: RowOutput) -> PrefillChunk<'t> {
        let count = piece.tokens.len() as u32;
        PrefillChunk {
            pieces: vec![piece],
            wanted: (count - wanted as u32..count).collect(),
            output,
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

    /// Computes a chunk into `states`; `table` has the pages of all sequences, `[N, P]`. The function's first
    /// output starts with the wanted rows, `[wanted, …]`. Returns before the device is done.
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
        let class = ShapeClass::of(chunk.count(), chunk.wanted.len(), chunk.output);
        let [mut tokens, mut positions, mut sequences] = token_axis(&chunk.pieces);
        let last = sequences.last().copied().unwrap_or(0);
        tokens.resize(class.tokens, 0);
        positions.resize(class.tokens, PADDING);
        sequences.resize(class.tokens, last);
        let mut rows = chunk.wanted.clone();
        rows.resize(class.wanted, rows.last().copied().unwrap_or(0));
        let program = self.program_of(model, states, class)?;
        let mut next = if program.has_next {
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
        let used = inputs.len() - usize::from(!program.has_next);
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
        let class = ShapeClass::of(tokens, wanted, RowOutput::default());
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
        let class = ShapeClass::of(tokens, wanted, RowOutput::default());
        let program = self.program_of(model, states, class)?;
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
            let head = HeadTrace::take(model, &mut states);
            let has_next = head.is_some() || class.output == RowOutput::Logprobs;
            let next = Array::input(model.device(), NEXT, DType::U32, &[class.tokens]);
            self.traced += 1;
            let mut observed: Vec<Array> = vec![];
            let hidden = match head {
                Some(mut head) => {
                    let all = Batch {
                        logits_indices: None,
                        ..batch.clone()
                    };
                    let hidden = model.decoder().hidden(&all, &mut states);
                    head.observe(&all, &hidden, &next);
                    observed.extend(head.arrays());
                    batch.logits_rows(&hidden)
                }
                None => model.decoder().hidden(&batch, &mut states),
            };
            let mut outputs: Vec<Array> = match class.wanted {
                0 => states.iter().flat_map(LayerState::arrays).cloned().collect(),
                _ => vec![class.output.of(model, hidden, &batch.logits_rows(&next))],
            };
            outputs.extend(observed);
            let mut function = Function::trace_with(&outputs.iter().collect::<Vec<_>>(), self.options)?;
            if let Some(scratch) = &self.scratch {
                function = function.with_scratch(scratch);
            }
            self.functions.insert(
                class,
                PrefillProgram {
                    function,
                    outputs,
                    has_next,
                },
            );
        }
        Ok(&self.functions[&class])
    }
}
