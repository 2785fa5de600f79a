//! Sampling of each sequence's next token, and the advance to it: the end of a decode step. Only this kernel advances
//! positions.
//!
//! Operands, for S sequences, N slots and a vocabulary of V tokens; all contiguous, except that rows of logits may have
//! gaps. What a sequence keeps from step to step is at its slot, so that the rows of a step can change without moving it:
//!
//! | operand | contents |
//! |---|---|
//! | `logits` f32 `[S, V]` | the model's logits of the token after the current one |
//! | `settings` u32 `[N, 32]` | [`Settings`] as words |
//! | `tokens` u32 `[S]` | the current token; written |
//! | `positions` i32 `[S]` | its position, negative once the sequence is finished; written |
//! | `history` u32 `[N, C]` | tokens by position; written |
//! | `counts` u32 `[N, V]` | number of each token's occurrences among the last `window`, see [`initial_counts`]; written |
//! | `outbox` u32 `[S, 1 + R]` | number of reported tokens, and a ring of the last R of them; written |
//! | `slots` u32 `[S]` | each sequence's slot, below N; different for sequences that are not finished |
//! | `bias` f32 `[N, V]` or `[N, 0]` | added to the logits if the settings enable it |
//! | `reported` u32 `[S]` | the result: what this run added to the outbox |
//!
//! For a sequence at position p, these steps sample the token t at position p + 1:
//! 1. *bias* is added;
//! 2. *penalties* on each token that occurs n > 0 times among the last `window`: a positive logit is
//!    multiplied by 1 / `repeat_penalty`, any other by `repeat_penalty`; then n · `frequency_penalty` +
//!    `presence_penalty` is subtracted. A token with [`IN_PROMPT`] and n = 0 gets the repeat penalty alone;
//! 3. *temperature*: logits are divided by it. At 0 the largest logit is taken, of equal ones the
//!    lowest id, and the further steps are skipped;
//! 4. *top-k*: keeps the k largest logits, of equal ones those with the lowest ids;
//! 5. *top-p*: of the softmax over the remaining tokens, from the most probable down (equal ones by
//!    id), keeps tokens until their sum reaches `top_p`, including the one that reaches it;
//! 6. *min-p*: keeps tokens whose probability is at least `min_p` times the largest;
//! 7. *draw*: with u from Philox 4×32-10 at (seed, sequence, p + 1), the first token in the order of
//!    ids at which the running sum of the remaining probabilities exceeds u times their total.
//!
//! Then t is reported, `history[p + 1]` becomes t, and `counts` are updated for the window. The sequence is finished if
//! t is one of its stop tokens, or if p + 1 has reached `last_position` or the history's last index. Otherwise `tokens`
//! and `positions` become t and p + 1. If an adjusted logit is NaN, [`NOT_A_NUMBER`] is reported and the sequence is
//! finished. For a finished sequence, only [`FINISHED`] is reported.
//!
//! The device computes weights in f32 (1e-6 of the cumulative distribution) and adds them as integers, so that its
//! result is deterministic. The first dispatch finds the best token of each block of tokens. From these, the second one
//! knows which blocks can hold candidates, collects their candidates, and selects among them by histograms of eight
//! bits at a time. It selects by rank until top-k's count or top-p's mass is reached, and finally by id until the drawn
//! number is reached.

pub mod philox;
mod reference;
mod settings;

pub use reference::{Candidate, SampleState, adjust, candidates, counts, draw, initial_counts, pick, reference};
pub use settings::{MAX_STOP_IDS, Settings, TooManyStopIds};

use crate::kit::iterations;
use crate::kit::text::{self, SourceBuilder, address};
use crate::{Call, DType, OperandSpec, Push, Traits, Unsupported};

const OP: &str = "sample";

/// A bit of a token's count: the token is in the prompt, which only the repeat penalty counts.
pub const IN_PROMPT: u32 = 1 << 31;
/// Reported for a sequence that is finished.
pub const FINISHED: u32 = u32::MAX;
/// Reported if a logit is NaN.
pub const NOT_A_NUMBER: u32 = u32::MAX - 1;

/// Number of operands.
const OPERANDS: usize = 10;
/// Operand number of the bias.
const BIAS: usize = 8;
/// Operand number of the workspace, after the operands.
const WORKSPACE: usize = OPERANDS;
/// Tokens of a block per invocation.
const TOKENS_EACH: u32 = 4;
/// Maximum number of passes of the second call over the tokens: one to collect them, two selections by rank of seven
/// histograms each, and one by id of three.
const MAX_PASSES: usize = 18;

/// Extents of checked operands.
struct SampleSizes {
    sequences: usize,
    slots: usize,
    vocabulary: usize,
    logits_stride: usize,
    history: usize,
    outbox: usize,
    biased: bool,
}

