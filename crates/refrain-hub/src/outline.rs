//! What a model consists of, without its weights: enough to say whether it fits and how fast it can be.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::http::{Request, broken_off};
use crate::pull::{DownloadPlan, Hub, PlannedFile};
use crate::retry::{Patience, Trouble};
use crate::{Error, Watcher};

/// What is asked for at first of a GGUF file, whose header tells its length only by its end. Twice as much as
/// is there is asked for until it is whole: the vocabulary, which the header holds, takes up to a dozen MiB.
const GGUF_FIRST_BYTES: u64 = 1 << 20;
/// Longer headers of GGUF files are damage.
const GGUF_MAX_BYTES: u64 = 64 << 20;
/// What is asked for at first of a safetensors file: as much as most headers take.
const SAFETENSORS_FIRST_BYTES: u64 = 64 << 10;
/// The longest header of a safetensors file, by the format.
const SAFETENSORS_MAX_BYTES: u64 = 100_000_000;

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
    /// Fetches the headers and the configuration of a model; nothing enters the cache. `is_whole_gguf` tells
    /// whether the beginning of a GGUF file holds its whole header.
    ///
    /// # Errors
    /// If the hub refuses or cannot be reached, or the disk is full or fails.
    pub fn outline(
        &self,
        plan: &DownloadPlan,
        is_whole_gguf: &dyn Fn(&[u8]) -> bool,
        watcher: &dyn Watcher,
    ) -> Result<Outline, Error> {
        let folder = tempfile::tempdir().map_err(Error::io("create", &std::env::temp_dir()))?;
        for file in &plan.files {
            if let Some(part) = FilePart::of(&file.path) {
                let wanted = |here: &[u8]| part.wanted(here, is_whole_gguf);
                let bytes = self.beginning(plan, file, &wanted, watcher)?;
                let path = folder.path().join(&file.path);
                write(&path, &bytes, file.size()).map_err(Error::io("write", &path))?;
            }
        }
        Ok(Outline {
            path: folder.path().join(plan.selection.entry()),
            _folder: folder,
        })
    }

    /// As much of a file's beginning as `wanted` asks for, given what is here.
    fn beginning(
        &self,
        plan: &DownloadPlan,
        file: &PlannedFile,
        wanted: &dyn Fn(&[u8]) -> Option<u64>,
        watcher: &dyn Watcher,
    ) -> Result<Vec<u8>, Error> {
        let mut patience = Patience::new(&file.path, self.first_wait(), watcher);
        let mut bytes = Vec::new();
        while let Some(wanted) = wanted(&bytes).map(|wanted| wanted.min(file.size())) {
            if wanted <= bytes.len() as u64 {
                break;
            }
            if let Err(trouble) = self.extend(&mut bytes, wanted, plan, file) {
                patience.after(trouble)?;
            }
        }
        Ok(bytes)
    }

    /// Asks for what is missing of the first `wanted` bytes. What arrives before a failure stays.
    fn extend(&self, bytes: &mut Vec<u8>, wanted: u64, plan: &DownloadPlan, file: &PlannedFile) -> Result<(), Trouble> {
        let answer = self.client().get(&Request {
            url: file.url(),
            what: &file.path,
            repo: &plan.name.repo,
            from: bytes.len() as u64,
            to: (wanted < file.size()).then_some(wanted),
        })?;
        match (answer.status, answer.range) {
            (206, Some((first, _))) if first == bytes.len() as u64 => {}
            // Without ranges, everything comes from its beginning.
            (200, _) => bytes.clear(),
            _ => return Err(Trouble::passing("the server did not send the part that was asked for")),
        }
        let missing = wanted - bytes.len() as u64;
        let read = answer.body.take(missing).read_to_end(bytes);
        if read.map_err(|error| broken_off(&error))? as u64 == missing {
            Ok(())
        } else {
            Err(Trouble::passing("the connection ended too early"))
        }
    }
}

/// Which part of a file is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FilePart {
    All,
    SafetensorsHeader,
    GgufHeader,
}

impl FilePart {
    fn of(path: &str) -> Option<Self> {
        match path.rsplit('/').next()? {
            "tokenizer.json" => None,
            name if name.ends_with(".json") => Some(Self::All),
            name if name.ends_with(".safetensors") => Some(Self::SafetensorsHeader),
            name if name.ends_with(".gguf") => Some(Self::GgufHeader),
            _ => None,
        }
    }

    /// How much of the file's beginning to ask for, given what is here; `None` if that suffices.
    fn wanted(self, here: &[u8], is_whole_gguf: &dyn Fn(&[u8]) -> bool) -> Option<u64> {
        let length = here.len() as u64;
        let wanted = match (self, here.first_chunk()) {
            (Self::All, _) => u64::MAX,
            (Self::SafetensorsHeader, None) => SAFETENSORS_FIRST_BYTES,
            // The header's length, and so many bytes after it.
            (Self::SafetensorsHeader, Some(first)) => 8 + u64::from_le_bytes(*first).min(SAFETENSORS_MAX_BYTES),
            (Self::GgufHeader, _) if is_whole_gguf(here) => return None,
            (Self::GgufHeader, _) => (2 * length).clamp(GGUF_FIRST_BYTES, GGUF_MAX_BYTES),
        };
        (wanted > length).then_some(wanted)
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
        assert_eq!(FilePart::of("config.json"), Some(FilePart::All));
        assert_eq!(FilePart::of("tokenizer.json"), None);
        assert_eq!(FilePart::of("merges.txt"), None);
        assert_eq!(FilePart::of("sub/model.gguf"), Some(FilePart::GgufHeader));
        let is_whole = |here: &[u8]| here.len() >= 3 << 20;
        let wanted = |part: FilePart, here: &[u8]| part.wanted(here, &is_whole);
        let header = [&200_000u64.to_le_bytes()[..], &[b' '; 200_000]].concat();
        assert_eq!(wanted(FilePart::SafetensorsHeader, &[]), Some(SAFETENSORS_FIRST_BYTES));
        assert_eq!(wanted(FilePart::SafetensorsHeader, &header[..99]), Some(200_008));
        assert_eq!(wanted(FilePart::SafetensorsHeader, &header), None);
        assert_eq!(
            wanted(FilePart::SafetensorsHeader, &[255; 9]),
            Some(8 + SAFETENSORS_MAX_BYTES)
        );
        assert_eq!(wanted(FilePart::GgufHeader, &[]), Some(1 << 20));
        assert_eq!(wanted(FilePart::GgufHeader, &vec![0; 2 << 20]), Some(4 << 20));
        assert_eq!(wanted(FilePart::GgufHeader, &vec![0; 4 << 20]), None);
        assert_eq!(wanted(FilePart::All, &header), Some(u64::MAX));
    }
}
