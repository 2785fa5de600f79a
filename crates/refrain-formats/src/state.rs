//! State files: the state of a text (KV cache and recurrent states), saved between two runs of the program.
//!
//! Layout, little-endian:
//!
//! 1. magic `refrain\0`, u32 version, u32 element type of keys and values, u128 model, u128 rotation;
//! 2. u64 number of tokens, the tokens (u32);
//! 3. u32 number of planes; for each plane: u32 element type, u32 rank of a row, its extents (u64), u64 bytes, the
//!    bytes;
//! 4. the xxh3 128-bit hash of everything before it.
//!
//! Readers check the hash first, and never allocate more than the file's own size.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use xxhash_rust::xxh3::xxh3_128;

use crate::{AtomicFile, Encoding, Error};

/// Everything besides the tokens that a state depends on. States of two engines are interchangeable if their keys
/// are equal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotKey {
    /// Identifies the model by configuration and weights.
    pub model: u128,
    /// Identifies the rotary embedding, which depends on the context length for some models, and the block formats of
    /// keys and values.
    pub rotation: u128,
    /// Element type of keys: F32, F16, BF16, or U32 for blocks.
    pub cache: Encoding,
}

/// The state of a text at one position.
#[derive(Clone, PartialEq, Debug)]
pub struct State {
    /// What the state depends on.
    pub key: SnapshotKey,
    /// The tokens processed so far.
    pub tokens: Vec<u32>,
    /// Keys, values, convolution windows and recurrent states, in the model's order.
    pub planes: Vec<Plane>,
}

/// Rows of one state array.
#[derive(Clone, PartialEq, Debug)]
pub struct Plane {
    /// F32, F16, BF16 or U32.
    pub encoding: Encoding,
    /// Shape of a row.
    pub row: Vec<usize>,
    /// The rows, contiguous.
    pub bytes: Vec<u8>,
}

const MAGIC: &[u8; 8] = b"refrain\0";
const VERSION: u32 = 2;
const HASH_BYTES: usize = 16;

/// Element types of planes, indexed by their number in files.
const ENCODINGS: [Encoding; 4] = [Encoding::F32, Encoding::F16, Encoding::BF16, Encoding::U32];

impl State {
    /// Bytes of the planes.
    pub fn bytes(&self) -> u64 {
        self.planes.iter().map(|plane| plane.bytes.len() as u64).sum()
    }

    /// Writes the state to a file atomically. Replaces only other state files.
    ///
    /// # Errors
    /// If the file cannot be written, or is not a state file.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        State::check_overwrite(path)?;
        AtomicFile::write(path, &self.encode())
    }

    /// Checks that a state may be written to `path`: it must not be another kind of file. For a check before the
    /// work.
    ///
    /// # Errors
    /// If the file exists and is not a state file.
    pub fn check_overwrite(path: &Path) -> Result<(), Error> {
        let write = |source| Error::Write {
            path: path.to_owned(),
            source,
        };
        // Pipes and devices are written to directly.
        if !path.metadata().is_ok_and(|found| found.is_file() && found.len() > 0) {
            return Ok(());
        }
        let mut start = Vec::new();
        let file = File::open(path).map_err(write)?;
        file.take(MAGIC.len() as u64).read_to_end(&mut start).map_err(write)?;
        if start == MAGIC {
            Ok(())
        } else {
            Err(write(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "it already exists and is not a state file; choose another name",
            )))
        }
    }

    /// Reads a state file.
    ///
    /// # Errors
    /// If it cannot be read, is not a state file, or is corrupt.
    pub fn open(path: &Path) -> Result<State, Error> {
        let bytes = std::fs::read(path).map_err(|source| Error::Read {
            path: path.to_owned(),
            source,
        })?;
        State::decode(&bytes).map_err(|reason| Error::File {
            file: path.display().to_string(),
            reason: format!("state file {reason}"),
        })
    }

    /// Serialises the state.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bytes() as usize + 4096);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(code(self.key.cache).to_le_bytes());
        bytes.extend(self.key.model.to_le_bytes());
        bytes.extend(self.key.rotation.to_le_bytes());
        bytes.extend((self.tokens.len() as u64).to_le_bytes());
        bytes.extend(self.tokens.iter().flat_map(|token| token.to_le_bytes()));
        bytes.extend((self.planes.len() as u32).to_le_bytes());
        for plane in &self.planes {
            bytes.extend(code(plane.encoding).to_le_bytes());
            bytes.extend((plane.row.len() as u32).to_le_bytes());
            bytes.extend(plane.row.iter().flat_map(|&n| (n as u64).to_le_bytes()));
            bytes.extend((plane.bytes.len() as u64).to_le_bytes());
            bytes.extend(&plane.bytes);
        }
        State::seal(bytes)
    }

    /// Appends the checksum to a file's content.
    pub fn seal(mut content: Vec<u8>) -> Vec<u8> {
        let hash = xxh3_128(&content);
        content.extend(hash.to_le_bytes());
        content
    }

    /// Parses the bytes of a state file.
    ///
    /// # Errors
    /// Says what is wrong with the bytes.
    pub fn decode(bytes: &[u8]) -> Result<State, String> {
        if !bytes.starts_with(MAGIC) {
            return Err("is not a state file of refrain".to_owned());
        }
        let end = bytes.len().saturating_sub(HASH_BYTES);
        let (content, hash) = bytes.split_at(end);
        if xxh3_128(content).to_le_bytes() != hash {
            return Err("is corrupt: its checksum does not match".to_owned());
        }
        let mut reader = Reader(&content[MAGIC.len()..]);
        let version = reader.u32()?;
        if version != VERSION {
            return Err(format!(
                "has version {version}, but this program reads version {VERSION}; create it again from the same text"
            ));
        }
        let key = SnapshotKey {
            cache: reader.encoding()?,
            model: u128::from_le_bytes(reader.array()?),
            rotation: u128::from_le_bytes(reader.array()?),
        };
        let tokens = reader.u64()?;
        let tokens = reader.take(tokens.checked_mul(4).ok_or_else(truncated)?)?;
        let (tokens, _) = tokens.as_chunks::<4>();
        let planes = reader.u32()?;
        let planes = (0..planes).map(|_| reader.plane()).collect::<Result<_, _>>()?;
        if !reader.0.is_empty() {
            return Err("has trailing bytes".to_owned());
        }
        Ok(State {
            key,
            tokens: tokens.iter().map(|&token| u32::from_le_bytes(token)).collect(),
            planes,
        })
    }
}

