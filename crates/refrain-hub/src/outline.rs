//! What a model consists of, without its weights: enough to say whether it fits and how fast it can be.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::http::{Request, broken_off};
use crate::pull::{Hub, Plan, PlannedFile};
use crate::retry::{Patience, Trouble};
use crate::{Error, Watcher};

/// The header of a GGUF file holds the vocabulary too: a few MiB. It does not tell its length.
const GGUF_BYTES: u64 = 32 << 20;
/// The longest header of a safetensors file, by the format.
const SAFETENSORS_BYTES: u64 = 100_000_000;

/// A checkpoint of which only headers and configuration are there: its files have their names and sizes,
/// but what was not fetched reads as zeros, and takes no room on file systems that know holes. It goes
/// away with this value.
#[derive(Debug)]
pub struct Outline {
    /// What to open as a checkpoint.
    pub path: PathBuf,
    _folder: TempDir,
}

impl Hub {
    /// Fetches the headers and the configuration of a model; nothing enters the cache.
    ///
    /// # Errors
    /// If the hub refuses or cannot be reached, or the disk is full or fails.
    pub fn outline(&self, plan: &Plan, watcher: &dyn Watcher) -> Result<Outline, Error> {
        let folder = tempfile::tempdir().map_err(Error::io("create", &std::env::temp_dir()))?;
        for file in &plan.files {
            if let Some(part) = Part::of(&file.path) {
                let bytes = self.beginning(plan, file, part, watcher)?;
                let path = folder.path().join(&file.path);
                write(&path, &bytes, file.size()).map_err(Error::io("write", &path))?;
            }
        }
        Ok(Outline {
            path: folder.path().join(plan.selection.entry()),
            _folder: folder,
        })
    }

    fn beginning(&self, plan: &Plan, file: &PlannedFile, part: Part, watcher: &dyn Watcher) -> Result<Vec<u8>, Error> {
        let mut patience = Patience::new(&file.path, self.first_wait(), watcher);
        let request = Request {
            url: file.url(),
            what: &file.path,
            repo: &plan.name.repo,
            from: 0,
        };
        loop {
            let answer = self.client().get(&request);
            let read = answer.and_then(|answer| part.read(answer.body));
            match read {
                Ok(bytes) => return Ok(bytes),
                Err(trouble) => patience.after(trouble)?,
            }
        }
    }
}

/// Which part of a file is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    All,
    /// The length in the first 8 bytes, and so many after it.
    SafetensorsHeader,
    First(u64),
}

impl Part {
    fn of(path: &str) -> Option<Self> {
        match path.rsplit('/').next()? {
            "tokenizer.json" => None,
            name if name.ends_with(".json") => Some(Self::All),
            name if name.ends_with(".safetensors") => Some(Self::SafetensorsHeader),
            name if name.ends_with(".gguf") => Some(Self::First(GGUF_BYTES)),
            _ => None,
        }
    }

    fn read(self, mut body: impl Read) -> Result<Vec<u8>, Trouble> {
        let mut bytes = Vec::new();
        let mut take = |bytes: &mut Vec<u8>, count: u64| {
            let read = (&mut body).take(count).read_to_end(bytes);
            read.map_err(|error| broken_off(&error))
        };
        match self {
            Self::All => take(&mut bytes, u64::MAX)?,
            Self::First(count) => take(&mut bytes, count)?,
            Self::SafetensorsHeader => {
                take(&mut bytes, 8)?;
                let length = bytes.as_slice().try_into().map_or(0, u64::from_le_bytes);
                take(&mut bytes, length.min(SAFETENSORS_BYTES))?
            }
        };
        Ok(bytes)
    }
}

/// A file that begins with some bytes and has a size.
fn write(path: &Path, bytes: &[u8], size: u64) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.set_len(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_describes_a_model_is_fetched() {
        assert_eq!(Part::of("config.json"), Some(Part::All));
        assert_eq!(Part::of("tokenizer.json"), None);
        assert_eq!(Part::of("merges.txt"), None);
        assert_eq!(Part::of("sub/model.gguf"), Some(Part::First(GGUF_BYTES)));
        let file = [&5u64.to_le_bytes()[..], b"{    }, and weights"].concat();
        assert_eq!(Part::SafetensorsHeader.read(&file[..]).unwrap(), file[..13]);
        assert_eq!(Part::First(3).read(&file[..]).unwrap(), file[..3]);
        assert_eq!(Part::All.read(&file[..]).unwrap(), file);
        assert_eq!(Part::SafetensorsHeader.read(&[1u8][..]).unwrap(), [1]);
    }
}
