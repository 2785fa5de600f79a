//! Compares two executors: both run the same program, and their results are compared step by step.

use std::time::Instant;

use refrain::plan::Plan;
use refrain::{Executor, LowerOptions};
use refrain_lm::sample::Settings;

use crate::generate::TokenSource;
use crate::{Error, GenerateOptions, GeneratedTokens, Mode, Model, Session, Snapshot};

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

/// Decodes a sequence with the device's default executor and with its reference executor, in separate memory. After
/// each token, every result of every step is compared bit for bit.
pub struct Verified {
    tested: Session,
    reference: Session,
    freeze: Option<Freeze>,
}

impl Verified {
    /// Creates two sessions with room for `context` tokens. `fault` names a step of the plan (see [`find_region`])
    /// after which the tested executor continues with a wrong number.
    ///
    /// # Errors
    /// As [`Session::new`], or if there is no such step.
    pub fn new(model: &Model, context: usize, fault: Option<&str>, freeze: Option<Freeze>) -> Result<Verified, Error> {
        let executors = model.device().executors();
        let [tested, reference] = [executors[0], executors[executors.len() - 1]];
        let session = |executor: &'static dyn Executor| {
            let mut session = Session::new(model, context)?;
            session.set_mode(Mode::Fixed(executor), None);
            session.set_lowering(LowerOptions {
                keep: true,
                ..LowerOptions::default()
            });
            Ok::<_, Error>(session)
        };
        let mut tested_session = session(tested)?;
        if let Some(name) = fault {
            let step = tested_session.step()?;
            let number = find_region(step.function().plan(), name)?;
            step.inject_fault(tested, number)?;
        }
        Ok(Verified {
            tested: tested_session,
            reference: session(reference)?,
            freeze,
        })
    }

    /// As [`Session::generate`], from an empty session. Yields [`Error::Differs`] at the first token with a
    /// differing step.
    ///
    /// # Errors
    /// As [`Session::generate`].
    pub fn generate(mut self, prompt: &[u32], options: &GenerateOptions) -> Result<GeneratedTokens<'static>, Error> {
        let start = Instant::now();
        let position = prompt.len();
        let settings = options.settings(position);
        for session in [&mut self.tested, &mut self.reference] {
            options.upload_bias(session, &settings)?;
        }
        let tokens = self.tokens(prompt, &settings)?;
        Ok(GeneratedTokens::new(
            Some(Box::new(tokens)),
            position,
            prompt.len(),
            start,
            options,
        ))
    }

    /// Prefills a prompt in both sessions and decodes from there, token by token.
    ///
    /// # Errors
    /// As [`Session::stream`].
    pub fn tokens(mut self, prompt: &[u32], settings: &Settings) -> Result<VerifiedTokens, Error> {
        let Some((&last, before)) = prompt.split_last() else {
            return Err(Error::EmptyPrompt);
        };
        self.tested.append(before)?;
        // The prompt is computed once, so that both start decoding from the same bits.
        let snapshot = self.tested.snapshot()?;
        self.reference.restore(&snapshot)?;
        for session in [&mut self.tested, &mut self.reference] {
            session.prepare_step(last, settings)?;
        }
        let position = self.tested.position();
        let context = self.tested.context();
        Ok(VerifiedTokens {
            left: (settings.last_position as usize).min(context).saturating_sub(position),
            settings: Some(settings.clone()),
            token: last,
            position,
            decoded: 0,
            frozen: snapshot,
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
    frozen: Snapshot,
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
        for session in [&mut self.verified.tested, &mut self.verified.reference] {
            if self.verified.freeze == Some(Freeze::State) {
                let tokens = session.tokens().len();
                session.restore(&self.frozen)?;
                debug_assert_eq!(tokens, session.tokens().len());
            }
            let position_writes = session.step()?.position_writes(self.token, self.position);
            let mut writes = match (&first, self.verified.freeze) {
                (Some(_), _) => position_writes,
                (None, Some(Freeze::Input)) => position_writes[..1].to_vec(),
                (None, Some(Freeze::Position)) => position_writes[1..].to_vec(),
                (None, _) => vec![],
            };
            if let Some(settings) = &first {
                writes.extend(session.step()?.settings_writes(settings)?);
            }
            let last = self.position + self.decoded + 1;
            for run in session.play(&writes, last, 1)? {
                session.wait(&run)?;
            }
            let step = session.step()?;
            reported = step.reported(step.reports() - 1, 0)?;
        }
        let (one, other) = (self.verified.tested.step()?, self.verified.reference.step()?);
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
