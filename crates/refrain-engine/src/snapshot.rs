//! Snapshots: all that a session remembers, to go back to, to fork from, or to keep in a file.

use std::path::Path;

use refrain::{Array, DType};
use refrain_formats::{Basis, Encoding, Plane, State};
use refrain_models::LayerState;
use xxhash_rust::xxh3::xxh3_128;

use crate::session::cache_dtype;
use crate::{Error, Session};

/// What a session held at one position: keys and values, convolution windows, recurrent states. It lies
/// in host memory, and can be brought back into any session of the same model.
#[derive(Clone, PartialEq, Debug)]
pub struct Snapshot(State);

/// What became of a snapshot in the session that it was brought back into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Restored {
    /// The session goes on from its states.
    AsItWas,
    /// Its states hold for another session of the model: one whose context is of another length where rotary
    /// embeddings depend on that, or whose keys and values are rounded otherwise. The session takes the tokens in
    /// again before whatever it does next.
    ToBeComputedAgain,
}

impl Snapshot {
    /// The tokens that it holds.
    pub fn tokens(&self) -> &[u32] {
        &self.0.tokens
    }

    /// Bytes of the states.
    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// Writes the snapshot to a state file, which is there whole or not at all.
    ///
    /// # Errors
    /// Naming the file if it cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        Ok(self.0.save(path)?)
    }

    /// Reads a snapshot from a state file.
    ///
    /// # Errors
    /// Naming the file if it cannot be read, is no state file, or is damaged.
    pub fn open(path: &Path) -> Result<Snapshot, Error> {
        Ok(Snapshot(State::open(path)?))
    }
}

/// How files name the element types of states.
fn encoding(dtype: DType) -> Encoding {
    match dtype {
        DType::F16 => Encoding::F16,
        DType::BF16 => Encoding::BF16,
        _ => Encoding::F32,
    }
}

/// Rows of a state array that a snapshot of `tokens` tokens holds. A session's sequence has its pages in
/// order, so that its slots are its positions.
fn rows(state: &LayerState, array: &Array, tokens: usize) -> usize {
    match state {
        LayerState::Attention(_) => tokens,
        LayerState::Recurrent(_) => array.dim(0),
    }
}

impl Session {
    /// All that the session remembers. Waits for what the device still does to it.
    ///
    /// # Errors
    /// A session of several sequences, a failing device.
    pub fn snapshot(&mut self) -> Result<Snapshot, Error> {
        self.one_sequence()?;
        self.take_in_again()?;
        let mut planes = Vec::new();
        for state in &self.states {
            for array in state.arrays() {
                let rows = rows(state, array, self.tokens.len());
                let row = array.shape()[1..].to_vec();
                let mut bytes = vec![0; rows * row.iter().product::<usize>() * array.dtype().size()];
                array.read_state(0, &mut bytes)?;
                planes.push(Plane {
                    encoding: encoding(array.dtype()),
                    row,
                    bytes,
                });
            }
        }
        Ok(Snapshot(State {
            basis: self.basis(),
            tokens: self.tokens.clone(),
            planes,
        }))
    }

    /// All that the numbers of the session's states depend on beside its tokens.
    fn basis(&self) -> Basis {
        let config = self.model().config();
        let rotation = refrain_models::rotation(config, self.context());
        Basis {
            model: self.model().identity(),
            rotation: xxh3_128(bytemuck::cast_slice(&rotation)),
            cache: encoding(cache_dtype(self.model().device())),
        }
    }

    /// Makes the session remember what `snapshot` holds, and nothing else: its states, or, where they hold for
    /// another session, its tokens.
    ///
    /// # Errors
    /// [`Error::Snapshot`] for a snapshot of another model; [`Error::ContextFull`] when it does not fit; a failing
    /// device. The session is then unchanged unless the device failed.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<Restored, Error> {
        self.one_sequence()?;
        let wrong = |what: &str| Err(Error::Snapshot(what.to_owned()));
        let basis = self.basis();
        if snapshot.0.basis.model != basis.model {
            return wrong("it was made with another model, or other weights of this one");
        }
        self.model().check_ids(&snapshot.0.tokens)?;
        let tokens = snapshot.0.tokens.len();
        if tokens > self.context() {
            return Err(Error::ContextFull {
                tokens,
                context: self.context(),
            });
        }
        if snapshot.0.basis != basis {
            self.tokens = snapshot.0.tokens.clone();
            self.forget_plans_of_the_past();
            self.stale = true;
            return Ok(Restored::ToBeComputedAgain);
        }
        let arrays: Vec<(&LayerState, &Array)> = self
            .states
            .iter()
            .flat_map(|state| state.arrays().map(|array| (state, array)))
            .collect();
        let fits = arrays.len() == snapshot.0.planes.len()
            && arrays.iter().zip(&snapshot.0.planes).all(|((state, array), plane)| {
                // Of the session's sizes: a file may claim any.
                let elements = rows(state, array, tokens) * array.shape()[1..].iter().product::<usize>();
                encoding(array.dtype()) == plane.encoding
                    && array.shape()[1..] == plane.row
                    && elements * array.dtype().size() == plane.bytes.len()
            });
        if !fits {
            return wrong("its states have other sizes than this session's");
        }
        for ((_, array), plane) in arrays.iter().zip(&snapshot.0.planes) {
            array.write_state(0, &plane.bytes)?;
        }
        self.tokens = snapshot.0.tokens.clone();
        self.forget_plans_of_the_past();
        Ok(Restored::AsItWas)
    }

    /// Another session that remembers the same, with as much context, which decodes in the same way, but without
    /// a bias.
    ///
    /// # Errors
    /// As [`Session::snapshot`], and too little memory.
    pub fn fork(&mut self) -> Result<Session, Error> {
        let snapshot = self.snapshot()?;
        let mut fork = Session::new(self.model(), self.context())?;
        fork.decode_like(self);
        fork.restore(&snapshot)?;
        Ok(fork)
    }

    fn one_sequence(&self) -> Result<(), Error> {
        match self.sequences() {
            1 => Ok(()),
            n => Err(Error::Snapshot(format!("a session of {n} sequences has no snapshots"))),
        }
    }
}

/// A number that tells models apart: of names, shapes, formats and samples of the weights.
pub(crate) fn identity(parts: impl Iterator<Item = Vec<u8>>) -> u128 {
    let mut all = Vec::new();
    for part in parts {
        all.extend(xxh3_128(&part).to_le_bytes());
    }
    xxh3_128(&all)
}
