//! Picking each sequence's next token and going on to it: where a decode step ends, and the one place
//! where positions advance.
//!
//! Operands, of S sequences and a vocabulary of V tokens, without gaps but for the distance between
//! rows of logits:
//!
//! | operand | what |
//! |---|---|
//! | `logits` f32 `[S, V]` | what the model says of the token behind the current one |
//! | `settings` u32 `[S, 32]` | [`Settings`] as words |
//! | `tokens` u32 `[S]` | the current token; written |
//! | `positions` i32 `[S]` | its position, negative once the sequence is finished; written |
//! | `history` u32 `[S, C]` | tokens by position; written |
//! | `counts` u32 `[S, V]` | how often each token is among the last `window`, see [`counts`]; written |
//! | `outbox` u32 `[S, 1 + R]` | how many tokens were reported, and the last R of them in a ring; written |
//! | `bias` f32 `[S, V]` or `[S, 0]` | added to the logits if the settings say so |
//! | `reported` u32 `[S]` | the result: what this run put into the outbox |
//!
//! For a sequence at position p, the token t at position p + 1 is picked in these steps:
//! 1. *bias* is added;
//! 2. *penalties* on each token that is n > 0 times among the last `window`: a positive logit is
//!    multiplied by 1 / `repeat_penalty`, another by `repeat_penalty`; then n · `frequency_penalty` +
//!    `presence_penalty` is subtracted;
//! 3. *temperature*: logits are divided by it. At 0 the largest logit is taken, of equal ones the
//!    lowest id, and the rest is left out;
//! 4. *top-k*: the k largest logits stay, of equal ones those with the lowest ids;
//! 5. *top-p*: of the softmax over what stayed, going from the most probable down (equal ones by
//!    id), tokens stay until their sum reaches `top_p`, the one that reaches it included;
//! 6. *min-p*: tokens stay whose probability is at least `min_p` times the largest;
//! 7. *draw*: with u from Philox 4×32-10 at (seed, sequence, p + 1), the first token in the order of
//!    ids at which the running sum of the remaining probabilities exceeds u times their total.
//!
//! Then t is reported, `history[p + 1] = t`, and `counts` follow the window. The sequence is finished
//! if t is one of its stop tokens or p + 1 has reached `last_position` or the history's last place;
//! else `tokens` and `positions` become t and p + 1. Where an adjusted logit is not a number, nothing
//! can be picked: [`NOT_A_NUMBER`] is reported and the sequence is finished. For a finished sequence
//! nothing happens but that [`FINISHED`] is reported.
//!
//! The device computes weights in f32 (1e-6 of the cumulative distribution) and adds them up as
//! integers, so that its result is the same in every run. One dispatch finds the best of each block of
//! tokens; from these, a second one knows which blocks can matter, collects their candidates, and
//! selects among them by histograms of eight bits at a time: by rank until top-k's number or top-p's
//! share is reached, and last by id until the number drawn is.

pub mod philox;
mod reference;
mod settings;

pub use reference::{Candidate, SampleState, adjust, candidates, counts, draw, pick, reference};
pub use settings::{MOST_STOP_IDS, Settings, TooManyStopIds};

use crate::kit::iterations;
use crate::kit::text::{self, Text, address};
use crate::{Call, DType, OperandSpec, Push, Traits, Unsupported};

const OP: &str = "sample";

/// Reported for a sequence that is finished.
pub const FINISHED: u32 = u32::MAX;
/// Reported where a logit is not a number.
pub const NOT_A_NUMBER: u32 = u32::MAX - 1;

/// The number of the workspace, behind the operands.
const WORKSPACE: usize = 9;
/// Tokens of a block that each invocation takes.
const TOKENS_EACH: u32 = 4;
/// Times that the second call may visit each token: to collect it, twice to select by rank, which
/// takes seven histograms, once by id, which takes three.
const VISITS: usize = 18;

/// Extents that the operands agree on.
struct SampleSizes {
    sequences: usize,
    vocabulary: usize,
    logits_stride: usize,
    history: usize,
    outbox: usize,
    biased: bool,
}

