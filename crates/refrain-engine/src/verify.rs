//! Two executors side by side: the same program run by the device's usual one and by another, compared step by step.

use std::time::Instant;

use refrain::plan::Plan;
use refrain::{Executor, LowerOptions};
use refrain_lm::sample::Settings;

use crate::generate::Reports;
use crate::{Error, GenerateOptions, GeneratedTokens, Mode, Model, Session, Snapshot};

/// What is held still from run to run, to find what a replay reads stale: with it held still, what
/// follows from it must not change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Freeze {
    /// The position of the current token.
    Position,
    /// The current token.
    Input,
    /// Keys, values and recurrent states.
    State,
}

/// A sequence decoded by the device's usual executor and, in memory of its own, by its last, every result of every
/// step kept and compared bit for bit after each token.
pub struct Verified {
    usual: Session,
    other: Session,
    freeze: Option<Freeze>,
}

impl Verified {
    /// Two sessions with room for `context` tokens. `fault` names a step of the plan (see
    /// [`find_region`]) after which the usual executor computes on with a wrong number.
    ///
    /// # Errors
    /// As [`Session::new`]; no such step.
    pub fn new(model: &Model, context: usize, fault: Option<&str>, freeze: Option<Freeze>) -> Result<Verified, Error> {
        let executors = model.device().executors();
        let [usual, other] = [executors[0], executors[executors.len() - 1]];
        let session = |executor: &'static dyn Executor| {
            let mut session = Session::new(model, context)?;
            session.set_mode(Mode::By(executor), None);
            session.set_lowering(LowerOptions {
                keep: true,
                ..LowerOptions::default()
            });
            Ok::<_, Error>(session)
        };
        let mut session_of_usual = session(usual)?;
        if let Some(name) = fault {
            let step = session_of_usual.step()?;
            let number = find_region(step.function().plan(), name)?;
            step.inject_fault(usual, number)?;
        }
        Ok(Verified {
            usual: session_of_usual,
            other: session(other)?,
            freeze,
        })
    }

    /// As [`Session::generate`], from an empty session; [`Error::Differs`] comes instead of the first token at which
    /// a step differs.
    ///
    /// # Errors
    /// As there.
    pub fn generate(mut self, prompt: &[u32], options: &GenerateOptions) -> Result<GeneratedTokens<'static>, Error> {
        let start = Instant::now();
        let position = prompt.len();
        let settings = options.settings(position);
        for session in [&mut self.usual, &mut self.other] {
            options.bias(session, &settings)?;
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

    /// Gives a prompt to both and decodes from there, token by token.
    ///
    /// # Errors
    /// As [`Session::stream`].
    pub fn tokens(mut self, prompt: &[u32], settings: &Settings) -> Result<VerifiedTokens, Error> {
        let Some((&last, before)) = prompt.split_last() else {
            return Err(Error::EmptyPrompt);
        };
        self.usual.feed(before)?;
        // Prompts are computed once, so that decoding begins from the same bits.
        let snapshot = self.usual.snapshot()?;
        self.other.restore(&snapshot)?;
        for session in [&mut self.usual, &mut self.other] {
            session.prepare_step(last, settings)?;
        }
        let position = self.usual.position();
        let context = self.usual.context();
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

/// Tokens that two executors agreed on.
pub struct VerifiedTokens {
    verified: Verified,
    left: usize,
    settings: Option<Settings>,
    /// The current token and its position, at the beginning.
    token: u32,
    position: usize,
    decoded: usize,
    frozen: Snapshot,
}

impl Reports for VerifiedTokens {
    fn next(&mut self) -> Result<Option<u32>, Error> {
        self.next_token()
    }
}

impl VerifiedTokens {
    /// The next token, if there is room for one.
    ///
    /// # Errors
    /// [`Error::Differs`]; a failing device.
    pub fn next_token(&mut self) -> Result<Option<u32>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let first = self.settings.take();
        let mut reported = 0;
        for session in [&mut self.verified.usual, &mut self.verified.other] {
            if self.verified.freeze == Some(Freeze::State) {
                let tokens = session.tokens().len();
                session.restore(&self.frozen)?;
                debug_assert_eq!(tokens, session.tokens().len());
            }
            let place = session.step()?.place(self.token, self.position);
            let mut writes = match (&first, self.verified.freeze) {
                (Some(_), _) => place,
                (None, Some(Freeze::Input)) => place[..1].to_vec(),
                (None, Some(Freeze::Position)) => place[1..].to_vec(),
                (None, _) => vec![],
            };
            if let Some(settings) = &first {
                writes.extend(session.step()?.set(settings)?);
            }
            let last = self.position + self.decoded + 1;
            for run in session.play(&writes, last, 1)? {
                session.wait(&run)?;
            }
            let step = session.step()?;
            reported = step.reported(step.runs() - 1, 0)?;
        }
        let (one, other) = (self.verified.usual.step()?, self.verified.other.step()?);
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

/// The number of a step of a plan, given as a number, or as the name of what it computes with, behind a
/// colon, which of those it is: `rms_norm:3` is the fourth.
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
