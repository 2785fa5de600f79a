//! What the engine's thread is asked for: requests, and calls between two steps of the batch.

use std::sync::mpsc;

use refrain_formats::State;

use super::Engine;
use super::batcher::Batcher;
use super::request::{TokenConstraint, Waiting};
use super::runner::DeviceRunner;
use crate::Error;
use crate::snapshot::{Restored, Snapshot, check_model, key};

/// Work on the batch between two steps.
type Call = Box<dyn FnOnce(&mut Batcher<DeviceRunner>) + Send>;

/// What the engine's thread is asked for.
pub(super) enum Command {
    /// To answer a request.
    Request(Box<Waiting>),
    /// To do work.
    Call(Call),
}

impl Command {
    /// Returns the request. A call is dropped, so that its caller learns that it was not made.
    pub fn into_request(self) -> Option<Waiting> {
        match self {
            Command::Request(request) => Some(*request),
            Command::Call(_) => None,
        }
    }
}

/// When the tokens of a request are restricted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Restriction {
    /// Never: it has no constraint.
    Never,
    /// Later, perhaps: its constraint allows all tokens at first.
    Later,
    /// From its first token on.
    Always,
}

impl Restriction {
    /// Returns when a constraint restricts the tokens.
    pub fn of(constraint: Option<&dyn TokenConstraint>) -> Restriction {
        match constraint.map(TokenConstraint::restricts) {
            None => Restriction::Never,
            Some(false) => Restriction::Later,
            Some(true) => Restriction::Always,
        }
    }
}

/// Memory of an engine in bytes, beside the weights. Sampling state and copies of recurrent states are not counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EngineMemory {
    /// Bytes of the KV cache.
    pub kv_bytes: u64,
    /// Bytes of intermediate results.
    pub scratch_bytes: u64,
    /// The chunk size of prompts in tokens, if memory was too short for the device's usual one.
    pub shorter_chunk: Option<usize>,
}

/// What a run of the decode step in use costs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StepCost {
    /// Bytes of weights that it reads.
    pub weight_bytes: u64,
    /// Bytes of its intermediate results, arguments and outputs.
    pub working_bytes: u64,
    /// Mean device time in milliseconds since it was asked for last, on devices opened with timestamps.
    pub device_ms: Option<f64>,
}

impl Engine {
    /// Compiles what a request needs of whose tokens `cached` are computed and `new` are not, so that it waits for nothing
    /// else. Not to be called by a listener.
    ///
    /// # Errors
    /// If there is too little memory, or the device fails.
    pub fn prepare(&self, (cached, new): (usize, usize), restriction: Restriction) -> Result<(), Error> {
        self.call(move |batcher| batcher.prepare_request((cached, new), restriction))
    }

    /// Returns its memory. Not to be called by a listener.
    ///
    /// # Errors
    /// If the device has failed.
    pub fn memory(&self) -> Result<EngineMemory, Error> {
        self.call(|batcher| Ok(batcher.memory()))
    }

    /// Returns what a run of the decode step in use costs; `None` if none is in use. Not to be called by a listener.
    ///
    /// # Errors
    /// If the device has failed.
    pub fn step_cost(&self) -> Result<Option<StepCost>, Error> {
        self.call(|batcher| Ok(batcher.step_cost()))
    }

    /// Copies what is cached of `tokens` to host memory. Not to be called by a listener.
    ///
    /// # Errors
    /// If the device fails.
    pub fn snapshot(&self, tokens: &[u32]) -> Result<Snapshot, Error> {
        let (context, tokens) = (self.options().context, tokens.to_vec());
        self.call(move |batcher| {
            Ok(Snapshot(State {
                key: key(batcher.model(), context),
                planes: batcher.read_prefix(&tokens)?,
                tokens,
            }))
        })
    }

    /// Caches what a snapshot holds. A request that begins with its tokens does not compute them again, as far as they were
    /// cached when it was made. Not to be called by a listener.
    ///
    /// # Errors
    /// [`Error::Snapshot`] for a snapshot of another model, [`Error::ContextFull`] if it does not fit, or if the
    /// device fails.
    pub fn restore(&self, snapshot: Snapshot) -> Result<Restored, Error> {
        let Snapshot(state) = snapshot;
        let (tokens, context) = (state.tokens.len(), self.options().context);
        if tokens > context {
            return Err(Error::ContextFull { tokens, context });
        }
        self.call(move |batcher| {
            let key = key(batcher.model(), context);
            check_model(&state.key, &key)?;
            batcher.model().check_ids(&state.tokens)?;
            let is_restored = state.key == key && batcher.write_prefix(&state.tokens, &state.planes)?;
            Ok(if is_restored {
                Restored::Resumed
            } else {
                Restored::Recompute
            })
        })
    }

    /// Has work done by the engine's thread, between two steps of the batch, and waits for it.
    ///
    /// # Errors
    /// Those of the work, or if the engine has failed.
    fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Batcher<DeviceRunner>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (reply, replies) = mpsc::channel();
        let call = move |batcher: &mut Batcher<DeviceRunner>| {
            // Nobody waits any more if the caller is gone.
            let _ = reply.send(work(batcher));
        };
        self.command(Command::Call(Box::new(call)))?;
        replies.recv().map_err(|_| Error::EngineFailed)?
    }

    /// Sends a command to the engine's thread.
    ///
    /// # Errors
    /// If the engine has failed.
    pub(super) fn command(&self, command: Command) -> Result<(), Error> {
        let commands = self.commands.as_ref().expect("until it is dropped");
        commands.send(command).map_err(|_| Error::EngineFailed)
    }
}
