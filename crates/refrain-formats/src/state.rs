//! State files: what a session remembers, between two runs of the program.
//!
//! Little-endian: magic `refrain\0`, u32 version, u32 element type of keys and values, u128 model, u128 rotation,
//! u64 number of tokens and the tokens (u32), u32 number of planes; of each plane u32 element type, u32 rank of a row, its extents
//! (u64), u64 bytes, and the bytes; at the end the xxh3 128-bit hash of all before it. Whoever reads it
//! checks the hash first and believes no size beyond the file's own.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use xxhash_rust::xxh3::xxh3_128;

use crate::{Encoding, Error, WholeFile};

/// All that the numbers of a state depend on beside its tokens: states of two sessions are exchangeable where this
/// is the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Basis {
    /// A number that tells models apart, by configuration and weights.
    pub model: u128,
    /// A number that tells rotary embeddings apart: those of some models differ with the length of the context.
    pub rotation: u128,
    /// What keys and values are rounded to: F32, F16 or BF16.
    pub cache: Encoding,
}

/// A session's state at one position.
#[derive(Clone, PartialEq, Debug)]
pub struct State {
    /// What the numbers depend on.
    pub basis: Basis,
    /// The tokens taken in.
    pub tokens: Vec<u32>,
    /// Keys, values, convolution windows and recurrent states, in the model's order.
    pub planes: Vec<Plane>,
}

/// A part of one state array: rows of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Plane {
    /// F32, F16 or BF16.
    pub encoding: Encoding,
    /// Extents of a row.
    pub row: Vec<usize>,
    /// The rows, gapless.
    pub bytes: Vec<u8>,
}

const MAGIC: &[u8; 8] = b"refrain\0";
const VERSION: u32 = 2;
const HASH: usize = 16;

/// The element types of planes, by their number in files.
const ENCODINGS: [Encoding; 3] = [Encoding::F32, Encoding::F16, Encoding::BF16];

impl State {
    /// Bytes of the planes.
    pub fn bytes(&self) -> u64 {
        self.planes.iter().map(|plane| plane.bytes.len() as u64).sum()
    }

    /// Writes a file, which is there whole or not at all. Of files, only another state is replaced.
    ///
    /// # Errors
    /// Naming the file if it cannot be written, or is another's.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        State::check_place(path)?;
        WholeFile::write(path, &self.encode())
    }

    /// Fails where a state must not be written: in the place of a file that is none. For before the work.
    ///
    /// # Errors
    /// Naming the file.
    pub fn check_place(path: &Path) -> Result<(), Error> {
        let write = |source| Error::Write {
            path: path.to_owned(),
            source,
        };
        // Pipes and devices are written to as they are.
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
                "it exists already and is no state file; choose another name",
            )))
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// Naming the file if it cannot be read, is no state file, or is damaged.
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

    /// The file's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bytes() as usize + 4096);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(code(self.basis.cache).to_le_bytes());
        bytes.extend(self.basis.model.to_le_bytes());
        bytes.extend(self.basis.rotation.to_le_bytes());
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

    /// A file's content with the checksum that it ends with.
    pub fn seal(mut content: Vec<u8>) -> Vec<u8> {
        let hash = xxh3_128(&content);
        content.extend(hash.to_le_bytes());
        content
    }

    /// The state that a file's bytes hold.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn decode(bytes: &[u8]) -> Result<State, String> {
        if !bytes.starts_with(MAGIC) {
            return Err("is no state file of refrain".to_owned());
        }
        let end = bytes.len().saturating_sub(HASH);
        let (content, hash) = bytes.split_at(end);
        if xxh3_128(content).to_le_bytes() != hash {
            return Err("is damaged: its checksum is not that of its content".to_owned());
        }
        let mut reader = StateReader(&content[MAGIC.len()..]);
        let version = reader.u32()?;
        if version != VERSION {
            return Err(format!(
                "has version {version}; this program reads version {VERSION}, and makes one anew from the same text"
            ));
        }
        let basis = Basis {
            cache: reader.encoding()?,
            model: u128::from_le_bytes(reader.array()?),
            rotation: u128::from_le_bytes(reader.array()?),
        };
        let tokens = reader.u64()?;
        let tokens = reader.take(tokens.checked_mul(4).ok_or_else(short)?)?;
        let (tokens, _) = tokens.as_chunks::<4>();
        let planes = reader.u32()?;
        let planes = (0..planes).map(|_| reader.plane()).collect::<Result<_, _>>()?;
        if !reader.0.is_empty() {
            return Err("goes on behind its end".to_owned());
        }
        Ok(State {
            basis,
            tokens: tokens.iter().map(|&token| u32::from_le_bytes(token)).collect(),
            planes,
        })
    }
}

fn code(encoding: Encoding) -> u32 {
    ENCODINGS.iter().position(|&e| e == encoding).unwrap_or_default() as u32
}

fn short() -> String {
    "ends too early".to_owned()
}

/// What is left of a file.
struct StateReader<'a>(&'a [u8]);

impl<'a> StateReader<'a> {
    fn take(&mut self, bytes: u64) -> Result<&'a [u8], String> {
        let bytes = usize::try_from(bytes).map_err(|_| short())?;
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or_else(short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or_else(short)?;
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
        encoding.ok_or_else(|| format!("names element type {code}, which there is not"))
    }

    fn plane(&mut self) -> Result<Plane, String> {
        let encoding = self.encoding()?;
        let rank = self.u32()?;
        let mut row = Vec::new();
        for _ in 0..rank {
            row.push(usize::try_from(self.u64()?).map_err(|_| short())?);
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
            basis: Basis {
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
    fn a_state_comes_back_from_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        state().save(&path).unwrap();
        assert_eq!(State::open(&path).unwrap(), state());
        let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "nothing else is left behind");
    }

    #[test]
    fn only_states_are_replaced_by_states() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("thesis"), "kept").unwrap();
        let message = state().save(&at("thesis")).unwrap_err().to_string();
        assert!(message.contains("is no state file"), "{message}");
        assert_eq!(std::fs::read(at("thesis")).unwrap(), b"kept");
        std::fs::write(at("state"), "").unwrap();
        for _ in 0..2 {
            state().save(&at("state")).unwrap();
        }
        assert_eq!(State::open(&at("state")).unwrap(), state());
    }

    #[test]
    fn a_file_with_any_byte_changed_or_missing_is_refused() {
        let good = state().encode();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(State::decode(&bad).is_err(), "byte {at} was changed");
            assert!(State::decode(&good[..at]).is_err(), "the file ends at {at}");
        }
    }

    #[test]
    fn sizes_that_lie_under_a_right_checksum_are_refused() {
        let good = state().encode();
        let content = good.len() - HASH;
        for at in MAGIC.len()..content {
            let mut bad = good[..content].to_vec();
            bad[at] = bad[at].wrapping_add(0x7f);
            let bad = State::seal(bad);
            // Whatever it says now, reading ends, and takes no more memory than there is file.
            if let Ok(read) = State::decode(&bad) {
                assert!(read.bytes() as usize <= bad.len());
                assert_eq!(read.encode(), bad, "what is accepted at byte {at} is written the same");
            }
        }
    }
}
