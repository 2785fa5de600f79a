//! Compares two executors: both run the same program, and their results are compared step by step.

use std::time::Instant;

use refrain::plan::Plan;
use refrain::{Executor, LowerOptions};
use refrain_lm::sample::Settings;

use crate::generate::TokenSource;
use crate::model::check_ids;
use crate::{Error, GenerateOptions, GeneratedTokens, Model, Programs};

/// An input that is held constant from run to run. What depends only on it must then not change, which reveals
/// stale reads in a replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Freeze {
    /// The position of the current token.
    Position,
    /// The current token.
    Input,
    /// Keys, values and recurrent states.
    State,
}

/// Decodes a text with the device's default executor and with its reference executor, in separate memory. After
/// each token, every result of every step is compared bit for bit.
pub struct Verified {
    tested: Side,
    reference: Side,
    context: usize,
    vocabulary: usize,
    freeze: Option<Freeze>,
}

/// One of the executors, with its programs.
struct Side {
    programs: Programs,
    executor: &'static dyn Executor,
}

impl Verified {
    /// Compiles programs for a text of up to `context` tokens. `fault` names a step of the plan (see [`find_region`])
    /// after which the tested executor continues with a wrong number.
    ///
    /// # Errors
    /// As [`Programs::new`], or if there is no such step.
    pub fn new(model: &Model, context: usize, fault: Option<&str>, freeze: Option<Freeze>) -> Result<Verified, Error> {
        let executors = model.device().executors();
        let side = |executor: &'static dyn Executor| {
            let mut programs = Programs::new(model, context, 1)?;
            programs.set_lowering(LowerOptions {
                keep: true,
                ..LowerOptions::default()
            });
            Ok::<_, Error>(Side { programs, executor })
        };
        let [mut tested, reference] = [side(executors[0])?, side(executors[executors.len() - 1])?];
        if let Some(name) = fault {
            let step = tested.programs.step()?;
            let number = find_region(step.function().plan(), name)?;
            step.inject_fault(tested.executor, number)?;
        }
        Ok(Verified {
            tested,
            reference,
            context,
            vocabulary: model.config().vocab_size,
            freeze,
        })
    }

    /// Generates a text. Yields [`Error::Differs`] at the first token with a differing step.
    ///
    /// # Errors
    /// As [`Verified::tokens`].
    pub fn generate(self, prompt: &[u32], options: &GenerateOptions) -> Result<GeneratedTokens<'static>, Error> {
        let start = Instant::now();
        let position = prompt.len();
        let settings = options.settings(position);
        let bias = options.sampler.bias(self.vocabulary);
        let tokens = self.biased_tokens(prompt, &settings, &bias)?;
        Ok(GeneratedTokens::new(
            Some(Box::new(tokens)),
            position,
            prompt.len(),
            start,
            options,
        ))
    }

    /// Computes a prompt for both executors and decodes from there, token by token.
    ///
    /// # Errors
    /// If the prompt is empty or exceeds the context, or the device fails.
    pub fn tokens(self, prompt: &[u32], settings: &Settings) -> Result<VerifiedTokens, Error> {
        self.biased_tokens(prompt, settings, &[])
    }

    fn biased_tokens(mut self, prompt: &[u32], settings: &Settings, bias: &[f32]) -> Result<VerifiedTokens, Error> {
        let Some((&last, before)) = prompt.split_last() else {
            return Err(Error::EmptyPrompt);
        };
        let (tokens, context) = (prompt.len(), self.context);
        if tokens > context {
            return Err(Error::ContextFull { tokens, context });
        }
        check_ids(prompt, self.vocabulary)?;
        // The prompt is computed once, so that both start decoding from the same bits.
        self.tested.programs.prefill(before)?;
        let frozen = self.tested.programs.read_states(before.len())?;
        self.reference.programs.write_states(&frozen)?;
        for side in [&mut self.tested, &mut self.reference] {
            side.programs.load(prompt, settings, bias)?;
        }
        Ok(VerifiedTokens {
            left: (settings.last_position as usize)
                .min(context)
                .saturating_sub(before.len()),
            settings: Some(settings.clone()),
            token: last,
            position: before.len(),
            decoded: 0,
            frozen,
            verified: self,
        })
    }
}

/// Tokens on which both executors agreed.
pub struct VerifiedTokens {
    verified: Verified,
    left: usize,
    settings: Option<Settings>,
    /// The current token and its position, at the start.
    token: u32,
    position: usize,
    decoded: usize,
    /// The states behind the prompt.
    frozen: Vec<Vec<u8>>,
}

impl TokenSource for VerifiedTokens {
    fn next(&mut self) -> Result<Option<u32>, Error> {
        self.next_token()
    }
}

impl VerifiedTokens {
    /// Returns the next token, if there is room for one.
    ///
    /// # Errors
    /// [`Error::Differs`], or if the device fails.
    pub fn next_token(&mut self) -> Result<Option<u32>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let first = self.settings.take();
        let mut reported = 0;
        for side in [&mut self.verified.tested, &mut self.verified.reference] {
            if self.verified.freeze == Some(Freeze::State) {
                side.programs.write_states(&self.frozen)?;
            }
            let step = side.programs.step()?;
            let position_writes = step.position_writes(self.token, self.position);
            let mut writes = match (&first, self.verified.freeze) {
                (Some(_), _) => position_writes,
                (None, Some(Freeze::Input)) => position_writes[..1].to_vec(),
                (None, Some(Freeze::Position)) => position_writes[1..].to_vec(),
                (None, _) => vec![],
            };
            if let Some(settings) = &first {
                writes.extend(step.settings_writes(settings)?);
            }
            for run in step.play(side.executor, &writes, 1)? {
                step.tape(side.executor)?.wait(&run)?;
            }
            reported = step.reported(step.reports() - 1, 0)?;
        }
        let (tested, reference) = (&mut self.verified.tested, &mut self.verified.reference);
        let (one, other) = (tested.programs.step()?, reference.programs.step()?);
        if let Some(difference) = one.first_difference(other)? {
            return Err(Error::Differs {
                token: self.decoded,
                difference: Box::new(difference),
            });
        }
        self.decoded += 1;
        Ok(Some(reported))
    }
}

/// Finds a step of a plan by its number, or by its primitive and index: `rms_norm:3` is the fourth.
///
/// # Errors
/// [`Error::NoRegion`].
pub fn find_region(plan: &Plan, name: &str) -> Result<usize, Error> {
    let steps = &plan.steps;
    let none = || Error::NoRegion {
        name: name.to_owned(),
        last: steps.len().saturating_sub(1),
        example: steps.first().map_or("", |step| step.primitive.name()).to_owned(),
    };
    if let Ok(number) = name.parse::<usize>() {
        return if number < steps.len() { Ok(number) } else { Err(none()) };
    }
    let (kind, which) = name.split_once(':').unwrap_or((name, "0"));
    let which: usize = which.parse().map_err(|_| none())?;
    let mut found = (0..steps.len()).filter(|&number| steps[number].primitive.name() == kind);
    found.nth(which).ok_or_else(none)
}