/// The calls that sample, the second depending on the first, and the workspace that they need: an
/// operand of its own behind the others (number 9), whose contents do not matter. Operands in the
/// order above.
///
/// # Errors
/// [`Unsupported::NeedsContiguous`] for operands with gaps; [`Unsupported::Size`] when shapes
/// contradict each other or are beyond what a kernel takes; [`Unsupported::DType`] for operands of
/// other types.
pub fn calls(traits: &Traits, operands: [&OperandSpec; 9]) -> Result<(Vec<Call>, OperandSpec), Unsupported> {
    let sizes = SampleSizes::of(operands)?;
    let block_width = traits.workgroup(width(sizes.vocabulary, 128));
    let blocks = sizes.vocabulary.div_ceil((block_width * TOKENS_EACH) as usize);
    let ranks = sizes.sequences * (blocks + sizes.vocabulary);
    let workspace = OperandSpec::contiguous(DType::U32, &[2 * ranks + sizes.sequences * blocks]);
    let push = push(operands, &sizes, &workspace, ranks, blocks)?;
    let call = |name, body, width: u32, groups: [usize; 3]| Call {
        kernel: Text::new(traits, name)
            .input("logits", DType::F32)
            .input("settings", DType::U32)
            .output("tokens", DType::U32)
            .output("positions", DType::I32)
            .output("history", DType::U32)
            .output("counts", DType::U32)
            .output("outbox", DType::U32)
            .input("bias", DType::F32)
            .output("reported", DType::U32)
            .output("masses", DType::F32)
            .body(include_str!("../kit/order.glsl"))
            .body(include_str!("../kit/transcendental.glsl"))
            .body(include_str!("common.glsl"))
            .body(body)
            .kernel(vec![(0, width), (3, width), (4, TOKENS_EACH), (5, block_width)]),
        groups: groups.map(|n| n as u32),
        push: push.clone(),
    };
    let pick = concat!(
        include_str!("mass.glsl"),
        include_str!("select.glsl"),
        include_str!("pick.comp")
    );
    let calls = vec![
        call(
            "sample.blocks",
            include_str!("blocks.comp"),
            block_width,
            [blocks, sizes.sequences, 1],
        ),
        call(
            "sample.pick",
            pick,
            sizes.picking_width(traits)?,
            [sizes.sequences, 1, 1],
        ),
    ];
    Ok((calls, workspace))
}

fn push(
    operands: [&OperandSpec; 9],
    sizes: &SampleSizes,
    workspace: &OperandSpec,
    ranks: usize,
    blocks: usize,
) -> Result<Vec<Push>, Unsupported> {
    let mut push = Vec::new();
    for (number, operand) in operands.into_iter().enumerate() {
        push.push(match (number, sizes.biased) {
            // Never read.
            (7, false) => address(OP, 0, operands[0])?,
            _ => address(OP, number, operand)?,
        });
    }
    push.push(address(OP, WORKSPACE, workspace)?);
    push.push(Push::Address {
        operand: WORKSPACE,
        bytes: 8 * ranks as u64,
    });
    let numbers = [
        sizes.vocabulary,
        blocks,
        sizes.logits_stride,
        sizes.history,
        sizes.outbox,
        usize::from(sizes.biased),
    ];
    push.extend(numbers.map(|n| Push::U32(n as u32)));
    Ok(push)
}

/// Invocations that look at a vocabulary, a few tokens each.
fn width(vocabulary: usize, most: u32) -> u32 {
    let wanted = vocabulary.div_ceil(TOKENS_EACH as usize).next_power_of_two();
    (wanted as u32).clamp(32, most)
}

impl SampleSizes {
    fn of(operands: [&OperandSpec; 9]) -> Result<SampleSizes, Unsupported> {
        let [
            logits,
            settings,
            tokens,
            positions,
            history,
            counts,
            outbox,
            bias,
            reported,
        ] = operands;
        for (number, operand) in operands.into_iter().enumerate() {
            let dtype = match number {
                0 | 7 => DType::F32,
                3 => DType::I32,
                _ => DType::U32,
            };
            text::require_dtype(OP, operand, dtype)?;
            if number > 0 {
                text::require_contiguous(OP, operand, number)?;
            }
        }
        let size = |what| Unsupported::Size { op: OP, what };
        let &[sequences, vocabulary] = &logits.layout.shape[..] else {
            return Err(size(format!("logits have shape {:?}", logits.layout.shape)));
        };
        if vocabulary > 1 && logits.layout.strides[1] != 1 {
            return Err(Unsupported::NeedsContiguous { op: OP, operand: 0 });
        }
        text::require_shape(OP, "settings", settings, &[sequences, Settings::WORDS])?;
        for (name, operand) in [("tokens", tokens), ("positions", positions), ("the result", reported)] {
            text::require_shape(OP, name, operand, &[sequences])?;
        }
        text::require_shape(OP, "counts", counts, &[sequences, vocabulary])?;
        let width = |operand: &OperandSpec| match operand.layout.shape[..] {
            [rows, width] if rows == sequences => Some(width),
            _ => None,
        };
        let widths = (width(history), width(outbox), width(bias));
        let (Some(history @ 1..), Some(outbox @ 2..), Some(biases)) = widths else {
            let shapes = [history, outbox, bias].map(|o| &o.layout.shape);
            let what = format!(
                "history, outbox and bias of shapes {shapes:?} do not fit logits of shape [{sequences}, {vocabulary}]"
            );
            return Err(size(what));
        };
        let fits = vocabulary > 0 && (biases == 0 || biases == vocabulary) && (1..=65_535).contains(&sequences);
        if !fits {
            let what = format!("{sequences} sequences, {vocabulary} logits and {biases} biases of each");
            return Err(size(what));
        }
        Ok(SampleSizes {
            sequences,
            vocabulary,
            logits_stride: logits.layout.strides[0],
            history,
            outbox,
            biased: biases > 0,
        })
    }

    /// Invocations that pick a sequence's token.
    fn picking_width(&self, traits: &Traits) -> Result<u32, Unsupported> {
        let width = traits.workgroup(width(self.vocabulary, 1024));
        let visits = self.vocabulary.div_ceil(width as usize) * VISITS;
        iterations::check(OP, traits, visits, || {
            format!("vocabularies of {} tokens", self.vocabulary)
        })?;
        Ok(width)
    }
}
