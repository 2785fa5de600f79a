//! What a checkpoint's directory holds: all that may ever be replaced or removed of one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What makes a directory a checkpoint.
pub const CONFIG: &str = "config.json";

/// What may lie beside config.json and weights.
pub(crate) const SIDE_FILES: [&str; 11] = [
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
    "additional_chat_templates/tool_use.jinja",
];

/// Whether a file of this name is one that a checkpoint's directory may hold.
fn is_known(name: &str) -> bool {
    let shard = |name: &str| {
        let numbers = name.strip_prefix("model-")?.strip_suffix(".safetensors")?;
        let (number, count) = numbers.split_once("-of-")?;
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        Some(digits(number) && digits(count))
    };
    [CONFIG, "model.safetensors", "model.safetensors.index.json"].contains(&name)
        || SIDE_FILES.contains(&name)
        || shard(name) == Some(true)
}

/// What lies in a directory: files that a checkpoint may have, and whatever else, by their paths in it.
#[derive(Default)]
pub(super) struct Holdings {
    known: Vec<PathBuf>,
    /// Folders of known files.
    folders: Vec<PathBuf>,
    /// Sorted.
    pub strangers: Vec<PathBuf>,
}

impl Holdings {
    /// Looks into a directory, and follows no links.
    pub(super) fn of(directory: &Path) -> io::Result<Self> {
        let mut holdings = Self::default();
        holdings.add(directory, Path::new(""))?;
        holdings.strangers.sort();
        Ok(holdings)
    }

    fn add(&mut self, directory: &Path, below: &Path) -> io::Result<()> {
        for entry in fs::read_dir(directory.join(below))? {
            let entry = entry?;
            let (path, kind) = (below.join(entry.file_name()), entry.file_type()?);
            let name = path.to_string_lossy().replace('\\', "/");
            let leads_to_known = || SIDE_FILES.iter().any(|known| known.starts_with(&format!("{name}/")));
            if kind.is_file() && is_known(&name) {
                self.known.push(path);
            } else if kind.is_dir() && leads_to_known() {
                self.add(directory, &path)?;
                self.folders.push(path);
            } else {
                self.strangers.push(path);
            }
        }
        Ok(())
    }

    /// Whether there is nothing at all.
    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty() && self.folders.is_empty() && self.strangers.is_empty()
    }
}

/// Removes a checkpoint's directory, or what a writer that was ended has left of one; stays away from files that no
/// checkpoint has, and from the directories that hold them.
pub(super) fn remove(directory: &Path) -> io::Result<()> {
    let holdings = Holdings::of(directory)?;
    for file in &holdings.known {
        fs::remove_file(directory.join(file))?;
    }
    for folder in &holdings.folders {
        fs::remove_dir(directory.join(folder))?;
    }
    fs::remove_dir(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_has_only_files_of_these_names() {
        for name in [
            "config.json",
            "model.safetensors",
            "model-00001-of-00002.safetensors",
            "additional_chat_templates/tool_use.jinja",
        ] {
            assert!(is_known(name), "{name}");
        }
        for name in [
            "Config.json",
            "model-1-of-.safetensors",
            "model-a-of-b.safetensors",
            "other.safetensors",
            "src/config.json",
            "README.md",
            "",
        ] {
            assert!(!is_known(name), "{name}");
        }
    }
}