/// Returns the calls that sample, the second depending on the first, and the workspace they need: a further operand
/// (number 10), whose contents do not matter. Takes operands in the order above.
///
/// # Errors
/// [`Unsupported::NeedsContiguous`] for operands with gaps; [`Unsupported::Size`] when shapes
/// contradict each other or exceed the limits; [`Unsupported::DType`] for operands of other types.
pub fn calls(traits: &Traits, operands: [&OperandSpec; OPERANDS]) -> Result<(Vec<Call>, OperandSpec), Unsupported> {
    let sizes = SampleSizes::of(operands)?;
    let block_width = traits.workgroup(width(sizes.vocabulary, 128));
    let blocks = sizes.vocabulary.div_ceil((block_width * TOKENS_EACH) as usize);
    let ranks = sizes.sequences * (blocks + sizes.vocabulary);
    let workspace = OperandSpec::contiguous(DType::U32, &[2 * ranks + sizes.sequences * blocks]);
    let push = push(operands, &sizes, &workspace, ranks, blocks)?;
    let call = |name, body, width: u32, groups: [usize; 3]| Call {
        kernel: SourceBuilder::new(traits, name)
            .input("logits", DType::F32)
            .input("settings", DType::U32)
            .output("tokens", DType::U32)
            .output("positions", DType::I32)
            .output("history", DType::U32)
            .output("counts", DType::U32)
            .output("outbox", DType::U32)
            .input("slots", DType::U32)
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
        call("sample.pick", pick, sizes.pick_width(traits)?, [sizes.sequences, 1, 1]),
    ];
    Ok((calls, workspace))
}

fn push(
    operands: [&OperandSpec; OPERANDS],
    sizes: &SampleSizes,
    workspace: &OperandSpec,
    ranks: usize,
    blocks: usize,
) -> Result<Vec<Push>, Unsupported> {
    let mut push = Vec::new();
    for (number, operand) in operands.into_iter().enumerate() {
        push.push(match (number, sizes.biased) {
            // The shader never reads it.
            (BIAS, false) => address(OP, 0, operands[0])?,
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
        sizes.slots,
    ];
    push.extend(numbers.map(|n| Push::U32(n as u32)));
    Ok(push)
}

/// Returns the number of invocations for a vocabulary, a few tokens each.
fn width(vocabulary: usize, max: u32) -> u32 {
    let width = vocabulary.div_ceil(TOKENS_EACH as usize).next_power_of_two();
    (width as u32).clamp(32, max)
}

/// Checks the operands' types, and that all but the logits are contiguous.
fn check_types(operands: [&OperandSpec; OPERANDS]) -> Result<(), Unsupported> {
    for (number, operand) in operands.into_iter().enumerate() {
        let dtype = match number {
            0 | BIAS => DType::F32,
            3 => DType::I32,
            _ => DType::U32,
        };
        text::require_dtype(OP, operand, dtype)?;
        if number > 0 {
            text::require_contiguous(OP, operand, number)?;
        }
    }
    Ok(())
}

impl SampleSizes {
    fn of(operands: [&OperandSpec; OPERANDS]) -> Result<SampleSizes, Unsupported> {
        let [
            logits,
            settings,
            tokens,
            positions,
            history,
            counts,
            outbox,
            slots,
            bias,
            reported,
        ] = operands;
        check_types(operands)?;
        let size = |what| Unsupported::Size { op: OP, what };
        let &[sequences, vocabulary] = &logits.layout.shape[..] else {
            return Err(size(format!(
                "logits have shape {:?}, expected 2 dimensions",
                logits.layout.shape
            )));
        };
        if vocabulary > 1 && logits.layout.strides[1] != 1 {
            return Err(Unsupported::NeedsContiguous { op: OP, operand: 0 });
        }
        let all_slots = settings.layout.shape.first().copied().unwrap_or(0);
        text::require_shape(OP, "settings", settings, &[all_slots, Settings::WORDS])?;
        let lists = [
            ("tokens", tokens),
            ("positions", positions),
            ("slots", slots),
            ("the result", reported),
        ];
        for (name, operand) in lists {
            text::require_shape(OP, name, operand, &[sequences])?;
        }
        text::require_shape(OP, "counts", counts, &[all_slots, vocabulary])?;
        let width = |operand: &OperandSpec, rows| match operand.layout.shape[..] {
            [found, width] if found == rows => Some(width),
            _ => None,
        };
        let widths = (
            width(history, all_slots),
            width(outbox, sequences),
            width(bias, all_slots),
        );
        let (Some(history @ 1..), Some(outbox @ 2..), Some(biases)) = widths else {
            let shapes = [history, outbox, bias].map(|o| &o.layout.shape);
            let what = format!(
                "history, outbox and bias of shapes {shapes:?} do not match logits of shape [{sequences}, {vocabulary}] and \
                 {all_slots} slots"
            );
            return Err(size(what));
        };
        let fits = vocabulary > 0
            && all_slots > 0
            && (biases == 0 || biases == vocabulary)
            && (1..=65_535).contains(&sequences);
        if !fits {
            let what =
                format!("{sequences} sequences with {vocabulary} logits and {biases} biases each are unsupported");
            return Err(size(what));
        }
        Ok(SampleSizes {
            sequences,
            slots: all_slots,
            vocabulary,
            logits_stride: logits.layout.strides[0],
            history,
            outbox,
            biased: biases > 0,
        })
    }

    /// Returns the number of invocations that sample a sequence's token.
    fn pick_width(&self, traits: &Traits) -> Result<u32, Unsupported> {
        let width = traits.workgroup(width(self.vocabulary, 1024));
        let passes = self.vocabulary.div_ceil(width as usize) * MAX_PASSES;
        iterations::check(OP, traits, passes, || {
            format!("vocabularies of {} tokens", self.vocabulary)
        })?;
        Ok(width)
    }
}
