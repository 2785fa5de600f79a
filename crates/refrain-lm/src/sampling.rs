//! Sampling of each sequence's next token, the end of a decode step.

use std::hash::Hasher;

use refrain_kernels::sample::{self, Settings};

use refrain::operation::{ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values, renumber};
use refrain::{Array, DType, Device, Error};

/// The states of S sequences that [`sample()`] updates in place, at one of their versions.
#[derive(Clone, Debug)]
pub struct Sequences {
    /// u32 `[S]`: current tokens.
    pub tokens: Array,
    /// i32 `[S]`: their positions; negative once a sequence is finished.
    pub positions: Array,
    /// u32 `[S, C]`: tokens by position. A sequence finishes at the last index.
    pub history: Array,
    /// u32 `[S, V]`: number of each token's occurrences among the recent ones.
    pub counts: Array,
    /// u32 `[S, 1 + R]`: number of reported tokens, and a ring of the last R of them.
    pub outbox: Array,
}

impl Sequences {
    /// Returns zeroed states for `sequences` of up to `context` tokens of a vocabulary, with a ring of `ring` tokens.
    ///
    /// # Errors
    /// If memory cannot be allocated.
    pub fn new(
        device: &Device,
        sequences: usize,
        vocabulary: usize,
        context: usize,
        ring: usize,
    ) -> Result<Sequences, Error> {
        let state = |dtype, shape: &[usize]| Array::state(device, dtype, shape);
        Ok(Sequences {
            tokens: state(DType::U32, &[sequences])?,
            positions: state(DType::I32, &[sequences])?,
            history: state(DType::U32, &[sequences, context])?,
            counts: state(DType::U32, &[sequences, vocabulary])?,
            outbox: state(DType::U32, &[sequences, 1 + ring])?,
        })
    }
}

/// (logits `[S, V]`, settings `[S, 32]`, tokens `[S]`, positions `[S]`, history `[S, C]`, counts `[S, V]`,
/// outbox `[S, 1 + R]`, {bias `[S, V]`}) → the next token of each sequence, u32 `[S]`. Advances tokens, positions,
/// history, counts and outbox to it.
#[derive(Debug)]
struct Sample;

impl Operation for Sample {
    fn name(&self) -> &'static str {
        "sample"
    }

    fn key(&self, _state: &mut dyn Hasher) {}

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let mismatch = || {
            let shapes: Vec<String> = inputs.iter().map(|x| x.to_string()).collect();
            let shapes = shapes.join(", ");
            format!("logits, settings, tokens, positions, history, counts, outbox (and bias) of {shapes} do not match")
        };
        let [logits, settings, tokens, positions, history, counts, outbox, bias @ ..] = inputs else {
            return Err(mismatch());
        };
        let &[s, v] = &logits.shape[..] else {
            return Err(mismatch());
        };
        let is_wide = |x: &ArraySpec, min: usize| x.rank() == 2 && x.dim(0) == s && x.dim(1) >= min;
        let words = [settings, tokens, history, counts, outbox];
        let fits = s > 0
            && v > 0
            && logits.dtype == DType::F32
            && words.iter().all(|x| x.dtype == DType::U32)
            && positions.dtype == DType::I32
            && settings.shape == [s, Settings::WORDS]
            && tokens.shape == [s]
            && positions.shape == [s]
            && counts.shape == [s, v]
            && is_wide(history, 1)
            && is_wide(outbox, 2)
            && bias.len() <= 1
            && bias.iter().all(|bias| bias == logits);
        let reported = (*tokens).clone();
        fits.then(|| vec![reported]).ok_or_else(mismatch)
    }

    fn updates(&self) -> &[usize] {
        &[2, 3, 4, 5, 6]
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let (out, x) = operands.split_last().expect("there is a result");
        let no_bias = OperandSpec::contiguous(DType::F32, &[out.layout.count(), 0]);
        let bias = x.get(7).unwrap_or(&no_bias);
        let operands = [&x[0], &x[1], &x[2], &x[3], &x[4], &x[5], &x[6], bias, out];
        let (mut calls, workspace) = sample::calls(traits, operands)?;
        let numbers = [0, 1, 2, 3, 4, 5, 6, 7, x.len(), x.len() + 1];
        calls.iter_mut().for_each(|call| renumber(call, &numbers));
        Ok(Kernels::with_workspace((calls, Some(workspace))))
    }

    fn reference(&self, step: &HostStep<'_>) {
        let x = step.read();
        let (logits, settings, mut positions) = (x.f32(0), x.u32(1), x.i32(3));
        let [mut tokens, mut history, mut counts, mut outbox] = [2, 4, 5, 6].map(|number| x.u32(number));
        let bias = if x.count() > 7 { x.f32(7) } else { vec![] };
        drop(x);
        let mut state = sample::SampleState {
            tokens: &mut tokens,
            positions: &mut positions,
            history: &mut history,
            counts: &mut counts,
            outbox: &mut outbox,
        };
        let reported = sample::reference(&logits, &settings, &bias, &mut state);
        step.update(2, &Values::U32(tokens));
        step.update(3, &Values::I32(positions));
        step.update(4, &Values::U32(history));
        step.update(5, &Values::U32(counts));
        step.update(6, &Values::U32(outbox));
        step.store(0, &Values::U32(reported));
    }
}

/// Samples each sequence's next token and advances to it, as [`crate::sample()`] describes: the end of a decode step.
/// Only this operation advances positions.
///
/// logits f32 `[S, V]`, settings u32 `[S, 32]` ([`Settings::encode`]), bias f32 `[S, V]` or none → the reported tokens,
/// u32 `[S]`, and the states' next versions. Instead of a token, [`FINISHED`](crate::sample::FINISHED) or
/// [`NOT_A_NUMBER`](crate::sample::NOT_A_NUMBER) may be reported. Results are invalid if shapes do not match.
#[track_caller]
pub fn sample(logits: &Array, settings: &Array, sequences: &Sequences, bias: Option<&Array>) -> (Array, Sequences) {
    let states = [
        &sequences.tokens,
        &sequences.positions,
        &sequences.history,
        &sequences.counts,
        &sequences.outbox,
    ];
    let inputs: Vec<&Array> = [logits, settings].into_iter().chain(states).chain(bias).collect();
    let [reported, tokens, positions, history, counts, outbox] = Array::apply(Sample, &inputs);
    let next = Sequences {
        tokens,
        positions,
        history,
        counts,
        outbox,
    };
    (reported, next)
}
