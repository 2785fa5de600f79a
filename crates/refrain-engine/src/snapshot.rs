//! Snapshots: all that a session remembers, to go back to, to fork from, or to keep in a file.

mod file;

use refrain::{Array, DType};
use refrain_models::LayerState;
use xxhash_rust::xxh3::xxh3_128;

use crate::{Error, Session};

/// What a session held at one position: keys and values, convolution windows, recurrent states. It lies
/// in host memory, and can be brought back into any session of the same model.
#[derive(Clone, PartialEq, Debug)]
pub struct Snapshot {
    /// Of the model, by [`crate::Model::identity`].
    identity: u128,
    /// The tokens taken in.
    tokens: Vec<u32>,
    planes: Vec<Plane>,
}

/// A part of one state array: its rows up to the position, or all of a recurrent state.
#[derive(Clone, PartialEq, Debug)]
struct Plane {
    dtype: DType,
    /// Extents of a row.
    row: Vec<usize>,
    bytes: Vec<u8>,
}

impl Snapshot {
    /// The tokens that it holds.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Bytes of the states.
    pub fn bytes(&self) -> u64 {
        self.planes.iter().map(|plane| plane.bytes.len() as u64).sum()
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

impl<'m> Session<'m> {
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
                    dtype: array.dtype(),
                    row,
                    bytes,
                });
            }
        }
        Ok(Snapshot {
            identity: self.model().identity(),
            tokens: self.tokens.clone(),
            planes,
        })
    }

    /// Makes the session remember what `snapshot` holds, and nothing else.
    ///
    /// # Errors
    /// [`Error::Snapshot`] for a snapshot of another model or of another precision of keys and values;
    /// [`Error::ContextFull`] when it does not fit; a failing device. The session is then unchanged unless
    /// the device failed.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        self.one_sequence()?;
        let wrong = |what: &str| Err(Error::Snapshot(what.to_owned()));
        if snapshot.identity != self.model().identity() {
            return wrong("it was made with another model, or other weights of this one");
        }
        let tokens = snapshot.tokens.len();
        if tokens > self.context() {
            return Err(Error::ContextFull {
                tokens,
                context: self.context(),
            });
        }
        let arrays: Vec<(&LayerState, &Array)> = self
            .states
            .iter()
            .flat_map(|state| state.arrays().map(|array| (state, array)))
            .collect();
        let fits = arrays.len() == snapshot.planes.len()
            && arrays.iter().zip(&snapshot.planes).all(|((state, array), plane)| {
                let elements = rows(state, array, tokens) * plane.row.iter().product::<usize>();
                array.dtype() == plane.dtype
                    && array.shape()[1..] == plane.row
                    && elements * plane.dtype.size() == plane.bytes.len()
            });
        if !fits {
            return wrong("its states have other sizes or another precision than this session's (CPU and GPU differ)");
        }
        for ((_, array), plane) in arrays.iter().zip(&snapshot.planes) {
            array.write_state(0, &plane.bytes)?;
        }
        self.tokens = snapshot.tokens.clone();
        self.forget_plans_of_the_past();
        Ok(())
    }

    /// Another session that remembers the same, with as much context.
    ///
    /// # Errors
    /// As [`Session::snapshot`], and too little memory.
    pub fn fork(&mut self) -> Result<Session<'m>, Error> {
        let snapshot = self.snapshot()?;
        let mut fork = Session::new(self.model(), self.context())?;
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
