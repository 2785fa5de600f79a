//! Snapshots of the state behind some tokens, to continue from, or to store in a file.

use std::path::Path;

use refrain::{Array, DType};
use refrain_formats::{Encoding, Plane, SnapshotKey, State};
use refrain_models::{CacheType, LayerState};
use xxhash_rust::xxh3::xxh3_128;

use crate::{Error, Model, Session};

/// What was computed of some tokens: keys and values, convolution windows, recurrent states. It lies in host memory. One
/// that an engine made can be restored into any engine with the same model, one of a session into any such session.
#[derive(Clone, PartialEq, Debug)]
pub struct Snapshot(pub(crate) State);

/// How a snapshot was restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Restored {
    /// What was computed is used.
    Resumed,
    /// The states belong to another context length on which rotary embeddings depend, to another encoding of keys and values,
    /// or do not fit. The tokens are computed again when they are needed.
    Recompute,
}

impl Snapshot {
    /// Returns its tokens.
    pub fn tokens(&self) -> &[u32] {
        &self.0.tokens
    }

    /// Returns the bytes of its states.
    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// Writes the snapshot to a state file, atomically.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        Ok(self.0.save(path)?)
    }

    /// Reads a snapshot from a state file.
    ///
    /// # Errors
    /// If the file cannot be read, is not a state file, or is damaged.
    pub fn open(path: &Path) -> Result<Snapshot, Error> {
        Ok(Snapshot(State::open(path)?))
    }
}

/// Returns everything beside the tokens on which states of `model` depend in a context of this length.
pub(crate) fn key(model: &Model, context: usize) -> SnapshotKey {
    let rotation = refrain_models::rotation(model.config(), context);
    let mut rotation = bytemuck::cast_slice::<f32, u8>(&rotation).to_vec();
    let types = model.cache_types();
    // Floats of one type are told apart by `cache`.
    if types.keys != types.values || types.keys.blocks().is_some() {
        rotation.extend(types.to_string().bytes());
    }
    // Pages hold the head's keys and values, too.
    if model.config().mtp_layers > 0 {
        rotation.extend(b"mtp");
    }
    SnapshotKey {
        model: model.identity(),
        rotation: xxh3_128(&rotation),
        cache: match types.keys {
            CacheType::Float(dtype) => encoding(dtype),
            CacheType::Blocks(_) => encoding(DType::U32),
        },
    }
}

/// Returns the file encoding of a state's element type.
pub(crate) fn encoding(dtype: DType) -> Encoding {
    match dtype {
        DType::F16 => Encoding::F16,
        DType::BF16 => Encoding::BF16,
        DType::U32 => Encoding::U32,
        _ => Encoding::F32,
    }
}

/// Returns the rows of a state array in a snapshot of `tokens` tokens. A session's pages are in order, so that
/// slots equal positions.
fn rows(state: &LayerState, array: &Array, tokens: usize) -> usize {
    match state {
        LayerState::Attention(_) => tokens,
        LayerState::Recurrent(_) => array.dim(0),
    }
}

/// Checks that a snapshot is one of this model.
///
/// # Errors
/// If it is not.
pub(crate) fn check_model(found: &SnapshotKey, wanted: &SnapshotKey) -> Result<(), Error> {
    if found.model == wanted.model {
        Ok(())
    } else {
        Err(Error::Snapshot(
            "it was made with another model, or other weights of this one".to_owned(),
        ))
    }
}

impl Session {
    /// Copies the session's state to host memory, once pending device work is done.
    ///
    /// # Errors
    /// If the session has several sequences, or the device fails.
    pub fn snapshot(&mut self) -> Result<Snapshot, Error> {
        self.one_sequence()?;
        self.recompute()?;
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
            key: self.snapshot_key(),
            tokens: self.tokens.clone(),
            planes,
        }))
    }

    /// Returns everything beside the tokens on which the session's states depend.
    fn snapshot_key(&self) -> SnapshotKey {
        key(self.model(), self.context())
    }

    /// Replaces the session's contents by those of `snapshot`: its states, or its tokens if the states do not fit
    /// this session.
    ///
    /// # Errors
    /// [`Error::Snapshot`] for a snapshot of another model, [`Error::ContextFull`] if it does not fit, or if the
    /// device fails. The session is then unchanged unless the device failed.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<Restored, Error> {
        self.one_sequence()?;
        let wrong = |what: &str| Err(Error::Snapshot(what.to_owned()));
        let key = self.snapshot_key();
        check_model(&snapshot.0.key, &key)?;
        self.model().check_ids(&snapshot.0.tokens)?;
        let tokens = snapshot.0.tokens.len();
        if tokens > self.context() {
            return Err(Error::ContextFull {
                tokens,
                context: self.context(),
            });
        }
        if snapshot.0.key != key {
            self.tokens = snapshot.0.tokens.clone();
            self.clear_history();
            self.stale = true;
            return Ok(Restored::Recompute);
        }
        let arrays: Vec<(&LayerState, &Array)> = self
            .states
            .iter()
            .flat_map(|state| state.arrays().map(|array| (state, array)))
            .collect();
        let fits = arrays.len() == snapshot.0.planes.len()
            && arrays.iter().zip(&snapshot.0.planes).all(|((state, array), plane)| {
                // Compared with the session's sizes, since a file may claim any.
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
        self.clear_history();
        Ok(Restored::Resumed)
    }

    /// Returns another session with the same contents, context and decoding mode, but without a logit bias.
    ///
    /// # Errors
    /// As [`Session::snapshot`], or if there is too little memory.
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
            n => Err(Error::Snapshot(format!("a session of {n} sequences has no snapshot"))),
        }
    }
}

/// Hashes parts to a fingerprint.
pub(crate) fn identity(parts: impl Iterator<Item = Vec<u8>>) -> u128 {
    let mut all = Vec::new();
    for part in parts {
        all.extend(xxh3_128(&part).to_le_bytes());
    }
    xxh3_128(&all)
}
