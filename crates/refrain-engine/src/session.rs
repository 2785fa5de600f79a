use std::collections::HashMap;

use refrain::{DType, Device, Function};
use refrain_formats::ModelConfig;
use refrain_models::{Batch, LayerState, Pages};

use crate::{Error, Model};

/// Positions per page of the KV cache.
const PAGE: usize = 256;
/// The most tokens that one call of the model sees.
const MAX_CHUNK: usize = 512;

/// One sequence in progress: its KV cache, and the traced programs that extend it.
pub struct Session<'m> {
    model: &'m Model,
    states: Vec<LayerState>,
    pages: Pages,
    context: usize,
    chunk: usize,
    /// Tokens whose keys and values are in the cache.
    position: usize,
    /// Traced programs by their shape class.
    functions: HashMap<ShapeClass, Function>,
    model_calls: u64,
}

/// What a trace is made for: everything else is read by the device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct ShapeClass {
    /// Tokens per call: a power of two.
    tokens: usize,
    /// Tokens whose logits are computed.
    wanted: usize,
}

/// Bytes of memory beside the weights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionMemory {
    /// Of the KV cache.
    pub kv_bytes: u64,
    /// Of intermediate results, arguments and logits.
    pub scratch_bytes: u64,
}

/// What keys and values are kept in: the CPU executor is the oracle and rounds nothing.
fn cache_dtype(device: &Device) -> DType {
    if device.is_cpu() { DType::F32 } else { DType::F16 }
}

