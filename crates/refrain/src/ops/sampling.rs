use refrain_kernels::sample::Settings;

use super::Caller;
use crate::operation::ArraySpec;
use crate::{Array, DType, Device, Error, Primitive};

/// What [`sample`] updates in place, for S sequences: states, at one of their versions.
#[derive(Clone, Debug)]
pub struct Sequences {
    /// u32 `[S]`: the current token.
    pub tokens: Array,
    /// i32 `[S]`: its position; negative once the sequence is finished.
    pub positions: Array,
    /// u32 `[S, C]`: tokens by position. A sequence is finished with the last place.
    pub history: Array,
    /// u32 `[S, V]`: how often each token is among the recent ones.
    pub counts: Array,
    /// u32 `[S, 1 + R]`: how many tokens were reported, and the last R of them in a ring.
    pub outbox: Array,
}

impl Sequences {
    /// States of zeros for `sequences` of up to `places` tokens of a vocabulary, with a ring of `ring`
    /// places.
    ///
    /// # Errors
    /// Where there is too little memory.
    pub fn new(
        device: &Device,
        sequences: usize,
        vocabulary: usize,
        places: usize,
        ring: usize,
    ) -> Result<Sequences, Error> {
        let state = |dtype, shape: &[usize]| Array::state(device, dtype, shape);
        Ok(Sequences {
            tokens: state(DType::U32, &[sequences])?,
            positions: state(DType::I32, &[sequences])?,
            history: state(DType::U32, &[sequences, places])?,
            counts: state(DType::U32, &[sequences, vocabulary])?,
            outbox: state(DType::U32, &[sequences, 1 + ring])?,
        })
    }

    fn fit(&self, sequences: usize, vocabulary: usize) -> bool {
        let is_wide = |x: &Array, least: usize| x.rank() == 2 && x.dim(0) == sequences && x.dim(1) >= least;
        let words = [&self.tokens, &self.history, &self.counts, &self.outbox];
        words.iter().all(|x| x.dtype() == DType::U32)
            && self.positions.dtype() == DType::I32
            && self.tokens.shape() == [sequences]
            && self.positions.shape() == [sequences]
            && self.counts.shape() == [sequences, vocabulary]
            && is_wide(&self.history, 1)
            && is_wide(&self.outbox, 2)
    }
}

/// Picks each sequence's next token and goes on to it, as [`crate::sample`] says: where a decode step
/// ends, and the one place where positions advance. logits f32 `[S, V]`, settings u32 `[S, 32]`
/// ([`Settings::encode`]), bias f32 `[S, V]` or none → what is reported, u32 `[S]`: the token, or
/// [`FINISHED`](crate::sample::FINISHED) or [`NOT_A_NUMBER`](crate::sample::NOT_A_NUMBER); and the states'
/// next versions. Invalid where they do not fit.
#[track_caller]
pub fn sample(logits: &Array, settings: &Array, sequences: &Sequences, bias: Option<&Array>) -> (Array, Sequences) {
    let operation = Caller::new("sample");
    let states = [
        &sequences.tokens,
        &sequences.positions,
        &sequences.history,
        &sequences.counts,
        &sequences.outbox,
    ];
    let inputs: Vec<&Array> = [logits, settings].into_iter().chain(states).chain(bias).collect();
    let fits = match *logits.shape() {
        [s, v] => {
            s > 0
                && v > 0
                && logits.dtype() == DType::F32
                && (settings.dtype(), settings.shape()) == (DType::U32, &[s, Settings::WORDS])
                && bias.is_none_or(|bias| (bias.dtype(), bias.shape()) == (DType::F32, &[s, v]))
                && sequences.fit(s, v)
        }
        _ => false,
    };
    let results = if fits {
        let reported = ArraySpec {
            shape: vec![logits.dim(0)],
            dtype: DType::U32,
        };
        operation.results(Primitive::Sample, &inputs, vec![reported])
    } else {
        let shapes: Vec<String> = inputs.iter().map(|x| format!("{}{:?}", x.dtype(), x.shape())).collect();
        let what = format!(
            "logits, settings, tokens, positions, history, counts, outbox (and bias) of {} do not fit",
            shapes.join(", ")
        );
        vec![operation.invalid(&inputs, what); 1 + states.len()]
    };
    let results = <[Array; 6]>::try_from(results).expect("what is reported, and as many as are updated");
    let [reported, tokens, positions, history, counts, outbox] = results;
    let next = Sequences {
        tokens,
        positions,
        history,
        counts,
        outbox,
    };
    (reported, next)
}
