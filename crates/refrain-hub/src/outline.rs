//! Downloads a model's headers and configuration without its weights: enough to estimate memory and speed.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::http::{Request, body_error};
use crate::pull::{DownloadPlan, Hub, PlannedFile};
use crate::retry::{Backoff, Failure};
use crate::{Error, Watcher};

/// Size of the first request for a GGUF file, whose header does not state its length. Each further request doubles
/// the size until the header is complete. The vocabulary in the header takes up to a dozen MiB.
const GGUF_FIRST_BYTES: u64 = 1 << 20;
/// Maximum size of a GGUF header; a larger one is treated as corrupt.
const GGUF_MAX_BYTES: u64 = 64 << 20;
/// Size of the first request for a safetensors file: most headers fit.
const SAFETENSORS_FIRST_BYTES: u64 = 64 << 10;
/// Maximum size of a safetensors header, as the format defines it.
const SAFETENSORS_MAX_BYTES: u64 = 100_000_000;

/// A checkpoint with headers and configuration only. Its files have their real names and sizes; weights read as
/// zeros. Sparse files take no space for them where the file system supports holes. Dropping this value deletes the
/// files.
#[derive(Debug)]
pub struct Outline {
    /// Path to open as a checkpoint.
    pub path: PathBuf,
    _folder: TempDir,
}

impl Hub {
    /// Downloads a model's headers and configuration to a temporary directory, not to the cache. `is_complete_gguf`
    /// returns whether a prefix of a GGUF file holds its complete header.
    ///
    /// # Errors
    /// If the hub refuses or cannot be reached, or the disk is full or fails.
    pub fn outline(
        &self,
        plan: &DownloadPlan,
        is_complete_gguf: &dyn Fn(&[u8]) -> bool,
        watcher: &dyn Watcher,
    ) -> Result<Outline, Error> {
        let folder = tempfile::tempdir().map_err(Error::io("create", &std::env::temp_dir()))?;
        for file in &plan.files {
            if let Some(part) = FilePart::of(&file.path) {
                let needed = |here: &[u8]| part.needed(here, is_complete_gguf);
                let bytes = self.prefix(plan, file, &needed, watcher)?;
                let path = folder.path().join(&file.path);
                write(&path, &bytes, file.size()).map_err(Error::io("write", &path))?;
            }
        }
        Ok(Outline {
            path: folder.path().join(plan.selection.entry()),
            _folder: folder,
        })
    }

    /// Downloads a file's prefix until `needed`, which gets the bytes so far, returns `None`.
    fn prefix(
        &self,
        plan: &DownloadPlan,
        file: &PlannedFile,
        needed: &dyn Fn(&[u8]) -> Option<u64>,
        watcher: &dyn Watcher,
    ) -> Result<Vec<u8>, Error> {
        let mut backoff = Backoff::new(&file.path, self.initial_backoff(), watcher);
        let mut bytes = Vec::new();
        while let Some(needed) = needed(&bytes).map(|needed| needed.min(file.size())) {
            if needed <= bytes.len() as u64 {
                break;
            }
            if let Err(failure) = self.extend(&mut bytes, needed, plan, file) {
                backoff.wait_after(failure)?;
            }
        }
        Ok(bytes)
    }

    /// Requests the rest of the first `needed` bytes. Keeps what arrives before a failure.
    fn extend(&self, bytes: &mut Vec<u8>, needed: u64, plan: &DownloadPlan, file: &PlannedFile) -> Result<(), Failure> {
        let response = self.client().get(&Request {
            url: file.url(),
            what: &file.path,
            repo: &plan.name.repo,
            from: bytes.len() as u64,
            to: (needed < file.size()).then_some(needed),
        })?;
        match (response.status, response.range) {
            (206, Some((first, _))) if first == bytes.len() as u64 => {}
            // The server ignored the range and sends the file from the start.
            (200, _) => bytes.clear(),
            _ => return Err(Failure::transient("the server did not send the requested range")),
        }
        let missing = needed - bytes.len() as u64;
        let read = response.body.take(missing).read_to_end(bytes);
        if read.map_err(|error| body_error(&error))? as u64 == missing {
            Ok(())
        } else {
            Err(Failure::transient("the connection closed early"))
        }
    }
}

/// The part of a file that describes the model.
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

    /// Returns how many bytes of the prefix to request, given those already here; `None` if they suffice.
    fn needed(self, here: &[u8], is_complete_gguf: &dyn Fn(&[u8]) -> bool) -> Option<u64> {
        let length = here.len() as u64;
        let needed = match (self, here.first_chunk()) {
            (Self::All, _) => u64::MAX,
            (Self::SafetensorsHeader, None) => SAFETENSORS_FIRST_BYTES,
            // The 8 bytes of the header's length, and the header.
            (Self::SafetensorsHeader, Some(first)) => 8 + u64::from_le_bytes(*first).min(SAFETENSORS_MAX_BYTES),
            (Self::GgufHeader, _) if is_complete_gguf(here) => return None,
            (Self::GgufHeader, _) => (2 * length).clamp(GGUF_FIRST_BYTES, GGUF_MAX_BYTES),
        };
        (needed > length).then_some(needed)
    }
}

/// Writes a sparse file of `size` that starts with `bytes`.
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
    fn requests_only_headers_and_configuration() {
        assert_eq!(FilePart::of("config.json"), Some(FilePart::All));
        assert_eq!(FilePart::of("tokenizer.json"), None);
        assert_eq!(FilePart::of("merges.txt"), None);
        assert_eq!(FilePart::of("sub/model.gguf"), Some(FilePart::GgufHeader));
        let is_complete = |here: &[u8]| here.len() >= 3 << 20;
        let needed = |part: FilePart, here: &[u8]| part.needed(here, &is_complete);
        let header = [&200_000u64.to_le_bytes()[..], &[b' '; 200_000]].concat();
        assert_eq!(needed(FilePart::SafetensorsHeader, &[]), Some(SAFETENSORS_FIRST_BYTES));
        assert_eq!(needed(FilePart::SafetensorsHeader, &header[..99]), Some(200_008));
        assert_eq!(needed(FilePart::SafetensorsHeader, &header), None);
        assert_eq!(
            needed(FilePart::SafetensorsHeader, &[255; 9]),
            Some(8 + SAFETENSORS_MAX_BYTES)
        );
        assert_eq!(needed(FilePart::GgufHeader, &[]), Some(1 << 20));
        assert_eq!(needed(FilePart::GgufHeader, &vec![0; 2 << 20]), Some(4 << 20));
        assert_eq!(needed(FilePart::GgufHeader, &vec![0; 4 << 20]), None);
        assert_eq!(needed(FilePart::All, &header), Some(u64::MAX));
    }
}