impl<'m> Session<'m> {
    /// An empty session that can hold `context` tokens. Keys and values are kept in f16, and in f32
    /// on the CPU executor.
    ///
    /// # Errors
    /// A context beyond the model's limit; too little memory for the KV cache.
    pub fn new(model: &'m Model, context: usize) -> Result<Session<'m>, Error> {
        Session::with_cache_dtype(model, context, cache_dtype(model.device()))
    }

    /// Like [`Session::new`], with keys and values in `dtype`.
    ///
    /// # Errors
    /// As [`Session::new`].
    pub fn with_cache_dtype(model: &'m Model, context: usize, dtype: DType) -> Result<Session<'m>, Error> {
        let config = model.config();
        if context == 0 || context > config.max_position {
            return Err(Error::ContextRange {
                asked: context,
                limit: config.max_position,
            });
        }
        let pages = Pages {
            size: PAGE,
            per_sequence: context.div_ceil(PAGE),
            context,
        };
        Ok(Session {
            model,
            states: model.decoder.new_states(dtype, pages, 1)?,
            pages,
            context,
            chunk: MAX_CHUNK,
            position: 0,
            functions: HashMap::new(),
            model_calls: 0,
        })
    }

    /// Bytes of keys and values that [`Session::new`] keeps for each token.
    pub fn kv_bytes_per_token(config: &ModelConfig, device: &Device) -> u64 {
        (2 * config.layers * config.kv_heads * config.head_dim * cache_dtype(device).size()) as u64
    }

    /// Tokens that the session can hold.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Tokens that the session holds.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Sets how many tokens of a prompt one call of the model sees: clamped to 1 … 512.
    pub fn set_chunk(&mut self, tokens: usize) {
        self.chunk = tokens.clamp(1, MAX_CHUNK);
    }

    /// How often the model's code has run: once per shape class.
    pub fn model_calls(&self) -> u64 {
        self.model_calls
    }

    /// Memory used beside the weights.
    pub fn memory(&self) -> SessionMemory {
        let kv = self.states.iter().flat_map(LayerState::arrays);
        SessionMemory {
            kv_bytes: kv.map(|a| (a.count() * a.dtype().size()) as u64).sum(),
            scratch_bytes: self.functions.values().map(Function::own_bytes).sum(),
        }
    }

    /// Forgets the tokens from `position` on. Does nothing when there are not that many.
    pub fn rewind(&mut self, position: usize) {
        self.position = self.position.min(position);
    }

    /// Appends a prompt, in chunks; returns the logits `[vocabulary]` after its last token.
    ///
    /// # Errors
    /// An empty prompt, a token beyond the vocabulary, a full context, a failing device.
    pub fn prefill(&mut self, tokens: &[u32]) -> Result<Vec<f32>, Error> {
        self.check(tokens)?;
        let mut logits = vec![];
        for chunk in tokens.chunks(self.chunk) {
            logits = self.extend(chunk, 1)?;
        }
        Ok(logits)
    }

    /// Appends one token; returns the logits `[vocabulary]` after it.
    ///
    /// # Errors
    /// As [`Session::prefill`].
    pub fn decode(&mut self, token: u32) -> Result<Vec<f32>, Error> {
        self.check(&[token])?;
        self.extend(&[token], 1)
    }

    /// Logits `[T, vocabulary]` after each of `tokens`, which start a new sequence.
    ///
    /// # Errors
    /// As [`Session::prefill`].
    pub fn logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>, Error> {
        self.rewind(0);
        self.check(tokens)?;
        let mut logits = Vec::with_capacity(tokens.len() * self.model.config().vocab_size);
        for chunk in tokens.chunks(self.chunk) {
            logits.extend(self.extend(chunk, chunk.len())?);
        }
        Ok(logits)
    }

    fn check(&self, tokens: &[u32]) -> Result<(), Error> {
        let vocabulary = self.model.config().vocab_size;
        if tokens.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        if let Some(&id) = tokens.iter().find(|&&id| id as usize >= vocabulary) {
            return Err(Error::TokenRange { id, vocabulary });
        }
        let held = self.position + tokens.len();
        if held > self.context {
            return Err(Error::ContextFull {
                tokens: held,
                context: self.context,
            });
        }
        Ok(())
    }

    /// Runs the model on a chunk of new tokens; returns the logits after its last `wanted` ones.
    fn extend(&mut self, chunk: &[u32], wanted: usize) -> Result<Vec<f32>, Error> {
        let bucket = chunk.len().next_power_of_two();
        let class = ShapeClass {
            tokens: bucket,
            wanted: if wanted == 1 { 1 } else { bucket },
        };
        self.trace(class)?;
        let mut tokens = chunk.to_vec();
        tokens.resize(bucket, 0);
        let position = |t: usize| {
            if t < chunk.len() {
                (self.position + t) as i32
            } else {
                -1
            }
        };
        let positions: Vec<i32> = (0..bucket).map(position).collect();
        let sequences = vec![0u32; bucket];
        let pages: Vec<u32> = (0..self.pages.per_sequence as u32).collect();
        let first = chunk.len() - wanted;
        let rows: Vec<u32> = (0..class.wanted)
            .map(|row| (first + row).min(chunk.len() - 1) as u32)
            .collect();
        let function = &self.functions[&class];
        function.call(&[
            ("tokens", bytemuck::cast_slice(&tokens)),
            ("positions", bytemuck::cast_slice(&positions)),
            ("sequences", bytemuck::cast_slice(&sequences)),
            ("pages", bytemuck::cast_slice(&pages)),
            ("wanted", bytemuck::cast_slice(&rows)),
        ])?;
        let logits = function.read_range(0, 0, wanted * self.model.config().vocab_size)?;
        self.position += chunk.len();
        Ok(logits)
    }

    /// Makes the program for a shape class, unless there is one.
    fn trace(&mut self, class: ShapeClass) -> Result<(), Error> {
        if self.functions.contains_key(&class) {
            return Ok(());
        }
        let batch = Batch::inputs(self.model.device(), class.tokens, 1, class.wanted, self.pages);
        // The clones are the states' versions within the trace: the updates happen in the same memory.
        let logits = self.model.decoder.forward(&batch, &mut self.states.clone());
        self.model_calls += 1;
        self.functions.insert(class, Function::trace(&[&logits])?);
        Ok(())
    }
}