fn code(encoding: Encoding) -> u32 {
    ENCODINGS.iter().position(|&e| e == encoding).unwrap_or_default() as u32
}

fn truncated() -> String {
    "is truncated".to_owned()
}

/// The unread rest of a file.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: u64) -> Result<&'a [u8], String> {
        let bytes = usize::try_from(bytes).map_err(|_| truncated())?;
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or_else(truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or_else(truncated)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u32(&mut self) -> Result<u32, String> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, String> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn encoding(&mut self) -> Result<Encoding, String> {
        let code = self.u32()?;
        let encoding = ENCODINGS.get(code as usize).copied();
        encoding.ok_or_else(|| format!("has the unknown element type {code}"))
    }

    fn plane(&mut self) -> Result<Plane, String> {
        let encoding = self.encoding()?;
        let rank = self.u32()?;
        let mut row = Vec::new();
        for _ in 0..rank {
            row.push(usize::try_from(self.u64()?).map_err(|_| truncated())?);
        }
        let bytes = self.u64()?;
        Ok(Plane {
            encoding,
            row,
            bytes: self.take(bytes)?.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        State {
            key: SnapshotKey {
                model: 7 << 90,
                rotation: 5 << 70,
                cache: Encoding::F16,
            },
            tokens: vec![1, 2, 70_000],
            planes: vec![
                Plane {
                    encoding: Encoding::F16,
                    row: vec![2, 4],
                    bytes: (0..48).collect(),
                },
                Plane {
                    encoding: Encoding::F32,
                    row: vec![],
                    bytes: vec![9; 4],
                },
            ],
        }
    }

    #[test]
    fn save_and_open_round_trip() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        state().save(&path).unwrap();
        assert_eq!(State::open(&path).unwrap(), state());
        let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "no other file remains");
    }

    #[test]
    fn save_replaces_only_state_files() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("thesis"), "kept").unwrap();
        let message = state().save(&at("thesis")).unwrap_err().to_string();
        assert!(message.contains("is not a state file"), "{message}");
        assert_eq!(std::fs::read(at("thesis")).unwrap(), b"kept");
        std::fs::write(at("state"), "").unwrap();
        for _ in 0..2 {
            state().save(&at("state")).unwrap();
        }
        assert_eq!(State::open(&at("state")).unwrap(), state());
    }

    #[test]
    fn rejects_changed_and_truncated_files() {
        let good = state().encode();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(State::decode(&bad).is_err(), "byte {at} changed");
            assert!(State::decode(&good[..at]).is_err(), "truncated at {at}");
        }
    }

    #[test]
    fn wrong_sizes_with_a_valid_checksum_are_bounded() {
        let good = state().encode();
        let content = good.len() - HASH_BYTES;
        for at in MAGIC.len()..content {
            let mut bad = good[..content].to_vec();
            bad[at] = bad[at].wrapping_add(0x7f);
            let bad = State::seal(bad);
            // Whatever the sizes say, reading ends and allocates no more than the file's size.
            if let Ok(read) = State::decode(&bad) {
                assert!(read.bytes() as usize <= bad.len());
                assert_eq!(
                    read.encode(),
                    bad,
                    "a state accepted with byte {at} changed must round-trip"
                );
            }
        }
    }
}
