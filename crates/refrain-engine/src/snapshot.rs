//! Snapshots of the state behind some tokens, to continue from, or to store in a file.

use std::path::Path;

use refrain::DType;
use refrain_formats::{Encoding, SnapshotKey, State};
use refrain_models::CacheType;
use xxhash_rust::xxh3::xxh3_128;

use crate::{Error, Model};

/// What was computed of some tokens: keys and values, convolution windows, recurrent states. It lies in host memory, and
/// can be restored into any engine with the same model.
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

/// Hashes parts to a fingerprint.
pub(crate) fn identity(parts: impl Iterator<Item = Vec<u8>>) -> u128 {
    let mut all = Vec::new();
    for part in parts {
        all.extend(xxh3_128(&part).to_le_bytes());
    }
    xxh3_128(&all)
}
