//! The files of a checkpoint directory: only these are ever replaced or removed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The file that identifies a checkpoint directory.
pub const CONFIG: &str = "config.json";

/// Optional files besides config.json and weights.
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

/// Whether a checkpoint directory may contain a file of this name.
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

/// The contents of a directory: files of a checkpoint, and others, as relative paths.
#[derive(Default)]
pub(super) struct DirectoryContents {
    known: Vec<PathBuf>,
    /// Folders of known files.
    folders: Vec<PathBuf>,
    /// Files that are not part of a checkpoint, sorted.
    pub unknown: Vec<PathBuf>,
}

impl DirectoryContents {
    /// Lists a directory. Follows no links.
    pub(super) fn of(directory: &Path) -> io::Result<Self> {
        let mut found = Self::default();
        found.add(directory, Path::new(""))?;
        found.unknown.sort();
        Ok(found)
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
                self.unknown.push(path);
            }
        }
        Ok(())
    }

    /// Whether the directory is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty() && self.folders.is_empty() && self.unknown.is_empty()
    }
}

/// Removes a checkpoint directory, or the remains of an interrupted one. Keeps files that are not part of a
/// checkpoint, and the directories that contain them.
pub(super) fn remove(directory: &Path) -> io::Result<()> {
    let found = DirectoryContents::of(directory)?;
    for file in &found.known {
        fs::remove_file(directory.join(file))?;
    }
    for folder in &found.folders {
        fs::remove_dir(directory.join(folder))?;
    }
    fs::remove_dir(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_checkpoint_files() {
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
