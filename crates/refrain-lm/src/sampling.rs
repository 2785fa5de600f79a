//! Sampling of each sequence's next token, the end of a decode step.

use std::hash::Hasher;

use refrain_kernels::sample::{self, Settings};

use refrain::operation::{
    ArraySpec, HostInputs, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values, renumber,
};
use refrain::{Array, DType, Device, Error};

/// The states of S sequences in N slots that [`sample()`] updates in place, at one of their versions, and the
/// sequences' slots.
#[derive(Clone, Debug)]
pub struct Sequences {
    /// u32 `[S]`: current tokens.
    pub tokens: Array,
    /// i32 `[S]`: their positions; negative once a sequence is finished.
    pub positions: Array,
    /// u32 `[N, C]`: tokens by position. A sequence finishes at the last index.
    pub history: Array,
    /// u32 `[N, V]`: number of each token's occurrences among the recent ones.
    pub counts: Array,
    /// u32 `[S, 1 + R]`: number of reported tokens, and a ring of the last R of them.
    pub outbox: Array,
    /// u32 `[S]`: the row of settings, history, counts and bias of each sequence; not updated. Sequences that are not
    /// finished have different slots.
    pub slots: Array,
}

impl Sequences {
    /// Returns zeroed states for `sequences`, each in its own slot, of up to `context` tokens of a vocabulary, with a ring of `ring` tokens.
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
            slots: Array::from_slice(device, &(0..sequences as u32).collect::<Vec<_>>(), &[sequences]),
        })
    }
}

/// (logits `[S, V]`, settings `[N, 32]`, tokens `[S]`, positions `[S]`, history `[N, C]`, counts `[N, V]`,
/// outbox `[S, 1 + R]`, slots `[S]`, {bias `[N, V]`}) → the next token of each sequence, u32 `[S]`. Advances tokens, positions,
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
            format!(
                "logits, settings, tokens, positions, history, counts, outbox, slots (and bias) of {shapes} do not match"
            )
        };
        let [
            logits,
            settings,
            tokens,
            positions,
            history,
            counts,
            outbox,
            slots,
            bias @ ..,
        ] = inputs
        else {
            return Err(mismatch());
        };
        let &[s, v] = &logits.shape[..] else {
            return Err(mismatch());
        };
        let n = settings.shape.first().copied().unwrap_or(0);
        let is_wide = |x: &ArraySpec, rows: usize, min: usize| x.rank() == 2 && x.dim(0) == rows && x.dim(1) >= min;
        let words = [settings, tokens, history, counts, outbox, slots];
        let fits = s > 0
            && n > 0
            && v > 0
            && logits.dtype == DType::F32
            && words.iter().all(|x| x.dtype == DType::U32)
            && positions.dtype == DType::I32
            && settings.shape[..] == [n, Settings::WORDS]
            && tokens.shape[..] == [s]
            && positions.shape[..] == [s]
            && slots.shape[..] == [s]
            && counts.shape[..] == [n, v]
            && is_wide(history, n, 1)
            && is_wide(outbox, s, 2)
            && bias.len() <= 1
            && bias
                .iter()
                .all(|bias| bias.dtype == DType::F32 && bias.shape[..] == [n, v]);
        let reported = (*tokens).clone();
        fits.then(|| vec![reported]).ok_or_else(mismatch)
    }

    fn updates(&self) -> &[usize] {
        &[2, 3, 4, 5, 6]
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let (out, x) = operands.split_last().expect("there is a result");
        let no_bias = OperandSpec::contiguous(DType::F32, &[x[1].layout.shape[0], 0]);
        let bias = x.get(8).unwrap_or(&no_bias);
        let operands = [&x[0], &x[1], &x[2], &x[3], &x[4], &x[5], &x[6], &x[7], bias, out];
        let (mut calls, workspace) = sample::calls(traits, operands)?;
        let numbers = [0, 1, 2, 3, 4, 5, 6, 7, 8, x.len(), x.len() + 1];
        calls.iter_mut().for_each(|call| renumber(call, &numbers));
        Ok(Kernels::with_workspace((calls, Some(workspace))))
    }

    fn reference(&self, step: &HostStep<'_>) {
        let x = step.read();
        let (logits, mut positions) = (x.f32(0), x.i32(3));
        let [mut tokens, mut outbox] = [2, 6].map(|number| x.u32(number));
        let slots: Vec<usize> = x.u32(7).into_iter().map(|slot| slot as usize).collect();
        let [settings, mut history, mut counts] = [1, 4, 5].map(|number| rows_at(&x, number, &slots));
        let bias: Vec<f32> = if x.count() > 8 { rows_at(&x, 8, &slots) } else { vec![] };
        drop(x);
        // A finished sequence's slot may be another sequence's by now.
        let slot_of = |(&slot, &position): (&usize, &i32)| if position < 0 { -1 } else { slot as i32 };
        let updated: Vec<i32> = slots.iter().zip(&positions).map(slot_of).collect();
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
        step.update_rows(4, &Values::U32(history), &updated);
        step.update_rows(5, &Values::U32(counts), &updated);
        step.update(6, &Values::U32(outbox));
        step.store(0, &Values::U32(reported));
    }
}

/// Copies the rows of a matrix at `slots`; slots beyond the last row count as the last.
fn rows_at<T: bytemuck::Pod>(inputs: &HostInputs<'_>, number: usize, slots: &[usize]) -> Vec<T> {
    let (count, width) = (inputs.shape(number)[0], inputs.columns(number));
    let bytes = inputs.gathered(number);
    let row = |&slot: &usize| &bytes[slot.min(count - 1) * width * 4..][..width * 4];
    slots
        .iter()
        .flat_map(|slot| bytemuck::pod_collect_to_vec(row(slot)))
        .collect()
}

/// Samples each sequence's next token and advances to it, as [`crate::sample()`] describes: the end of a decode step.
/// Only this operation advances positions.
///
/// logits f32 `[S, V]`, settings u32 `[N, 32]` ([`Settings::encode`]), bias f32 `[N, V]` or none → the reported tokens,
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
        &sequences.slots,
    ];
    let inputs: Vec<&Array> = [logits, settings].into_iter().chain(states).chain(bias).collect();
    let [reported, tokens, positions, history, counts, outbox] = Array::apply(Sample, &inputs);
    let next = Sequences {
        tokens,
        positions,
        history,
        counts,
        outbox,
        slots: sequences.slots.clone(),
    };
    (reported, next)
}
